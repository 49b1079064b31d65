"""Language codes at the start of texts, which choose the target language of a multilingual model."""

import io
from typing import Any

import pytest
import torch

from transformer.bundle import Bundle
from transformer.errors import ConfigError
from transformer.models import family
from transformer.pipelines.auto import make_translator
from transformer.pipelines.translation.scoring import score_pairs
from transformer.tokenizers.pair import TokenizerPair
from transformer.tokenizers.sentencepiece import SentencePieceTokenizer
from transformer.tokenizers.special_tokens import N_SPECIAL_TOKENS, UNK_ID

spm: Any = pytest.importorskip("sentencepiece")
UNKNOWN = "'>>fra<<' is not a language code of the model, which has >>deu<<, >>nld<<"
MISSING = "no language code at the start, which chooses the language of the translation; the model has >>deu<<, >>nld<<"


@pytest.fixture(scope="module")
def model() -> bytes:
    """Returns a SentencePiece model of letters."""
    output = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(["the cat is old", "a dog and cats"] * 20), model_writer=output, vocab_size=24,
        model_type="char", minloglevel=2,
    )  # fmt: skip
    return output.getvalue()


def tokenizer(model: bytes, *codes: str) -> SentencePieceTokenizer:
    processor = spm.SentencePieceProcessor(model_proto=model)
    pieces = [processor.id_to_piece(number) for number in range(processor.get_piece_size())]
    return SentencePieceTokenizer(model, [*codes, *(piece for piece in pieces if not piece.startswith("<"))])


@pytest.fixture(scope="module")
def bundle(model: bytes) -> Bundle:
    """Returns a random translation model with two target languages."""
    both = tokenizer(model, ">>deu<<", ">>nld<<")
    kind = family("transformer")
    sizes = {"src_vocab_size": both.vocab_size, "tgt_vocab_size": both.vocab_size, "src_seq_len": 32, "tgt_seq_len": 32}
    config = kind.config.model_validate({**kind.presets()["tiny"], **sizes})
    torch.manual_seed(1)
    return Bundle(config, kind.build(config), TokenizerPair(both, both))


def test_a_code_is_one_token_and_one_after_spaces_too(model: bytes) -> None:
    """Catches a code that is split into letters because the line is indented."""
    both = tokenizer(model, ">>deu<<", ">>nld<<")
    german = [N_SPECIAL_TOKENS, *both.encode("the cat")]
    for text in (">>deu<< the cat", "  >>deu<< the cat", "\t>>deu<<the cat"):
        assert both.encode(text) == german
        assert text.startswith(both.language_prefix(text))
        assert both.language_prefix(text).strip() == ">>deu<<"
    assert both.encode(">>fra<< the cat") == [UNK_ID, *both.encode("the cat")]
    assert both.language_prefix("the >>deu<< cat") == ""


def test_a_code_that_is_missing_or_unknown_is_told(model: bytes) -> None:
    """Catches a translation into another language than the one asked for, without a word about it."""
    both, none = tokenizer(model, ">>deu<<", ">>nld<<"), tokenizer(model)
    assert [both.language_warning(text) for text in (">>nld<< cat", " >>deu<< cat", ">>deu<<", "", " ")] == [""] * 5
    assert both.language_warning(">>fra<< cat") == UNKNOWN
    assert both.language_warning("cat") == both.language_warning("a >>deu<< cat") == MISSING
    assert none.language_warning("cat") == ""
    assert none.language_warning(">>deu<< cat") == "'>>deu<<' is not a language code of the model, which has none"
    assert tokenizer(model, ">>deu<<").language_warning("cat") == ""  # there is nothing to choose
    many = tokenizer(model, *(f">>{number}<<" for number in range(30)))
    assert many.language_warning("cat").endswith("the model has >>0<<, >>1<<, >>2<<, >>3<<, >>4<<, >>5<<, >>6<<, >>7<< "
                                                 "and 22 more")  # fmt: skip


def test_translations_and_scores_carry_the_warning(bundle: Bundle) -> None:
    """Catches a note that only one of the commands shows, and a code alone that is translated."""
    translator = make_translator(bundle)
    lines = [">>deu<< cat", ">>fra<< cat", "cat", "  >>deu<< cat", ">>deu<<", " >>nld<< ", ""]
    translations = translator.translations(lines)
    codes = [[flag for flag in translation.flags if "language code" in flag] for translation in translations]
    assert codes == [[], [UNKNOWN], [MISSING], [], [], [], []]
    assert f"  {translations[0].text}" == translations[3].text != "  "
    assert [translation.text.strip() for translation in translations[4:]] == ["", "", ""]
    scores = score_pairs(translator, [(">>deu<< cat", "dog"), (">>fra<< cat", "dog"), ("cat", "dog")])
    assert [score.flags for score in scores] == [(), (UNKNOWN,), (MISSING,)]


def test_a_code_is_no_text(bundle: Bundle) -> None:
    """Catches signs of a code that are named as unseen, and a number or address that is translated because of it."""
    translator = make_translator(bundle)
    lines = [">>deu<< the cat", " >>nld<< 7", ">>deu<< http://a.b/c", ">>fra<< 3,5 %", ">>deu<< 猫 cat"]
    whole, number, address, unknown, character = translator.translations(lines)
    assert (whole.unseen, character.unseen) == ((), ("猫",))
    assert [translation.text for translation in (number, address, unknown)] == [" 7", "http://a.b/c", "3,5 %"]
    assert [translation.is_copied for translation in (whole, number, address, unknown)] == [False, True, True, True]
    assert (number.flags, address.flags, unknown.flags) == ((), (), (UNKNOWN,))
    assert make_translator(bundle, task=">>deu<< ").translations(["7"])[0].text == "7"


def test_text_is_normalized_as_the_pieces_are(model: bytes) -> None:
    """Catches characters and words that the model does not see because its rules replace them."""
    both = tokenizer(model, ">>deu<<")
    for text in ("the cat", " caf\u0065\u0301\u3000½ ", "a \u200b b", ">>deu<< ｔhe cat", ""):
        assert both.encode(both.normalize(text)) == both.encode(text)
    assert both.normalize(">>deu<< ｔhe\u200b  cat ") == ">>deu<<the cat"


def test_a_task_may_be_a_code(bundle: Bundle) -> None:
    """Catches notes about lines whose code is given once for all, and an unknown code found out line by line."""
    translator = make_translator(bundle, task=">>deu<< ")
    assert all("language code" not in flag for flag in translator.translations(["cat"])[0].flags)
    assert translator.translations([""])[0].flags == ()
    with pytest.raises(ConfigError, match=r"task='>>fra<< ': '>>fra<<' is not a language code of the model, which has"):
        make_translator(bundle, task=">>fra<< ")
