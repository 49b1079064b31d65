"""The recipe's table `data.augment`."""

from typing import Annotated, Final

from pydantic import Field

from transformer.config import Config

CHANGED: Final = "perplexity_"
"""Beginning of the name of a perplexity on changed validation pairs; the kind of change follows."""
Rate = Annotated[float, Field(ge=0, le=1)]


class AugmentConfig(Config):
    """Shares of the training pairs of which a changed copy is added to the corpus, by kind of change."""

    capitals: Rate = Field(default=0.0, description="both sides in capitals")
    title_case: Rate = Field(default=0.0, description="the source in Title Case, the target as it is")
    lower_case: Rate = Field(default=0.0, description="the source in lower case, the target as it is")
    typos: Rate = Field(
        default=0.0, description="one wrong letter in about ten words of the source: swapped, doubled, lost, or that "
        "of a key beside it"
    )  # fmt: skip
    final_punctuation: Rate = Field(default=0.0, description="both sides without their final punctuation mark")
    spaces: Rate = Field(default=0.0, description="a space too few or too many beside the source's punctuation")
    emoji: Rate = Field(default=0.0, description="the same emoji on both sides, at an end or beside a shared word")
    tags: Rate = Field(default=0.0, description="the same tags on both sides, around all or around a shared word")
    placeholders: Rate = Field(default=0.0, description="the same placeholder on both sides, where emoji may be")
    addresses: Rate = Field(default=0.0, description="the same address of a page or a mailbox on both sides")
    numbers: Rate = Field(default=0.0, description="other numbers on both sides, written as each language writes them")
    names: Rate = Field(default=0.0, description="another name on both sides, where both write it alike")
    paragraphs: Rate = Field(default=0.0, description="two to four consecutive pairs joined into one")

    @property
    def rates(self) -> dict[str, float]:
        """The rate of each kind that is used."""
        return {kind: rate for kind, rate in self.model_dump().items() if rate}


DEFAULT: Final = "default"
DEFAULT_RATES: Final = AugmentConfig(
    capitals=0.05, title_case=0.03, lower_case=0.05, typos=0.07, final_punctuation=0.05, spaces=0.02, emoji=0.01,
    tags=0.005, placeholders=0.005, numbers=0.1, paragraphs=0.03,
)  # fmt: skip
"""Rates that `data.augment = "default"` stands for."""


NONE: Final = "none"


class UnaskedAugmentConfig(AugmentConfig):
    """Rates of a run without a recipe, which nobody asked for: a run that was begun with others keeps them."""


UNASKED_RATES: Final = UnaskedAugmentConfig(**DEFAULT_RATES.model_dump())


def parse_augment(value: object) -> object:
    """Returns the default rates for the word `default`, None for `none`, and any other value as it is."""
    return {DEFAULT: DEFAULT_RATES, NONE: None}[value] if value in (DEFAULT, NONE) else value
