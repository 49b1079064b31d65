"""Loads a model folder as the pipeline for the model's task."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from transformer.bundle import Bundle, load_bundle
from transformer.decoding import GREEDY, Search, default_workers
from transformer.decoding.shortlist_training import check_special_token_ids, load_shortlist
from transformer.errors import BundleError, ConfigError
from transformer.inference.cpu import choose_precision
from transformer.kernels import Precision
from transformer.models import family
from transformer.pipelines.device import choose_device_plan
from transformer.pipelines.translation.terminology import Terminology, renamed_lexicon
from transformer.pipelines.translation.translator import Translator
from transformer.transformer import Transformer

if TYPE_CHECKING:
    from transformer.models.language_model import LanguageModel
    from transformer.pipelines.classification import ImageClassifier, TextEncoder
    from transformer.pipelines.text_generation import Generator

MIN_SOURCE_LIMIT = 16
"""Lines of up to this many tokens are never split, however short the training text was."""


def load(
    path: Path | str,
    *,
    search: Search = GREEDY,
    terminology: Terminology | None = None,
    ensemble: Sequence[Path | str] = (),
    precision: str = "auto",
    workers: int | None = None,
    shortlist: Path | str | None = None,
    deterministic: bool = False,
    device: str = "auto",
    lexicon: Terminology | None = None,
) -> Any:
    """Loads a bundle, the best model of a run folder, or a published folder, as the pipeline for its task.

    On a CPU the weights are packed for speed. Use `load_bundle` for a model that can be trained further.

    Returns:
        A `Translator`, a `Generator`, a `TextEncoder` or an `ImageClassifier`, depending on the model's family.

    Args:
        path: Folder of the model.
        search: Options of the search for translations, e.g. `Search(beam=4)`.
        terminology: Phrases that translations must contain and must not contain.
        ensemble: Further models with the same target tokenizer. Their predictions are averaged with the first model's.
        precision: Precision of the weights: "float32", "bf16" or "int8". "auto" is the fastest on this machine, see
            `choose_device_plan`.
        workers: Maximum number of processes that translate in parallel on a CPU. The default is one per torch thread,
            up to 8.
        shortlist: File written by `transformer shortlist`. It restricts each translation to likely target tokens given
            its source, for speed.
        deterministic: Whether results are independent of the batch, see `Translator`.
        device: "cpu", "cuda" or "auto". "auto" is a GPU if there is one, the model translates, and no option requires
            a CPU (int8, a shortlist, several workers). Models that do not translate use the CPU.
        lexicon: Deprecated name of `terminology`.

    Raises:
        ConfigError: The precision or the device is unknown, or `workers` is below 1; a shortlist is combined with a
            terminology that requires phrases; or an option for CPUs is combined with a GPU.
        DataError: The shortlist file is invalid, or belongs to other tokenizers.
        BundleError: The folder is not a model, is incomplete, or has changed since it was written; or the target
            tokenizers of the models differ.
    """
    terminology = renamed_lexicon(terminology, lexicon)
    if workers is not None and workers < 1:
        raise ConfigError(f"workers={workers} is below 1; choose 1, or more to translate in several processes")
    bundle = read_model(Path(path), choose_precision(precision))
    if family(bundle.family).kind != "encoder-decoder":
        if terminology not in (None, Terminology()) or ensemble or shortlist or deterministic:
            raise ConfigError(
                f"a {bundle.family} model does not translate; leave out terminology, ensemble, shortlist and "
                f"deterministic, and see `transformer info {path}`"
            )
        if device == "cuda":
            raise ConfigError(f"device='cuda', but a {bundle.family} model only runs on the CPU; leave it out")
        return _load_pipeline(bundle, precision, search)
    needs_cpu = precision == "int8" or bundle.precision != "float32" or shortlist is not None or (workers or 1) > 1
    plan = choose_device_plan("cpu" if device == "auto" and needs_cpu else device, precision)
    if plan.is_gpu and (shortlist is not None or (workers or 1) > 1):
        raise ConfigError("shortlist and workers only apply to CPUs; leave them out, or choose device='cpu'")
    other_bundles = [read_model(Path(folder), plan.precision) for folder in ensemble]
    for other in other_bundles:
        if other.tokenizers.target.to_json() != bundle.tokenizers.target.to_json():
            raise BundleError(
                f"{other.folder} and {bundle.folder} have different target tokenizers; train the models with the "
                "same one"
            )
    for member_bundle in (bundle, *other_bundles):
        plan.prepare(member_bundle)
    others = [make_translator(other) for other in other_bundles]
    first_source = bundle.tokenizers.source
    sources = (other.tokenizers.source for other in others)
    sources = (first_source if source.to_json() == first_source.to_json() else source for source in sources)
    models = list(zip((other.model for other in others), sources, strict=True))
    if shortlist is not None:
        check_special_token_ids(bundle.tokenizers)
    loaded_shortlist = None if shortlist is None else load_shortlist(Path(shortlist), bundle.tokenizers)
    translator = make_translator(
        bundle, search=search, terminology=terminology, ensemble=models, shortlist=loaded_shortlist
    )
    translator.deterministic = deterministic
    translator.workers = 1 if plan.is_gpu else default_workers() if workers is None else workers
    translator.description = plan.describe(translator.workers)
    translator.max_source_tokens = min(member.max_source_tokens for member in (translator, *others))
    return translator


def load_translator(path: Path | str, **options: Any) -> Translator:
    """Same as `load`, but only for models that translate.

    Raises:
        BundleError: The model does not translate.
    """
    pipeline = load(path, **options)
    if not isinstance(pipeline, Translator):
        raise BundleError(f"{path} does not translate; see `transformer info {path}` for its task")
    return pipeline


def read_model(path: Path, packed_in: Precision) -> Bundle:
    """Reads a bundle, or converts a published folder to one."""
    if (path / "config.json").is_file() and not (path / "manifest.json").exists():
        from transformer.bundle.huggingface import read_published  # rarely needed

        return read_published(path)
    return load_bundle(path, packed_in=packed_in)


def _load_pipeline(bundle: Bundle, precision: str, search: Search) -> "Generator | TextEncoder | ImageClassifier":
    """Returns the pipeline of a model that does not translate.

    With `precision="auto"`, a text encoder computes in bf16, because int8 changes its vectors more. The lowest cosine
    to the float32 vectors is 0.996 in int8 and 0.99998 in bf16 (MiniLM, `benchmarks/families/throughput.py`).
    """
    # Imported here so that they do not slow down the start of a translator.
    from transformer.pipelines.classification import ImageClassifier, TextEncoder
    from transformer.pipelines.text_generation import Generator

    kind = family(bundle.family).kind
    plan = choose_device_plan("cpu", precision, "bf16" if kind == "encoder" else "int8")
    plan.prepare(bundle)
    if kind == "language model":
        pipeline = Generator(cast("LanguageModel", bundle.model), bundle.tokenizers.source, search=search)
    elif kind == "encoder":
        pipeline = TextEncoder(bundle.model, bundle.tokenizers.source, bundle.config)
    else:
        pipeline = ImageClassifier(bundle.model, bundle.config)
    pipeline.description = plan.describe(1)
    return pipeline


def make_translator(bundle: Bundle, **options: Any) -> Translator:
    """Creates the translator of a bundle; the options are those of `Translator`.

    Raises:
        BundleError: The model does not translate.
    """
    if not isinstance(bundle.model, Transformer):
        raise BundleError(f"{bundle.folder}: a {bundle.family} model does not translate; give an encoder-decoder")
    longest = int(bundle.provenance.get("max_source_tokens", bundle.model.src_pos.seq_len))
    return Translator(bundle.model, bundle.tokenizers, max_source_tokens=max(longest, MIN_SOURCE_LIMIT), **options)
