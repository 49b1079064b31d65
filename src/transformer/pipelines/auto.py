"""Loads a model folder as the pipeline for the model's task."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast, overload

from transformer.bundle import Bundle, load_bundle
from transformer.bundle.hub_cache import find_model
from transformer.bundle.languages import recorded_languages, recorded_pairs
from transformer.data.source_text import SourceText
from transformer.decoding import GREEDY, Search, default_workers
from transformer.decoding.shortlist import Shortlist
from transformer.decoding.shortlist_training import check_special_token_ids, load_shortlist
from transformer.errors import BundleError, ConfigError
from transformer.inference.cpu import choose_precision
from transformer.kernels import Precision
from transformer.models import family
from transformer.models.kinds import EncoderConfig, ImageEncoderConfig
from transformer.pipelines.device import DevicePlan, choose_device_plan
from transformer.pipelines.translation.confidence import Calibration
from transformer.pipelines.translation.config import TranslatorConfig, TranslatorOptions, renamed_lexicon
from transformer.pipelines.translation.reranking import ReverseScorer
from transformer.pipelines.translation.translator import Translator
from transformer.runtime.threads import prepare_threads
from transformer.text.languages import base_language
from transformer.tokenizers.base import Tokenizer
from transformer.transformer import Transformer

if TYPE_CHECKING:
    from transformer.models.bert.model import Bert
    from transformer.models.language_model import LanguageModel
    from transformer.models.vit.model import Vit
    from transformer.pipelines.classification import ImageClassifier, TextEncoder
    from transformer.pipelines.text_generation import Generator

MIN_SOURCE_LIMIT = 16
"""Lines of up to this many tokens are never split, however short the training text was."""


class LoadOptions(TranslatorOptions, total=False):
    """The keyword arguments of `load`, for editors and type checkers."""

    search: Search
    ensemble: Sequence[Path | str]
    precision: str
    workers: int | None
    shortlist: Path | str | None
    rerank: Path | str | None
    device: str
    special_tokens: bool


class MakeOptions(TranslatorOptions, total=False):
    """The keyword arguments of `make_translator`."""

    search: Search
    workers: int | None
    shortlist: Shortlist | None
    reverse: ReverseScorer | None


@overload
def load(path: Literal["de-en", "en-de"], **options: Unpack[LoadOptions]) -> Translator: ...
@overload
def load(path: Path | str, **options: Unpack[LoadOptions]) -> Any: ...
def load(
    path: Path | str,
    *,
    search: Search = GREEDY,
    ensemble: Sequence[Path | str] = (),
    precision: str = "auto",
    workers: int | None = None,
    shortlist: Path | str | None = None,
    rerank: Path | str | None = None,
    device: str = "auto",
    special_tokens: bool = False,
    **options: Unpack[TranslatorOptions],
) -> "Translator | Generator | TextEncoder | ImageClassifier":
    """Loads a bundle, the best model of a run folder, or a published folder, as the pipeline for its task.

    On a CPU the weights are packed for speed. Use `load_bundle` for a model that can be trained further.

    Returns:
        A `Translator`, a `Generator`, a `TextEncoder` or an `ImageClassifier`, depending on the model's family. Type
        checkers know it for the names of the models that come with the program; `load_translator` always returns a
        `Translator`.

    Args:
        path: Folder of the model, or the name of a published model that is in the Hugging Face cache of this machine.
        search: Options of the search for translations, e.g. `Search(beam=4)`.
        ensemble: Further models with the same target tokenizer. Their predictions are averaged with the first model's.
        precision: Precision of the weights: "float32", "bf16" or "int8". "auto" is the fastest on this machine, see
            `choose_device_plan`.
        workers: Maximum number of processes that translate in parallel on a CPU. The default is one per torch thread,
            up to 8.
        shortlist: File written by `transformer shortlist`. It restricts each translation to likely target tokens given
            its source, for speed.
        rerank: Model of the other direction. The hypotheses of a beam are ranked by its score as well, with the weight
            `Search.rerank_weight`, see `Reranker`.
        device: "cpu", "cuda" or "auto". "auto" is a GPU if there is one and no option requires a CPU (int8, a
            shortlist, several workers).
        special_tokens: Whether the names of special tokens in texts, e.g. `<extra_id_0>`, are these tokens. Texts of
            strangers must not be read so. Special tokens in `task` are always read.
        **options: Further options of a translator, see `TranslatorConfig`: `terminology` (deprecated name: `lexicon`),
            `task`, `deterministic`, `max_source_tokens` (by default, the longest source seen in training), `split`,
            `case`, `copy`, and others.

    Raises:
        ConfigError: The precision or the device is unknown, or another option is invalid; a shortlist is combined with
            a terminology that requires phrases; or an option for CPUs is combined with a GPU.
        DataError: The shortlist file is invalid, or belongs to other tokenizers.
        TypeError: The path is not a path, or the search not a `Search`.
        BundleError: The folder is not a model, is incomplete, or has changed since it was written; or the target
            tokenizers of the models differ.
    """
    _check_options(path, search, options)
    prepare_threads()
    settings = renamed_lexicon(options)
    config = TranslatorConfig(search=search, workers=1 if workers is None else workers, **settings)
    bundle = _read_text_model(Path(path), choose_precision(precision), special_tokens=special_tokens)
    search = search.with_defaults(**bundle.provenance.get("generation", {}))
    if family(bundle.family).kind != "encoder-decoder":
        if config != TranslatorConfig(search=config.search, workers=config.workers) or ensemble or shortlist or rerank:
            raise ConfigError(
                f"a {bundle.family} model does not translate; leave out terminology, task, ensemble, shortlist, rerank "
                f"and deterministic, and see `transformer info {path}`"
            )
        return _load_pipeline(bundle, precision, device, search)
    needs_cpu = precision == "int8" or bundle.precision != "float32" or shortlist is not None or config.workers > 1
    plan = choose_device_plan("cpu" if device == "auto" and needs_cpu else device, precision)
    if plan.is_gpu and (shortlist is not None or config.workers > 1):
        raise ConfigError("shortlist and workers only apply to CPUs; leave them out, or choose device='cpu'")
    bundles = [
        bundle,
        *(_read_text_model(Path(folder), plan.precision, special_tokens=special_tokens) for folder in ensemble),
    ]
    for member_bundle in bundles:
        plan.prepare(member_bundle)
    if shortlist is not None:
        check_special_token_ids(bundle.tokenizers)
    n = 1 if plan.is_gpu else default_workers() if workers is None else workers
    settings.setdefault("description", plan.describe(n))
    settings.setdefault("calibration", Calibration.from_dict(bundle.calibration, plan.precision))
    return make_translator(
        *bundles,
        shortlist=None if shortlist is None else load_shortlist(Path(shortlist), bundle.tokenizers),
        reverse=None if rerank is None else load_reverse(rerank, recorded_languages(bundle), config, plan),
        search=search,
        workers=n,
        **settings,
    )


def _check_options(path: object, search: object, options: Mapping[str, object]) -> None:
    """Checks what a caller may have confused.

    Raises:
        TypeError: The path is not a path, the search not a `Search`, or an option is unknown.
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path={path!r:.60} is not a path; give a model folder, a run folder or the name of a model")
    if not isinstance(search, Search):
        raise TypeError(f"search={search!r:.60} is not a Search; give e.g. transformer.Search(beam=4)")
    known = [field.name for field in fields(TranslatorConfig)]
    for name in options:
        if name in {field.name for field in fields(Search)}:
            raise TypeError(f"{name} is an option of the search; give search=transformer.Search({name}=...)")
        if name not in (*known, "lexicon"):
            similar = get_close_matches(name, known, n=1)
            hint = f"; did you mean {similar[0]}?" if similar else f"; choose one of {', '.join(known)}"
            raise TypeError(f"unexpected keyword argument {name!r}{hint}")


