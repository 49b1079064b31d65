"""The tokenizers of a translator: one for each side, or a joint one."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from transformer.tokenizers.base import Tokenizer
from transformer.tokenizers.byte_pair import BytePairTokenizer
from transformer.tokenizers.character import CharacterTokenizer
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.huggingface import HuggingFaceTokenizer
from transformer.tokenizers.new_pieces import extend_tokenizer
from transformer.tokenizers.sentencepiece import SentencePieceTokenizer

JOINT_FILE = "tokenizer.json"
SIDE_FILES = ("tokenizer.source.json", "tokenizer.target.json")


@dataclass(frozen=True)
class TokenizerPair:
    """The source and target tokenizers; joint ones differ at most in the normalization of the text."""

    source: Tokenizer
    target: Tokenizer

    @classmethod
    def train(
        cls, sources: Callable[[], Iterable[str]], targets: Callable[[], Iterable[str]], settings: TokenizerConfig
    ) -> "TokenizerPair":
        """Trains a joint tokenizer on both texts, or one tokenizer on each.

        Raises:
            DataError: a text is empty.
        """
        if not settings.joint:
            return cls(train_tokenizer(sources(), settings), train_tokenizer(targets(), settings, is_target=True))
        normalized = map(settings.normalization.apply, sources())
        joint = train_tokenizer(chain(normalized, targets()), settings, is_target=True)
        joint.is_target = False
        return cls.joint(joint)

    @classmethod
    def joint(cls, tokenizer: Tokenizer) -> "TokenizerPair":
        """Returns the pair of a tokenizer that both sides share."""
        return cls(tokenizer, tokenizer.for_target())

    def with_tags(self, languages: Sequence[str]) -> "TokenizerPair":
        """Returns the tokenizers with a tag of each target language, see `Tokenizer.with_tags`.

        Raises:
            ConfigError: The tokenizers cannot have tags.
        """
        if self.is_joint:
            return TokenizerPair.joint(self.source.with_tags(languages))
        return TokenizerPair(self.source.with_tags(languages), self.target)

    def extended(
        self, sources: Callable[[], Iterable[str]], targets: Callable[[], Iterable[str]], settings: TokenizerConfig
    ) -> "TokenizerPair":
        """Returns the tokenizers with `settings.added_pieces` learned from text, see `extend_tokenizer`.

        A side without text keeps its tokenizer, unless both share one.

        Raises:
            ConfigError: A tokenizer is not one of byte pairs.
            DataError: Both texts are empty.
        """
        n_pieces = settings.added_pieces or 0
        if self.is_joint:
            joint = extend_tokenizer(self.source, chain(sources(), targets()), n_pieces, settings.min_frequency)
            return TokenizerPair.joint(joint)
        sides = [
            extend_tokenizer(tokenizer, texts(), n_pieces, settings.min_frequency) if any(texts()) else tokenizer
            for tokenizer, texts in ((self.source, sources), (self.target, targets))
        ]
        return TokenizerPair(*sides)

    @property
    def target_languages(self) -> tuple[str, ...]:
        """The languages that a tag before the source selects; none for most models."""
        return self.source.target_languages

    def to_language(self, language: str) -> "TokenizerPair":
        """Returns the tokenizers whose sources begin with the tag of a target language, see `Tokenizer.to_language`."""
        source = self.source.to_language(language)
        return self if source is self.source else replace(self, source=source)

    def reading_special_tokens(self) -> "TokenizerPair":
        """Returns the tokenizers of both sides that read the names of special tokens, see `Tokenizer`.

        Raises:
            ConfigError: A tokenizer has no such names.
        """
        source = self.source.reading_special_tokens()
        return TokenizerPair(source, source if self.target is self.source else self.target.reading_special_tokens())

    def __str__(self) -> str:
        """Describes kind and size."""
        if self.is_joint:
            return f"{self.source.kind}, {self.source.vocab_size:,} tokens"
        sizes = f"{self.source.vocab_size:,} source, {self.target.vocab_size:,} target tokens"
        return f"{self.source.kind}, one a side: {sizes}"

    @property
    def is_joint(self) -> bool:
        """Whether both sides share one vocabulary."""
        return self.source is self.target or self.source is self.target.twin

    def to_files(self) -> dict[str, str]:
        """Returns the names and contents of the files to store."""
        if self.is_joint:
            return {JOINT_FILE: self.source.to_json()}
        return dict(zip(SIDE_FILES, (self.source.to_json(), self.target.to_json()), strict=True))

    @classmethod
    def from_files(cls, files: dict[str, str]) -> "TokenizerPair":
        """Creates the pair from the files of `to_files`.

        Raises:
            DataError: the content of a file is not a tokenizer.
            KeyError: a file is missing.
        """
        if JOINT_FILE in files:
            return cls.joint(_read(files[JOINT_FILE]))
        source, target = (_read(files[name]) for name in SIDE_FILES)
        target.is_target = True
        return cls(source, target)


def train_tokenizer(texts: Iterable[str], settings: TokenizerConfig, *, is_target: bool = False) -> Tokenizer:
    """Trains a tokenizer of the kind that the settings name.

    Args:
        texts: Lines of text.
        settings: The recipe's `tokenizer` section.
        is_target: Whether the texts are targets.

    Raises:
        ConfigError: byte pairs are requested without a vocabulary size.
        DataError: the text is empty.
    """
    tokenizer_class = CharacterTokenizer if settings.kind == "characters" else BytePairTokenizer
    return tokenizer_class.train(texts, settings, is_target=is_target)


def _read(content: str) -> Tokenizer:
    classes = {
        '{"sentencepiece"': SentencePieceTokenizer,
        '{"published"': HuggingFaceTokenizer,
        '{"characters"': CharacterTokenizer,
    }
    tokenizer_class = next((cls for start, cls in classes.items() if content.startswith(start)), BytePairTokenizer)
    return tokenizer_class.from_json(content)
