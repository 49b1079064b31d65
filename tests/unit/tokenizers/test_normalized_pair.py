"""Normalization by tokenizers: each side its own, in one vocabulary."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer.text.normalization import normalize_spaces, remove_invisible
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.huggingface import write_tokenizer
from transformer.tokenizers.pair import TokenizerPair

LINES = ["Je  veux\u202f du pain\xa0!", "the\xad cat"] * 5


def pair(**options: object) -> TokenizerPair:
    config = TokenizerConfig.model_validate({"vocab_size": 300, "normalize": True, **options})
    return TokenizerPair.train(lambda: LINES, lambda: LINES, config)


@pytest.mark.parametrize("options", [{}, {"joint": False}, {"kind": "characters", "vocab_size": None}])
def test_sides_are_normalized_differently(options: dict[str, object]) -> None:
    """Catches a side that is normalized as the other, and files that forget how."""
    trained = pair(**options)
    for tokenizers in (trained, TokenizerPair.from_files(trained.to_files())):
        assert tokenizers.is_joint == ("joint" not in options)
        source, target = tokenizers.source, tokenizers.target
        for line in LINES:
            assert source.decode(source.encode(line)) == normalize_spaces(line)
            assert target.decode(target.encode(line)) == remove_invisible(line)


def test_without_normalization_nothing_changes() -> None:
    """Catches a tokenizer of an earlier version that normalizes, or whose file changes when it is written again."""
    plain = pair(normalize=False)
    assert plain.source is plain.target
    assert [plain.source.decode(plain.source.encode(line)) for line in LINES] == LINES
    (content,) = plain.to_files().values()
    assert json.loads(content)["normalization"] == {"lowercase": False, "unicode": "none"}


@given(
    st.text(
        alphabet=st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from(" \u200b\xad\xa0e\u0301ا\u200c"))
    )
)
def test_an_exported_tokenizer_normalizes_alike(text: str) -> None:
    """Catches patterns that the tokenizers library reads differently from Python."""
    import tokenizers

    assert EXPORTED.normalizer is not None
    assert EXPORTED.normalizer.normalize_str(text).removeprefix(" ") == normalize_spaces(text)
    assert isinstance(EXPORTED, tokenizers.Tokenizer)


def exported() -> object:
    import tokenizers

    return tokenizers.Tokenizer.from_str(write_tokenizer(pair().source, "$A [EOS]")["tokenizer.json"].decode())


EXPORTED = exported()