def load_translator(path: Path | str, **options: Unpack[LoadOptions]) -> Translator:
    """Same as `load`, but only for models that translate.

    Raises:
        BundleError: The model does not translate.
    """
    pipeline = load(path, **options)
    if not isinstance(pipeline, Translator):
        raise BundleError(f"{path} does not translate; see `transformer info {path}` for its task")
    return pipeline


def load_reverse(
    path: Path | str, languages: tuple[str | None, str | None], config: TranslatorConfig, plan: DevicePlan
) -> ReverseScorer:
    """Loads a model of the other direction, in float32, for `Reranker`.

    Args:
        path: Folder or name of the model.
        languages: Languages that the translations are from and to, as far as they are known.
        config: Options of the translator.
        plan: Device of the translator.

    Raises:
        BundleError: The model does not translate.
        ConfigError: It translates between other languages.
    """
    from transformer.pipelines.translation.scoring import reverse_scores  # loads pyarrow

    batch_tokens = 1 if config.deterministic else config.batch_tokens
    device = "cuda" if plan.is_gpu else "cpu"
    translator = load_translator(path, precision="float32", device=device, workers=1, batch_tokens=batch_tokens)
    recorded = translator.config.target_language, translator.config.source_language
    known = [pair for pair in zip(recorded, languages, strict=True) if all(pair)]
    if any(base_language(theirs) != base_language(ours or "") for theirs, ours in known):
        raise ConfigError(
            f"{path} translates from {recorded[1]} to {recorded[0]}; rerank needs a model from {languages[1]} to "
            f"{languages[0]}"
        )
    return partial(reverse_scores, translator)


def read_model(path: Path, packed_in: Precision | None) -> Bundle:
    """Reads a bundle, or converts a published folder to one; its name on the Hub finds it in the cache.

    Args:
        path: Folder or name of the model.
        packed_in: Precision in which to pack a model stored in int8; None reads it as one in float32.
    """
    path = find_model(path)
    if (path / "config.json").is_file() and not (path / "manifest.json").exists():
        from transformer.bundle.huggingface import read_published  # rarely needed

        return read_published(path)
    return load_bundle(path, packed_in=packed_in, dequantize=packed_in is None)


