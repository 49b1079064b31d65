"""The Hugging Face format of a model family: settings, parameter names, tokenizers.

Each `weights.py` defines one as `FORMAT`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from torch import Tensor

from transformer.config import MAX_LAYERS, JsonObject
from transformer.errors import BundleError
from transformer.models.huggingface.generation_config import check_generation, read_end_ids, read_token_id
from transformer.models.huggingface.key_mapping import (
    CONFIG,
    OTHER_PROGRAM,
    ParameterMapping,
    check_settings,
    check_size,
    from_published,
    setting,
    to_published,
)
from transformer.models.kinds import ModelConfig
from transformer.models.size import LAYER_KEYS
from transformer.tokenizers.huggingface import INPUTS, read_special_token_ids, read_tokenizer, write_tokenizer
from transformer.tokenizers.pair import TokenizerPair
from transformer.tokenizers.special_tokens import SpecialTokenIds

C = TypeVar("C", bound=ModelConfig)
SIZES: Final = (*LAYER_KEYS, "kv_heads", "d_k", "d_ff")
"""Settings of this package that are sizes, although the default of the published setting may not be an integer."""
UNSUPPORTED: Final[dict[str, tuple[object, ...]]] = {
    "quantization_config": (None,), "sliding_window": (None,), "use_sliding_window": (False, None),
    "qk_norm": (False, None), "use_qk_norm": (False, None), "attn_logit_softcapping": (None,),
    "final_logit_softcapping": (None,),
}  # fmt: skip
"""Settings of other families that no model here supports, with the values that have no effect."""
MAX_SIZE: Final = 10**7


@dataclass(frozen=True)
class HuggingFaceFormat(Generic[C]):
    """The published format of a model family.

    Attributes:
        model_types: Supported values of `model_type`; the first is written.
        architectures: Supported classes of `transformers`.
        settings: Published name and default of each setting of this package.
        weight_names: Function that returns the published names of the weights of a configuration.
        read_settings: Function that returns further settings of this package from a published configuration, the names
            of the parameters and the small files beside it; it rejects unsupported values.
        write_settings: Function that returns further published settings of a configuration.
        ids: Published name and default of each setting that is the id of a special token.
        required: Special tokens that a model needs.
        special: Name of each special token by its published role, if the tokenizer does not name it.
        prefix: Prefix that parameter names lack if the model was published without a head.
        heads: Beginnings of parameter names that never have the prefix.
        ignored: Pattern of parameter names to ignore.
        inputs: Inputs of the model, by the names that `transformers` uses.
        template: Post-processing template of a text, for tokenizers trained here; see `write_tokenizer`.
        write_files: Function that returns further files of a configuration, by name.
    """

    model_types: tuple[str, ...]
    architectures: tuple[str, ...] = ()
    settings: Mapping[str, tuple[str, object]] = field(default_factory=dict[str, tuple[str, object]])
    weight_names: Callable[[C], Sequence[ParameterMapping]] = lambda _: ()
    read_settings: Callable[[JsonObject, Collection[str], Mapping[str, bytes]], Mapping[str, object]] = lambda *_: {}
    write_settings: Callable[[C], Mapping[str, object]] = lambda _: {}
    ids: Mapping[str, tuple[str, int | None]] = field(default_factory=dict[str, tuple[str, int | None]])
    required: tuple[str, ...] = ()
    special: Mapping[str, str] = field(default_factory=dict[str, str])
    prefix: str = ""
    heads: tuple[str, ...] = ()
    ignored: str = ""
    inputs: tuple[str, ...] = INPUTS
    template: str = ""
    write_files: Callable[[C], Mapping[str, object]] = lambda _: {}

    def read_config(
        self, kind: type[C], published: JsonObject, files: Mapping[str, bytes], names: Collection[str]
    ) -> C:
        """Reads the configuration of a published model.

        Args:
            kind: Class of the configuration.
            published: Content of config.json.
            files: The other small files of the folder, by name.
            names: Names of the parameters.

        Raises:
            BundleError: A value is not supported.
            ValueError: A value is not valid.
        """
        check_settings(published, UNSUPPORTED)
        if not set(published.get("layer_types") or ()) <= {"full_attention"}:
            raise BundleError(
                f"{CONFIG}: layer_types={published['layer_types']!r} are not known; only full_attention is; "
                f"{OTHER_PROGRAM}"
            )
        for our_name, (hf_name, default) in self.settings.items():
            if type(default) is int or our_name in SIZES:
                check_size(published, hf_name, MAX_LAYERS if our_name in LAYER_KEYS else MAX_SIZE)
        values = {our_name: setting(published, *named) for our_name, named in self.settings.items()}
        n_tokens: int = values.get("vocab_size", values.get("src_vocab_size", 0))
        values |= {
            name: read_token_id(published, *named, n_tokens) for name, named in self.ids.items() if name != "eos_id"
        }
        ends = list[int]()
        if "eos_id" in self.ids:
            several, default = "further_eos_ids" in kind.model_fields, self.ids["eos_id"][1]
            ends = read_end_ids(published, files, default, n_tokens, several=several)
            values["eos_id"] = ends[0] if ends else None
            values |= {"further_eos_ids": tuple(ends[1:])} if several else {}
        for our_name, (hf_name, default) in self.ids.items():
            token = published.get(hf_name, default)
            if our_name in self.required and values[our_name] is None and token is not None:
                raise BundleError(
                    f"{CONFIG}: {hf_name}={token} is none of the {n_tokens:,} tokens of the model, which needs it; "
                    "copy the file again"
                )
        if "eos_id" in self.ids:
            start, never = values.get("start_id"), [values.get(f"{role}_id") for role in ("pad", "start", "bos")]
            check_generation(published, files, start=start, ends=ends, never=never)
        return kind.model_validate({**values, **self.read_settings(published, self._full_names(names), files)})

    def write_config(self, config: C) -> dict[str, object]:
        """Returns the config.json that `read_config` reads."""
        values = config.model_dump()
        settings = {hf_name: values[our_name] for our_name, (hf_name, _) in {**self.settings, **self.ids}.items()}
        return {"model_type": self.model_types[0], **settings, **self.write_settings(config)}

    def read_weights(self, config: C, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Converts published tensors to the parameters of this package, by name.

        Raises:
            BundleError: Parameters are missing or unknown.
        """
        named = dict(zip(self._full_names(tensors), tensors.values(), strict=True))
        return from_published(self.weight_names(config), named, self.ignored)

    def write_weights(self, config: C, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Returns the tensors that `read_weights` reads."""
        return to_published(self.weight_names(config), state)

    def read_tokenizers(self, config: C, files: Mapping[str, bytes]) -> TokenizerPair:
        """Reads the tokenizer of a published model, which becomes both sides of the pair.

        Raises:
            BundleError: Its files are missing or damaged.
        """
        values = config.model_dump()
        special_tokens = {name.removesuffix("_id").replace("start", "bos"): values[name] for name in self.ids}
        n_tokens = values.get("vocab_size", values.get("src_vocab_size"))
        names: dict[str, str | None] = {"unk_token": None, "mask_token": None, **self.special}
        special = read_special_token_ids(files, names, n_tokens)
        if special["unk_token"] in special_tokens.values():  # then it hardly stands for unknown text
            special["unk_token"] = None
        special_tokens |= {role.removesuffix("_token"): token for role, token in special.items() if token is not None}
        absent: dict[str, Any] = dict.fromkeys(("pad", "bos", "eos", "unk"))
        further_eos = tuple(values.get("further_eos_ids", ()))
        control = SpecialTokenIds(**absent | special_tokens, further_eos=further_eos)
        tokenizer = read_tokenizer(files, control, n_tokens)
        return TokenizerPair(tokenizer, tokenizer)

    def write_tokenizers(self, config: C, tokenizers: TokenizerPair) -> dict[str, bytes]:
        """Returns the files that `read_tokenizers` reads."""
        sizes = config.model_dump()
        longest = sizes.get("seq_len", sizes.get("src_seq_len"))
        return write_tokenizer(tokenizers.source, self.template, self.inputs, longest)

    def _full_names(self, names: Collection[str]) -> list[str]:
        """Adds the prefix to names that lack it and replaces the older names of norm parameters."""
        renewed = [name.replace(".gamma", ".weight").replace(".beta", ".bias") for name in names]
        full_names = [name if name.startswith((self.prefix, *self.heads)) else self.prefix + name for name in renewed]
        if len(set(full_names)) < len(full_names):
            twice = next(name for index, name in enumerate(full_names) if name in full_names[:index])
            raise BundleError(f"{twice} is there twice, by an older or shorter name too; copy the whole folder")
        return full_names
