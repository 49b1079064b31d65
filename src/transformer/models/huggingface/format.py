"""How a family's models are published: settings, names of parameters, tokenizer. Each `weights.py` has one `FORMAT`."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from torch import Tensor

from transformer.config import Config
from transformer.errors import BundleError
from transformer.models.huggingface.generation_config import refuse_other_writing, refuse_several_ends
from transformer.models.huggingface.key_mapping import (
    Renamed,
    given,
    read_renamed,
    refuse_beyond,
    refuse_unknown,
    write_renamed,
)
from transformer.tokenizers.huggingface import INPUTS, read_special_token_ids, read_tokenizer, write_tokenizer
from transformer.tokenizers.pair import TokenizerPair
from transformer.tokenizers.special_tokens import SpecialTokenIds

Names = Mapping[str, tuple[str, Any]]
DEPTHS: Final = ("N", "encoder_layers", "decoder_layers")
SIZES: Final = (*DEPTHS, "kv_heads", "d_k", "d_ff")
"""Our settings that are sizes even where their absence means another one."""
NOWHERE: Final[dict[str, tuple[Any, ...]]] = {
    "quantization_config": (None,), "sliding_window": (None,), "use_sliding_window": (False, None),
    "qk_norm": (False, None), "use_qk_norm": (False, None), "attn_logit_softcapping": (None,),
    "final_logit_softcapping": (None,),
}  # fmt: skip
"""Settings of other families that no model here computes, and the values with which they say nothing."""
MOST_LAYERS: Final = 1000
MOST: Final = 10**7


@dataclass(frozen=True)
class Format:
    """A published format.

    Attributes:
        model_types: the `model_type`s of configurations in it; the first is written.
        settings: our setting -> the published one, and what its absence means.
        table: every parameter of a configuration.
        read: further settings of ours, of a published configuration, the names of the parameters and the small files
            beside it; refuses values that are not known.
        write: further published settings of a configuration.
        ids: our settings that hold ids of control tokens, as in `settings`.
        special: published role of a control token -> what it is called where the tokenizer does not tell.
        prefix: that names lack where the model was published without a head.
        heads: names that begin so never have the prefix.
        ignored: pattern of names of parameters that say nothing.
        inputs: what the model takes, by the names of transformers.
        frame: of texts, for tokenizers trained here, see `write_tokenizer`.
        write_files: further files of a configuration, name -> content.
    """

    model_types: tuple[str, ...]
    settings: Names = field(default_factory=dict[str, tuple[str, Any]])
    table: Callable[[Any], Sequence[Renamed]] = lambda _: ()
    read: Callable[[Mapping[str, Any], Collection[str], Mapping[str, bytes]], dict[str, Any]] = lambda *_: {}
    write: Callable[[Any], dict[str, Any]] = lambda _: {}
    ids: Names = field(default_factory=dict[str, tuple[str, Any]])
    special: Mapping[str, str] = field(default_factory=dict[str, str])
    prefix: str = ""
    heads: tuple[str, ...] = ()
    ignored: str = ""
    inputs: tuple[str, ...] = INPUTS
    frame: str = ""
    write_files: Callable[[Any], dict[str, Any]] = lambda _: {}

    def read_config(
        self, kind: type[Config], published: Mapping[str, Any], files: Mapping[str, bytes], names: Collection[str]
    ) -> Config:
        """The configuration of a published model.

        Args:
            kind: the class of our configuration.
            published: content of config.json.
            files: the other small files of its folder by name.
            names: of its parameters.

        Raises:
            BundleError: a value is not known.
            ValueError: a value is none.
        """
        refuse_unknown(published, NOWHERE)
        if not set(published.get("layer_types") or ()) <= {"full_attention"}:
            raise BundleError(f"layer_types={published['layer_types']!r} are not known; only full_attention is")
        for ours, (theirs, default) in self.settings.items():
            if type(default) is int or ours in SIZES:
                refuse_beyond(published, theirs, MOST_LAYERS if ours in DEPTHS else MOST)
        values = {ours: given(published, *named) for ours, named in self.settings.items()}
        values |= {ours: published.get(*named) for ours, named in self.ids.items()}
        tokens = values.get("vocab_size", values.get("src_vocab_size"))
        for ours, (theirs, _) in self.ids.items():
            if isinstance(values[ours], int) and not 0 <= values[ours] < tokens:
                raise BundleError(f"{theirs}={values[ours]} is none of the {tokens:,} tokens of the model")
        if "eos_id" in self.ids:
            refuse_several_ends(published)
            start, never = values.get("start_id"), [values.get(f"{role}_id") for role in ("pad", "start", "bos")]
            refuse_other_writing(published, files, start=start, end=values["eos_id"], never=never)
        return kind.model_validate({**values, **self.read(published, self._named(names), files)})

    def write_config(self, config: Config) -> dict[str, Any]:
        """What `read_config` reads."""
        values = config.model_dump()
        found = {theirs: values[ours] for ours, (theirs, _) in {**self.settings, **self.ids}.items()}
        return {"model_type": self.model_types[0], **found, **self.write(config)}

    def read_weights(self, config: Config, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Our parameters, by name, of the published ones.

        Raises:
            BundleError: parameters are missing or unknown.
        """
        named = dict(zip(self._named(tensors), tensors.values(), strict=True))
        return read_renamed(self.table(config), named, self.ignored)

    def write_weights(self, config: Config, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What `read_weights` reads."""
        return write_renamed(self.table(config), state)

    def read_tokenizers(self, config: Config, files: Mapping[str, bytes]) -> TokenizerPair:
        """The tokenizer of a published model; both sides of the pair are it.

        Raises:
            BundleError: its files are missing or damaged.
        """
        values = config.model_dump()
        special_tokens = {name.removesuffix("_id").replace("start", "bos"): values[name] for name in self.ids}
        special = read_special_token_ids(files, self.special)
        special_tokens |= {role.removesuffix("_token"): token for role, token in special.items() if token is not None}
        tokenizer = read_tokenizer(
            files, SpecialTokenIds(**{"pad": None, "bos": None, "eos": None, "unk": None} | special_tokens)
        )
        return TokenizerPair(tokenizer, tokenizer)

    def write_tokenizers(self, config: Config, tokenizers: TokenizerPair) -> dict[str, bytes]:
        """The files that `read_tokenizers` reads."""
        sizes = config.model_dump()
        longest = sizes.get("seq_len", sizes.get("src_seq_len"))
        return write_tokenizer(tokenizers.source, self.frame, self.inputs, longest)

    def _named(self, names: Collection[str]) -> list[str]:
        """Names with their prefix, and those of norms as they are called today."""
        renewed = [name.replace(".gamma", ".weight").replace(".beta", ".bias") for name in names]
        found = [name if name.startswith((self.prefix, *self.heads)) else self.prefix + name for name in renewed]
        if len(set(found)) < len(found):
            twice = next(name for place, name in enumerate(found) if name in found[:place])
            raise BundleError(f"{twice} is there twice, by an older or shorter name too; copy the whole folder")
        return found
