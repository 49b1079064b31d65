"""The recipe's tables `[[data.pairs]]`: the translation directions of a model of several languages."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, ValidationInfo, model_validator

from transformer.config import Config, describe_problems
from transformer.text.languages import parse_language

Paths = str | Annotated[tuple[str, ...], Field(min_length=1)]
Column = Annotated[int, Field(ge=1)] | Annotated[str, Field(min_length=1)]
Weight = Annotated[float, Field(gt=0, le=1000)]
Direction = tuple[str, str]
"""Source and target language as BCP 47 tags; empty where they are not known."""
NO_DIRECTION: Final = ("", "")
PAIR_SCORE: Final = "/"
"""Sign between the direction and the metric in the name of a score of one of several directions: `en-de/bleu`."""


def _check_language(tag: str, info: ValidationInfo) -> str:
    language = parse_language(tag)
    if language is None:
        raise ValueError(f"data.{info.field_name}={tag!r} is not a language tag (BCP 47); write e.g. en, de or zh-Hant")
    return language


Language = Annotated[str, AfterValidator(_check_language)]


class LanguagePair(Config):
    """The corpus of one direction: text files of both sides, or files that hold both, and its validation text."""

    source_language: Language = Field(description="language of the source as a BCP 47 tag, e.g. en")
    target_language: Language = Field(description="language of the target, whose tag begins the source")
    source: Paths | None = Field(default=None, description="source text file, or a list of files")
    target: Paths | None = Field(default=None, description="target text file, or a list of files")
    file: Paths | None = Field(
        default=None, description="file of sentence pairs, as data.pairs takes it without tables, or a list of files"
    )
    columns: tuple[Column, Column] | None = Field(
        default=None, description="source and target columns of `file`: numbers counted from 1, or names"
    )
    weight: Weight = Field(default=1.0, description="number of passes per epoch over the files, before the temperature")
    validation_source: str | None = Field(
        default=None, description="validation source text of the direction; if no table has one, pairs are held out"
    )
    validation_target: str | None = Field(default=None, description="validation target text")

    @property
    def direction(self) -> Direction:
        """Source and target language."""
        return self.source_language, self.target_language

    @model_validator(mode="after")
    def _languages_differ(self) -> "LanguagePair":
        if self.source_language == self.target_language:
            raise ValueError(
                f"data.pairs has a table from {self.source_language} to itself; give two languages, e.g. en and de"
            )
        return self


def parse_pairs(value: object) -> object:
    """Returns the tables of a list of tables, and any other value as it is.

    Raises:
        ValueError: A key or a value of a table is invalid; the message counts the tables from 1.
    """
    if isinstance(value, Mapping):
        value = [value]
    if not isinstance(value, Sequence) or not any(isinstance(item, Mapping) for item in value):
        return value
    tables = list[LanguagePair]()
    for number, item in enumerate(value, start=1):
        try:
            tables.append(LanguagePair.model_validate(item))
        except ValidationError as error:
            raise ValueError(f"data.pairs, table {number}: {describe_problems(error, max_depth=1)}") from error
    return tuple(tables)


Pairs = Annotated[Paths | Annotated[tuple[LanguagePair, ...], Field(min_length=1)], BeforeValidator(parse_pairs)]


def pair_name(direction: Direction) -> str:
    """Returns the usual name of a direction, e.g. `en-de`."""
    return "-".join(direction)


def check_validation_files(pairs: Sequence[LanguagePair]) -> None:
    """Checks that either every direction has validation files or none.

    Raises:
        ValueError: Some directions have none, or a table names one side alone.
    """
    for pair in pairs:
        if (pair.validation_source is None) != (pair.validation_target is None):
            raise ValueError(
                f"data.pairs: validation_source and validation_target of {pair_name(pair.direction)} go together; give "
                "both or neither"
            )
    scored = {pair.direction for pair in pairs if pair.validation_source is not None}
    missing = [pair_name(direction) for direction in {pair.direction: 0 for pair in pairs} if direction not in scored]
    if scored and missing:
        raise ValueError(
            f"data.pairs: {', '.join(missing)} have no validation files, but other directions have; give them to all, "
            "or to none, so that pairs are held out"
        )


def sampling_weights(sizes: Sequence[float], groups: Sequence[object], temperature: float) -> list[float]:
    """Returns the number of passes per epoch over each file, so that directions are drawn by size^(1/temperature).

    The length of an epoch stays the sum of all sizes.

    Args:
        sizes: Pairs of each file times its weight.
        groups: The direction of each file.
        temperature: 1 draws by size; a high value draws all directions alike.

    Source: Arivazhagan et al. 2019, "Massively Multilingual Neural Machine Translation in the Wild".
    """
    totals = dict.fromkeys(groups, 0.0)
    for size, group in zip(sizes, groups, strict=True):
        totals[group] += size
    shares = {group: total ** (1 / temperature) for group, total in totals.items() if total}
    scale = sum(totals.values()) / sum(shares.values())
    return [scale * shares[group] / totals[group] if totals[group] else 1.0 for group in groups]
