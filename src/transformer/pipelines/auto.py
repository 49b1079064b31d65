"""From a model folder to something that does the model's job."""

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
from transformer.pipelines.device import choose_place
from transformer.pipelines.translation.terminology import Terminology
from transformer.pipelines.translation.translator import Translator
from transformer.transformer import Transformer

if TYPE_CHECKING:
    from transformer.models.language_model import LanguageModel
    from transformer.pipelines.classification import ImageClassifier, TextEncoder
    from transformer.pipelines.text_generation import Generator

SHORTEST_LIMIT = 16
"""Lines of up to so many tokens are never split, however short the training text was."""


def load(
    path: Path | str,
    *,
    search: Search = GREEDY,
    lexicon: Terminology | None = None,
    ensemble: Sequence[Path | str] = (),
    precision: str = "auto",
    workers: int | None = None,
    shortlist: Path | str | None = None,
    deterministic: bool = False,
    device: str = "auto",
) -> Any:
    """Loads a bundle, the best model of a run folder, or a published folder, for its job.

    On a CPU the weights are packed for speed; `load_bundle` gives a model that can be trained on.

    Returns:
        A `Translator`, a `Generator`, a `TextEncoder` or an `ImageClassifier`, as the model's family asks for.

    Args:
        path: the folder.
        search: how it searches for translations, e.g. `Search(beam=4)`.
        lexicon: what translations must hold and must not hold.
        ensemble: further models, of the same target tokenizer, that translate together with it.
        precision: "float32", "bf16" or "int8", of the weights; "auto" is the fastest here, see `choose_place`.
        workers: most processes that translate at a time on a CPU; as many as torch has threads, up to 8, if not given.
        shortlist: file of `transformer shortlist`, for speed: the tokens that a translation may hold, given its source.
        deterministic: see `Translator`.
        device: "cpu" or "cuda"; "auto" is a GPU where there is one, if the model translates and nothing is asked for
            that CPUs alone do (int8, a shortlist, several workers). Models that do not translate use the CPU.

    Raises:
        ConfigError: there is no such precision or device, or no worker; or a shortlist and a lexicon that requires
            something; or what is for a CPU, on a GPU.
        DataError: the shortlist is none, or that of other tokenizers.
        BundleError: it is not a model, or incomplete, or changed since it was written; or models whose target
            tokenizers differ.
    """
    if workers is not None and workers < 1:
        raise ConfigError(f"workers={workers} is below 1; choose 1, or more to translate in several processes")
    bundle = read_model(Path(path), choose_precision(precision))
    if family(bundle.family).kind != "encoder-decoder":
        if lexicon not in (None, Terminology()) or ensemble or shortlist or deterministic:
            raise ConfigError(
                f"a {bundle.family} model does not translate, which lexicon, ensemble, shortlist and deterministic are "
                f"for; `transformer info {path}` tells what it is"
            )
        if device == "cuda":
            raise ConfigError(f"device='cuda', but a {bundle.family} model computes on the CPU; leave it out")
        return _of_its_kind(bundle, precision, search)
    for_cpus = precision == "int8" or bundle.precision != "float32" or shortlist is not None or (workers or 1) > 1
    place = choose_place("cpu" if device == "auto" and for_cpus else device, precision)
    if place.is_gpu and (shortlist is not None or (workers or 1) > 1):
        raise ConfigError("shortlist and workers are for speed on a CPU; leave them out, or choose device='cpu'")
    others = [read_model(Path(each), place.precision) for each in ensemble]
    for other in others:
        if other.tokenizers.target.to_json() != bundle.tokenizers.target.to_json():
            raise BundleError(
                f"{other.folder} has another target tokenizer than {bundle.folder}; train them with the same one"
            )
    for each in (bundle, *others):
        place.put(each)
    members = [make_translator(other) for other in others]
    own = bundle.tokenizers.source
    sources = (member.tokenizers.source for member in members)
    sources = (own if source.to_json() == own.to_json() else source for source in sources)
    models = list(zip((member.model for member in members), sources, strict=True))
    if shortlist is not None:
        check_special_token_ids(bundle.tokenizers)
    listed = None if shortlist is None else load_shortlist(Path(shortlist), bundle.tokenizers)
    translator = make_translator(bundle, search=search, lexicon=lexicon, ensemble=models, shortlist=listed)
    translator.deterministic = deterministic
    translator.workers = 1 if place.is_gpu else default_workers() if workers is None else workers
    translator.description = place.described(translator.workers)
    translator.max_source_tokens = min(each.max_source_tokens for each in (translator, *members))
    return translator


def load_translator(path: Path | str, **options: Any) -> Translator:
    """As `load`, of a model that translates.

    Raises:
        BundleError: it does something else.
    """
    found = load(path, **options)
    if not isinstance(found, Translator):
        raise BundleError(f"{path} does not translate; see `transformer info {path}` for what it is")
    return found


def read_model(path: Path, packed_in: Precision) -> Bundle:
    """A bundle, or a published folder as one."""
    if (path / "config.json").is_file() and not (path / "manifest.json").exists():
        from transformer.bundle.huggingface import read_published  # needed by few

        return read_published(path)
    return load_bundle(path, packed_in=packed_in)


def _of_its_kind(bundle: Bundle, precision: str, search: Search) -> "Generator | TextEncoder | ImageClassifier":
    """What does the job of a model that does not translate.

    Where `precision` is "auto", an encoder of texts computes in bf16, as int8 moves vectors by more: their least
    cosine to those of float32 is 0.996, in place of 0.99998 (MiniLM, `benchmarks/families/throughput.py`).
    """
    from transformer.pipelines.classification import ImageClassifier, TextEncoder
    from transformer.pipelines.text_generation import (
        Generator,  # what a translator does without does not slow its start
    )

    kind = family(bundle.family).kind
    place = choose_place("cpu", precision, "bf16" if kind == "encoder" else "int8")
    place.put(bundle)
    if kind == "language model":
        found = Generator(cast("LanguageModel", bundle.model), bundle.tokenizers.source, search=search)
    elif kind == "encoder":
        found = TextEncoder(bundle.model, bundle.tokenizers.source, bundle.config)
    else:
        found = ImageClassifier(bundle.model, bundle.config)
    found.description = place.described(1)
    return found


def make_translator(bundle: Bundle, **options: Any) -> Translator:
    """The translator of a bundle; options as of `Translator`.

    Raises:
        BundleError: the model is not one that translates.
    """
    if not isinstance(bundle.model, Transformer):
        raise BundleError(f"{bundle.folder}: a {bundle.family} model does not translate; give an encoder-decoder")
    longest = int(bundle.provenance.get("max_source_tokens", bundle.model.src_pos.seq_len))
    return Translator(bundle.model, bundle.tokenizers, max_source_tokens=max(longest, SHORTEST_LIMIT), **options)
