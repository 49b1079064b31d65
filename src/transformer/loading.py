"""From a model folder to something that translates."""

from pathlib import Path

from transformer.bundle import Bundle, load_bundle
from transformer.decoding import GREEDY, Beam
from transformer.errors import BundleError
from transformer.transformer import Transformer
from transformer.translation import Translator

SHORTEST_LIMIT = 16
"""Lines of up to so many tokens are never split, however short the training text was."""


def load(path: Path | str, *, beam: Beam = GREEDY) -> Translator:
    """Loads a bundle, or the best model of a run folder.

    Args:
        path: the folder.
        beam: how it searches for translations, e.g. `Beam(4)`.

    Raises:
        BundleError: it is not a model, or incomplete, or changed since it was written.
    """
    return make_translator(load_bundle(Path(path)), beam=beam)


def make_translator(bundle: Bundle, *, beam: Beam = GREEDY) -> Translator:
    """The translator of a bundle.

    Raises:
        BundleError: the model is not one that translates.
    """
    if not isinstance(bundle.model, Transformer):
        raise BundleError(f"{bundle.folder}: a {bundle.family} model does not translate; give an encoder-decoder")
    longest = int(bundle.provenance.get("max_source_tokens", bundle.model.src_pos.seq_len))
    limit = max(longest, SHORTEST_LIMIT)
    return Translator(bundle.model, bundle.tokenizers, max_source_tokens=limit, beam=beam)
