"""Tokenizers of published folders."""

import json
from copy import deepcopy

import pytest

from transformer.errors import BundleError, DataError
from transformer.tokenizers.base import Tokenizer
from transformer.tokenizers.huggingface import (
    HuggingFaceTokenizer,
    read_special_token_ids,
    read_tokenizer,
    write_tokenizer,
)
from transformer.tokenizers.special_tokens import DEFAULT_SPECIAL_TOKENS, SpecialTokenIds


@pytest.mark.parametrize(
    ("more", "message"),
    [({"tokenizer_config.json": b'{"tokenizer_class": "BertJapaneseTokenizer"}'}, "tokenizer_class='BertJapanese"),
     ({"tokenizer_config.json": b'{"word_tokenizer_type": "mecab"}'}, "word_tokenizer_type='mecab' in"),
     ({"added_tokens.json": b'{"<new>": 9}'}, "'<new>' would be token 5, but is 9 in")],
)  # fmt: skip
def test_a_list_of_words_is_read_as_berts_alone(more: dict[str, bytes], message: str) -> None:
    """Catches vocabularies of other tokenizers, and added tokens that get other ids."""
    files = {"vocab.txt": b"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n"}
    distilled = {"tokenizer_config.json": b'{"tokenizer_class": "DistilBertTokenizer"}'}
    for read in ({}, distilled):
        assert read_tokenizer(files | read, DEFAULT_SPECIAL_TOKENS).encode("A") == [4]
    from_windows = {"vocab.txt": files["vocab.txt"].replace(b"\n", b"\r\n")}
    assert read_tokenizer(from_windows, DEFAULT_SPECIAL_TOKENS).encode("A") == [4]
    with pytest.raises(BundleError, match=message):
        read_tokenizer(files | more, DEFAULT_SPECIAL_TOKENS)


def test_typed_control_tokens_of_a_unigram_vocabulary_are_unknown_text() -> None:
    """Catches `</s>` typed in a text that ends it: Unigram models match control tokens in texts."""
    from tokenizers import Tokenizer as Library
    from tokenizers import models, pre_tokenizers

    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁a", -1.0), ("▁", -2.0), ("b", -2.0)]
    library = Library(models.Unigram(pieces, unk_id=2))
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    library.add_special_tokens(["<pad>", "</s>", "<unk>"])
    tokenizer = HuggingFaceTokenizer(library.to_str(), SpecialTokenIds(0, 0, 1, 2))
    assert tokenizer.encode("a b") == [3, 4, 5]
    for text in ("a </s> b", "<pad>", "a</s>"):
        assert not {0, 1} & set(tokenizer.encode(text))


def with_named_tokens() -> HuggingFaceTokenizer:
    """A Unigram tokenizer with the special token `<2de>`, which full-width letters name too after normalization."""
    from tokenizers import Tokenizer as Library
    from tokenizers import models, normalizers, pre_tokenizers

    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁a", -1.0), ("▁", -2.0), ("b", -2.0)]
    library = Library(models.Unigram(pieces, unk_id=2))
    library.normalizer, library.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace()
    library.add_special_tokens(["<pad>", "</s>", "<unk>", "<2de>"])
    return HuggingFaceTokenizer(library.to_str(), SpecialTokenIds(0, 0, 1, 2))


@pytest.mark.parametrize("text", ["<2de> a b", "<2de>a", "a <2de> b", "<2de><2de>", "a</s>", "ab", ""])
def test_special_tokens_are_read_as_transformers_reads_them(text: str) -> None:
    """Catches other spaces beside a special token than in training, and a choice that changes the original."""
    from tokenizers import Tokenizer as Library
    from transformers import PreTrainedTokenizerFast

    tokenizer = with_named_tokens()
    reference = PreTrainedTokenizerFast(tokenizer_object=Library.from_str(tokenizer.content))
    plain = tokenizer.encode(text)
    reading = deepcopy(tokenizer.reading_special_tokens())
    assert reading.encode(text) == reading.encode_running([text])[0] == reference.encode(text)
    assert not {0, 1, 6} & set(plain)
    assert tokenizer.encode(text) == deepcopy(tokenizer).encode(text) == plain
    assert reading.fingerprint() != tokenizer.fingerprint()


