"""Fine-tuning on a script that the tokenizer of the pretrained model hardly knows."""

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers

from samples import digit_pairs, tiny_recipe, write_lines
from transformer.bundle import load_bundle
from transformer.errors import ConfigError
from transformer.run.fine_tuning import check_script
from transformer.run.plan import prepare_data
from transformer.run.recipe import Recipe, parse_recipe
from transformer.run.train import train
from transformer.tokenizers.byte_pair import BytePairTokenizer
from transformer.tokenizers.character import CharacterTokenizer
from transformer.tokenizers.config import NormalizationConfig, TokenizerConfig
from transformer.tokenizers.huggingface import HuggingFaceTokenizer
from transformer.tokenizers.special_tokens import UNK_ID, SpecialTokenIds

GREEK = str.maketrans("0123456789", "αβγδεζηθικ")


def fine_tuned(folder: Path, start: Path, n_greek: int) -> Recipe:
    """Returns a recipe for pairs of which some have Greek targets."""
    pairs = digit_pairs(80)
    pairs[:n_greek] = [(source, target.translate(GREEK)) for source, target in pairs[:n_greek]]
    sides = [write_lines(folder / str(n), [pair[n] for pair in pairs]) for n in (0, 1)]
    sections = {**tiny_recipe((sides[0], sides[1])), "model": {}, "tokenizer": {}}
    training = {"max_steps": 1, "batch_tokens": 256, "threads": 1, "start_from": str(start)}
    return parse_recipe({key: value for key, value in {**sections, "training": training}.items() if value})


@pytest.mark.parametrize(("n_greek", "share"), [(0, None), (35, "4"), (80, "6")])
def test_the_share_of_unknown_text_is_told_or_refused(
    tiny_run: Path, tmp_path: Path, n_greek: int, share: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches a target script of single bytes that is hidden by the known source, and one that is refused too early."""
    recipe = fine_tuned(tmp_path, tiny_run, n_greek)
    notes = prepare_data(recipe, tmp_path / "prepared", quiet=True).notes
    warnings = [note for note in notes if "hardly knows" in note]
    assert len(warnings) == (share is not None)
    if share is not None:
        assert f"hardly knows the script of the target: {share}" in warnings[0]
    if share == "6":
        with pytest.raises(ConfigError, match=r"parts of characters or unknown; .* --allow-changed script"):
            train(recipe, tmp_path / "run", quiet=True)
        assert not (tmp_path / "run" / "checkpoints").exists()
    assert train(recipe, tmp_path / "run", allow_changed=["script"]).progress.step == 1
    assert capsys.readouterr().err.count("hardly knows the script of the target") == len(warnings)


def test_shares_beside_the_limits(tiny_run: Path) -> None:
    """Catches a limit that is refused itself, and sides that are mixed."""
    bundle = load_bundle(tiny_run)
    assert not check_script({"source": 0.2, "target": 0.0}, bundle, ())
    (note,) = check_script({"source": 0.21, "target": 0.0}, bundle, ())
    assert note.startswith("warning: the tokenizer of")
    assert "script of the source: 21% of the tokens" in note
    assert len(check_script({"source": 0.6, "target": 0.6}, bundle, ())) == 2
    with pytest.raises(ConfigError, match="script of the text: 61% of the tokens"):
        check_script({"text": 0.61}, bundle, ["training.seed"])
    assert check_script({"text": 0.61}, bundle, ["script"])


def test_fallback_tokens_of_each_kind_of_tokenizer() -> None:
    """Catches a byte that counts as known text, and a known letter or an ASCII byte that does not."""

    def is_fallback(tokenizer: BytePairTokenizer | CharacterTokenizer | HuggingFaceTokenizer, text: str) -> list[bool]:
        return tokenizer.is_fallback()[tokenizer.encode(text)].tolist()

    merged = BytePairTokenizer.train(["ü ü ü"] * 9, TokenizerConfig(vocab_size=300))
    assert is_fallback(merged, "aü") == [False, False, False]
    assert is_fallback(merged, "äü") == [False, True, True, False]
    assert not any(is_fallback(BytePairTokenizer.train(["a"], TokenizerConfig(kind="bytes")), "äü"))
    characters = CharacterTokenizer("ab", NormalizationConfig())
    assert is_fallback(characters, "acb") == [False, True, False]
    none = SpecialTokenIds(None, None, None, None)
    library = Library(models.BPE({**{f"<0x{n:02X}>": n for n in range(256)}, "a": 256}, [], byte_fallback=True))
    assert is_fallback(HuggingFaceTokenizer(library.to_str(), none), "aéz") == [False, True, True, False]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: n for n, piece in enumerate([*alphabet, "Ã©", "[X]"])}
    library = Library(models.BPE(vocabulary, [("Ã", "©")]))
    library.pre_tokenizer, library.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    assert is_fallback(HuggingFaceTokenizer(library.to_str(), none), "aéü") == [False, False, True, True]
    words = Library(models.WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = HuggingFaceTokenizer(words.to_str(), SpecialTokenIds(None, None, None, 0))
    assert is_fallback(tokenizer, "a b") == [False, True]
    assert np.flatnonzero(characters.is_fallback()).tolist() == [UNK_ID]
