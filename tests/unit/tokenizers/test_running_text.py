"""Running text that is encoded in passages has the tokens of the whole."""

import io

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from substitution import substitute
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.huggingface import HuggingFaceTokenizer
from transformer.tokenizers.pair import train_tokenizer
from transformer.tokenizers.running_text import MAX_LINES, MIN_LINES, encode_lines, split_chunks
from transformer.tokenizers.special_tokens import SpecialTokenIds

VERSE = "To be, or not to be:\n\n  that is the question \u2028here\n\t\n\n\n   Whether 'tis\nin the mind \n to suffer\n"
TEXT = VERSE * (3 * MIN_LINES)
NONE = SpecialTokenIds(None, None, None, None)


def gpt_like() -> Tokenizer:
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    library.train_from_iterator([VERSE], trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet))
    return library


def llama_like() -> Tokenizer:
    """A space is put before the text, once."""
    library = Tokenizer(models.BPE())
    library.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    library.pre_tokenizer = pre_tokenizers.Split("\n", "isolated")
    library.train_from_iterator([VERSE], trainers.BpeTrainer(vocab_size=80))
    return library


def t5_like() -> Tokenizer:
    """A line end is a space like others, and belongs to the word after it."""
    library = Tokenizer(models.Unigram([("<unk>", 0.0)], unk_id=0))
    library.normalizer = normalizers.Replace(Regex(r"\s+"), " ")
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=60, unk_token="<unk>", special_tokens=["<unk>"])
    library.train_from_iterator([VERSE * 9], trainer)
    return library


@pytest.mark.parametrize("make", [gpt_like, llama_like, t5_like])
def test_a_published_tokenizer_reads_passages_as_the_whole(make: type[Tokenizer]) -> None:
    """Catches a space before every passage, a line end that is lost at a cut, and spaces that are cut in two."""
    library = make()
    expected = library.encode(TEXT, add_special_tokens=False).ids
    tokenizer = HuggingFaceTokenizer(library.to_str(), NONE)
    parts = list(encode_lines(tokenizer, io.StringIO(TEXT)))
    assert [token for _, ids in parts for token in ids] == expected
    assert sum(lines for lines, _ in parts) == TEXT.count("\n")
    assert sum(1 for _ in split_chunks(io.StringIO(TEXT))) > 3


@pytest.mark.parametrize("make", [gpt_like, llama_like, t5_like])
def test_texts_of_paragraphs_are_read_as_the_whole(make: type[Tokenizer], monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches line ends that are lost between paragraphs, and in files of which every line begins with a space."""
    substitute(monkeypatch, "running_text.MIN_LINES", 2)
    library = make()
    tokenizer = HuggingFaceTokenizer(library.to_str(), NONE)
    for text in ("To be\n" + "not to be:\n\n" * 50, "mind \n\n\n" * 50, "\n\n  suffer\n" * 50, "in\n \n\t\nin\n" * 50):
        expected = library.encode(text, add_special_tokens=False).ids
        assert [token for _, ids in encode_lines(tokenizer, io.StringIO(text)) for token in ids] == expected, text[:20]


@pytest.mark.parametrize("kind", ["bpe", "bytes", "characters"])
def test_a_tokenizer_of_ours_does_too(kind: str) -> None:
    """Catches tokens that depend on where a text is cut."""
    tokenizer = train_tokenizer([VERSE], TokenizerConfig(kind=kind, vocab_size=280))
    actual = [token for _, ids in encode_lines(tokenizer, io.StringIO(TEXT)) for token in ids]
    assert actual == tokenizer.encode_running([TEXT])[0]


def test_a_text_without_a_good_place_is_cut_anyway() -> None:
    """Catches a file of empty lines that is held in memory as a whole."""
    chunks = list(split_chunks("\n" * (MAX_LINES + 10)))
    assert [chunk.lines for chunk in chunks] == [MAX_LINES, 10]
    assert (chunks[0].before, chunks[0].after, chunks[1].before, chunks[1].after) == ("", "\n", "\n" * MIN_LINES, "")
    assert not list(split_chunks([]))
