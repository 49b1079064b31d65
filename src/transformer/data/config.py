"""The recipe's `data` section."""

from abc import abstractmethod
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from transformer.config import Config, Processors
from transformer.data.augment.config import AugmentConfig, parse_augment
from transformer.data.language_pairs import (
    Column,
    Direction,
    Language,
    LanguagePair,
    Pairs,
    Paths,
    Weight,
    check_validation_files,
)
from transformer.data.stages import StageConfig, check_stages
from transformer.errors import counted
from transformer.text.lines import COMPRESSIONS
from transformer.text.trees import SUFFIXES


class TaskConfig(Config):
    """Options of the `data` section that all tasks share; `task` selects the training task."""

    prepared: str | None = Field(
        default=None, description="folder of prepared data, which runs can share; RUN/tokens if not set"
    )
    workers: Processors | None = Field(
        default=None, description="number of processes that prepare the data; one per core if not set"
    )
    invalid_utf8: Literal["error", "replace"] = Field(
        default="error", description="handling of bytes that are not valid UTF-8: error or replace"
    )

    special_tokens: bool = Field(
        default=False,
        description="read the names of special tokens in the texts, e.g. <extra_id_0>, as these tokens of the "
        "published model that the run starts from",
    )
    license: str | None = Field(default=None, description="license of the texts, recorded in the model")
    attribution: str | None = Field(
        default=None, description="names that the license of the texts requires, recorded in the model"
    )

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the corpus in messages."""


class DataConfig(TaskConfig):
    """Files of a translation corpus, and filters for sentence pairs.

    Paths are relative to the working directory; `${NAME}` and `${NAME:-default}` in a recipe are replaced by
    environment variables. Any file may be compressed (.gz, .zst).
    """

    task: Literal["translation"] = "translation"
    source: Paths | None = Field(
        default=None, description="source text file, one sentence per line, or a list of files"
    )
    target: Paths | None = Field(
        default=None, description="target text file, aligned with source line by line, or a list of files"
    )
    pairs: Pairs | None = Field(
        default=None,
        description="file of sentence pairs (.tsv, .csv, .jsonl, .parquet, .tmx, .po, .xliff) or of trees (.trees, "
        ".mrg), or a list of files; or tables [[data.pairs]], one for each direction of a model of several languages",
    )
    temperature: float | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="sample the directions of [[data.pairs]] by size^(1/temperature); 1, which is by size, if not set",
    )
    columns: tuple[Column, Column] | None = Field(
        default=None, description="source and target columns of `pairs`: numbers counted from 1, or names"
    )
    languages: tuple[str, str] | None = Field(
        default=None, description="source and target languages to select from a .tmx file, e.g. en,de"
    )
    source_language: Language | None = Field(
        default=None,
        description="language of the source as a BCP 47 tag, e.g. en; by file or column names or detected if not set",
    )
    target_language: Language | None = Field(
        default=None, description="language of the target, e.g. zh-Hant; it also selects the tokenization of BLEU"
    )
    weights: tuple[Weight, ...] | None = Field(
        default=None,
        description="number of passes per epoch over each file, source files first, then pairs; 1 if not set",
    )
    stages: Annotated[tuple[StageConfig, ...], Field(min_length=1)] | None = Field(
        default=None,
        description="parts of the run with weights of their own, e.g. general text first, then that of a domain; "
        "tables [[data.stages]] with name, share or steps, weights, validation_source and validation_target",
    )
    validation_source: str | None = Field(
        default=None, description="validation source text; if not set, training pairs are held out"
    )
    validation_target: str | None = Field(default=None, description="validation target text")
    validation_pairs: int = Field(
        default=1000,
        ge=1,
        description="maximum number of source sentences held out for validation; at most 5 % of the pairs",
    )
    test_source: str | None = Field(
        default=None, description="test source text, to count its overlap with the training text"
    )
    max_length_ratio: float = Field(
        default=4.0, gt=1, description="drop a pair if its longer side has more than ratio * shorter + 5 tokens"
    )
    drop_duplicates: bool = Field(default=True, description="drop repeated pairs, except for the first")
    augment: Annotated[AugmentConfig | None, BeforeValidator(parse_augment)] = Field(
        default=None,
        description="changed copies of training pairs, which harden the model against noise: rates by kind, or "
        "default, or none; if not set, none with a recipe, and default where train is given texts",
    )

    @property
    def text_files(self) -> list[tuple[str, str]]:
        """Pairs of a source file and its target file."""
        return list(zip(as_list(self.source), as_list(self.target), strict=True))

    @property
    def pair_files(self) -> list[str]:
        """Files that hold both sides."""
        return as_list(self.pairs)

    @property
    def has_trees(self) -> bool:
        """Whether a file holds trees, in whose brackets no word may change."""
        files = [*self.pair_files, *(path for table in self.language_pairs for path in as_list(table.file))]
        return any(file_format(path) in SUFFIXES for path in files)

    @property
    def language_pairs(self) -> tuple[LanguagePair, ...]:
        """The tables `[[data.pairs]]`; none for a model of one direction."""
        return tuple(item for item in self.pairs or () if isinstance(item, LanguagePair))

    @property
    def directions(self) -> tuple[Direction, ...]:
        """The directions of the tables, each once."""
        return tuple(dict.fromkeys(pair.direction for pair in self.language_pairs))

    @property
    def target_languages(self) -> tuple[str, ...]:
        """The languages that need a tag, each once."""
        return tuple(dict.fromkeys(target for _, target in self.directions))

    @property
    def name(self) -> str:
        """Name of the corpus in messages: its first file."""
        if self.language_pairs:
            return self.of_direction(self.language_pairs[0]).name
        return (as_list(self.source) + self.pair_files)[0]

    def of_direction(self, pair: LanguagePair) -> "DataConfig":
        """Returns the section that a table stands for, with its files and languages alone."""
        is_tmx = any(file_format(path) == ".tmx" for path in as_list(pair.file))
        files = pair.model_dump(exclude={"file", "weight"})
        languages = pair.direction if is_tmx else None
        return DataConfig(**files, pairs=pair.file, languages=languages, invalid_utf8=self.invalid_utf8)

    @model_validator(mode="after")
    def _tables_stand_alone(self) -> "DataConfig":
        if not self.language_pairs:
            if self.temperature is not None:
                raise ValueError("data.temperature weighs the directions of [[data.pairs]] tables; leave it out")
            return self
        sides = ("source", "target")
        keys = (*sides, "columns", "languages", "weights", *(f"{side}_language" for side in sides),
                *(f"validation_{side}" for side in sides))  # fmt: skip
        if misplaced := [key for key in keys if getattr(self, key) is not None]:
            raise ValueError(f"data.{misplaced[0]} does not go with [[data.pairs]]; write it in the tables")
        if self.stages is not None:
            raise ValueError("data.stages does not go with [[data.pairs]]; leave out one of them")
        for pair in self.language_pairs:
            self.of_direction(pair)
        check_validation_files(self.language_pairs)
        return self

    @model_validator(mode="after")
    def _validation_has_both_sides(self) -> "DataConfig":
        if (self.validation_source is None) != (self.validation_target is None):
            raise ValueError("validation_source and validation_target go together; give both or neither")
        return self

    @model_validator(mode="after")
    def _training_text_has_both_sides(self) -> "DataConfig":
        sides = len(as_list(self.source)), len(as_list(self.target))
        if sides[0] != sides[1]:
            if not all(sides):
                missing = "source" if sides[1] else "target"
                raise ValueError(f"data.{missing} is missing; give both sides, or a file of both as data.pairs")
            raise ValueError(
                f"data.source names {counted(sides[0], 'file')}, data.target {sides[1]}; "
                "give each source file its translation"
            )
        for source, target in zip(as_list(self.source), as_list(self.target), strict=True):
            if source == target:
                raise ValueError(f"data.source and data.target are both {source}; give its translation as the target")
        files = sides[0] + len(self.pair_files) + len(self.language_pairs)
        if not files:
            raise ValueError("data.source is missing; name data.source and data.target, or data.pairs")
        if self.weights is not None and len(self.weights) != files:
            numbers = counted(len(self.weights), "number")
            raise ValueError(f"data.weights has {numbers} for {counted(files, 'file')}; give one for each")
        return self

    @model_validator(mode="after")
    def _stages_fit_the_files(self) -> "DataConfig":
        if self.stages is not None:
            if self.weights is not None:
                raise ValueError("data.weights and data.stages both weight the files; leave out data.weights")
            check_stages(self.stages, len(self.text_files) + len(self.pair_files))
        return self

    @model_validator(mode="after")
    def _trees_are_not_augmented(self) -> "DataConfig":
        if self.has_trees and self.augment is not None and self.augment.rates:
            raise ValueError("data.augment changes words, which the brackets of trees forbid; leave data.augment out")
        return self

    @model_validator(mode="after")
    def _pair_files_are_of_a_known_kind(self) -> "DataConfig":
        for path in self.pair_files:
            kind = file_format(path)
            if kind not in FILE_FORMATS:
                raise ValueError(
                    f"data.pairs={path!r} ends in none of {', '.join(FILE_FORMATS)} (and .gz, .zst); rename it"
                )
            if kind == ".tmx" and self.languages is None:
                raise ValueError(f"data.languages is missing, which {path} needs; give e.g. --languages en,de")
            if kind in (".jsonl", ".parquet") and any(isinstance(column, int) for column in self.columns or ()):
                raise ValueError(
                    f"data.columns={list(self.columns or ())} are numbers, but {path} has names; give names"
                )
        return self


FILE_FORMATS = (".tsv", ".jsonl", ".parquet", ".tmx", ".po", ".xlf", ".xliff", ".csv", ".trees", ".mrg")


def file_format(path: str) -> str:
    """Returns the suffix that indicates the format of a file, without the suffix of its compression."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def as_list(paths: Paths | tuple[LanguagePair, ...] | None) -> list[str]:
    """Returns one path, several paths or None as a list; tables are left out."""
    items = [paths] if isinstance(paths, str) else paths or ()
    return [path for path in items if isinstance(path, str)]