def _read_text_model(path: Path, packed_in: Precision | None, *, special_tokens: bool) -> Bundle:
    """Same as `read_model`, with tokenizers that read special tokens if `special_tokens` is set."""
    bundle = read_model(path, packed_in)
    return replace(bundle, text=bundle.tokenizers.reading_special_tokens()) if special_tokens else bundle


def _load_pipeline(
    bundle: Bundle, precision: str, device: str, search: Search
) -> "Generator | TextEncoder | ImageClassifier":
    """Returns the pipeline of a model that does not translate.

    With `precision="auto"`, a text encoder computes in bf16, because int8 changes its vectors more. The lowest cosine
    to the float32 vectors is 0.996 in int8 and 0.99998 in bf16 (MiniLM, `benchmarks/families/throughput.py`).
    """
    # Imported here so that they do not slow down the start of a translator.
    from transformer.pipelines.classification import ImageClassifier, TextEncoder
    from transformer.pipelines.text_generation import Generator

    config = bundle.config
    needs_cpu = precision == "int8" or bundle.precision != "float32"
    fastest = "bf16" if isinstance(config, EncoderConfig) else "int8"
    plan = choose_device_plan("cpu" if device == "auto" and needs_cpu else device, precision, fastest)
    plan.prepare(bundle)
    if isinstance(config, EncoderConfig):
        pipeline = TextEncoder(cast("Bert", bundle.model), bundle.tokenizers.source, config)
    elif isinstance(config, ImageEncoderConfig):
        pipeline = ImageClassifier(cast("Vit", bundle.model), config)
    else:
        pipeline = Generator(cast("LanguageModel", bundle.model), bundle.tokenizers.source, search=search)
    pipeline.description = plan.describe(1)
    return pipeline


def make_translator(bundle: Bundle, *others: Bundle, **options: Unpack[MakeOptions]) -> Translator:
    """Creates the translator of a bundle, or of an ensemble of several; the options are those of `Translator`.

    Lines are by default split where they are longer than the longest source that all models saw in training.

    Raises:
        BundleError: A model does not translate, or the target tokenizers differ.
        ConfigError: The task is a language code that the model lacks.
    """
    source, target = bundle.tokenizers.source, bundle.tokenizers.target
    task = options.get("task") or ""
    if source.language_prefix(task) and (warning := source.language_warning(task)):
        raise ConfigError(f"task={task!r}: {warning}; give one of them")
    ensemble: list[tuple[Transformer, Tokenizer]] = []
    for other in others:
        if other.tokenizers.target.to_json() != target.to_json():
            raise BundleError(
                f"{other.folder} and {bundle.folder} have different target tokenizers; train the models with the "
                "same one"
            )
        other_source = other.tokenizers.source
        is_same = other_source.to_json() == source.to_json()
        ensemble.append((_translation_model(other), source if is_same else other_source))
    source_language, target_language = recorded_languages(bundle)
    settings: MakeOptions = {
        **_training_facts(bundle),
        "max_source_tokens": min(map(_max_source_tokens, (bundle, *others))),
        "source_language": source_language or "",
        "target_language": target_language or "",
        "directions": recorded_pairs(bundle),
        "trained_target": target_language or "",
        **options,
    }
    return Translator(_translation_model(bundle), bundle.tokenizers, ensemble=ensemble, **settings)


def _translation_model(bundle: Bundle) -> Transformer:
    """Returns the model of a bundle after a check that it translates."""
    if not isinstance(bundle.model, Transformer):
        raise BundleError(f"{bundle.folder}: a {bundle.family} model does not translate; give an encoder-decoder")
    return bundle.model


def _training_facts(bundle: Bundle) -> TranslatorOptions:
    """Returns the options of a translator that depend on the training text of the model.

    Raises:
        BundleError: The recorded facts are invalid.
    """
    provenance = bundle.provenance
    facts: TranslatorOptions = {}
    try:
        if provenance.get("source_text") is not None:
            facts["source_text"] = SourceText.from_dict(provenance["source_text"])
        elif bundle.family == "t5":
            facts["split"] = "none"  # a task for the whole text may be a part of it
        counts = provenance.get("data") or {}
        n_source, n_target = (int(counts.get(f"{side}_tokens", 0)) for side in ("source", "target"))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BundleError(f"{bundle.folder}: its record of the training text is damaged; train it again") from error
    if n_source > 0 and n_target > 0:
        facts["length_ratio"] = n_target / n_source
    return facts


def _max_source_tokens(bundle: Bundle) -> int:
    """Returns the length of the longest source seen in training, or the number of positions if it is unknown."""
    longest = int(bundle.provenance.get("max_source_tokens", _translation_model(bundle).src_pos.seq_len))
    return max(longest, MIN_SOURCE_LIMIT)