def test_special_tokens_of_a_task_are_read_there_alone(caplog: pytest.LogCaptureFixture) -> None:
    """Catches a token of the text of a stranger, by its name or in letters that are normalized to it."""
    tokenizer = with_named_tokens()
    task = tokenizer.reading_task("<2de> ")
    reading = tokenizer.reading_special_tokens()
    assert task.encode("<2de> a b") == reading.encode("<2de> a b")
    for stranger in ("a <2de> b", "a \N{FULLWIDTH LESS-THAN SIGN}2de> b", "</s>"):
        token_ids = task.encode(f"<2de> {stranger}")
        assert token_ids[0] == 6
        assert not {0, 1, 6} & set(token_ids[1:])
    assert not {0, 1, 6} & set(task.encode("a <2de>"))
    assert tokenizer.reading_task("a: ").encode("a: <2de>") == tokenizer.encode("a: <2de>")
    assert "'<2de>' is read as characters" in task.special_token_warning("a <2de>")
    assert not reading.special_token_warning("a <2de>")
    noted = caplog.text
    assert noted.count("in a text, '<2de>' is read as characters, not as the special token") == 1


def test_a_tokenizer_without_its_unknown_token_is_named() -> None:
    """Catches a traceback of the library during a translation."""
    from tokenizers import Tokenizer as Library
    from tokenizers import models

    library = Library(models.WordPiece({"a": 0, "b": 1}, unk_token="[UNK]"))
    tokenizer = HuggingFaceTokenizer(library.to_str(), SpecialTokenIds(0, 0, 1, None))
    with pytest.raises(DataError, match="the tokenizer lacks a token for this text"):
        tokenizer.encode("never seen")


class Strange(Tokenizer):
    """A tokenizer that no published format supports."""

    kind = "strange"
    vocab_size = 4
    encode_batch = decode = fallback_bytes = to_json = _printable_piece = None  # pyright: ignore[reportAssignmentType]


def test_tokenizers_that_are_none() -> None:
    """Catches a folder without a tokenizer, a damaged one, and one that cannot be written."""
    with pytest.raises(BundleError, match=r"there is no tokenizer\.json, nor vocab\.txt"):
        read_special_token_ids({}, {})
    with pytest.raises(BundleError, match=r"there is spiece\.model, but no tokenizer\.json.* AutoTokenizer"):
        read_special_token_ids({"spiece.model": b"", "config.json": b"{}"}, {})
    with pytest.raises(BundleError, match=r"lacks \[UNK\], \[CLS\] or \[SEP\]"):
        read_tokenizer({"vocab.txt": b"a\nb\n"}, DEFAULT_SPECIAL_TOKENS)
    with pytest.raises(DataError, match=r"not a tokenizer\.json"):
        HuggingFaceTokenizer("{}", DEFAULT_SPECIAL_TOKENS)
    with pytest.raises(DataError, match=r"not a tokenizer\.json"):
        read_special_token_ids({"tokenizer.json": b"{}"}, {})
    with pytest.raises(BundleError, match="is damaged"):
        read_tokenizer({"vocab.json": b'{"a": 0}', "merges.txt": b"a b\n"}, DEFAULT_SPECIAL_TOKENS)
    with pytest.raises(DataError, match="not a tokenizer of this package"):
        HuggingFaceTokenizer.from_json(json.dumps({"published": 3}))
    from transformer.tokenizers.config import NormalizationConfig

    with pytest.raises(BundleError, match="a Strange has no published form"):
        write_tokenizer(Strange(NormalizationConfig()), "X")
