"""The tokenizers of a translator: one for each side, or one for both."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain

from transformer.text.settings import TokenizerSettings
from transformer.text.tokenizer import Tokenizer

JOINT_FILE = "tokenizer.json"
SIDE_FILES = ("tokenizer.source.json", "tokenizer.target.json")


@dataclass(frozen=True)
class TokenizerPair:
    """The source and target tokenizers; the same object where they are joint."""

    source: Tokenizer
    target: Tokenizer

    @classmethod
    def train(
        cls,
        sources: Callable[[], Iterable[str]],
        targets: Callable[[], Iterable[str]],
        settings: TokenizerSettings,
    ) -> "TokenizerPair":
        """Learns from both texts together or from each on its own.

        Raises:
            DataError: a text is empty.
        """
        if settings.joint:
            joint = Tokenizer.train(chain(sources(), targets()), settings)
            return cls(joint, joint)
        return cls(Tokenizer.train(sources(), settings), Tokenizer.train(targets(), settings))

    @property
    def is_joint(self) -> bool:
        """Both sides are one tokenizer."""
        return self.source is self.target

    def to_files(self) -> dict[str, str]:
        """File names and contents to store."""
        if self.is_joint:
            return {JOINT_FILE: self.source.to_json()}
        return dict(zip(SIDE_FILES, (self.source.to_json(), self.target.to_json()), strict=True))

    @classmethod
    def from_files(cls, files: dict[str, str]) -> "TokenizerPair":
        """Reads what `to_files` gave.

        Raises:
            DataError: a content is no tokenizer.
            KeyError: a file is missing.
        """
        if JOINT_FILE in files:
            joint = Tokenizer.from_json(files[JOINT_FILE])
            return cls(joint, joint)
        source, target = (Tokenizer.from_json(files[name]) for name in SIDE_FILES)
        return cls(source, target)
