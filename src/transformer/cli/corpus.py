"""Arguments that name what to train on: a recipe, two texts, or a file of pairs."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from transformer.cli.completion import complete_recipe
from transformer.cli.fields import takes
from transformer.data.augment.config import UNASKED_RATES
from transformer.data.config import FILE_FORMATS, DataConfig, file_format
from transformer.errors import ConfigError
from transformer.recipes import find_recipe, missing_corpus
from transformer.run.recipe import load_recipe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transformer.run.recipe import Recipe

NO_RECIPE: Final = re.compile(r"not TOML|: data is missing")
"""What an error says about a file that is a text and not a recipe."""


@dataclass(frozen=True)
class Corpus:
    """Data of a run as the command line names it.

    Attributes:
        recipe: Path or name of the recipe, if there is one.
        data: Keys of the recipe's `data` section that were given as arguments or options.
        overrides: Values of `--set`.
    """

    recipe: Path | None
    data: dict[str, str]
    overrides: list[str]

    def load(
        self, data: "Mapping[str, object] | None" = None, training: "Mapping[str, object] | None" = None
    ) -> "Recipe":
        """Returns the recipe with all that was given on the command line.

        Texts in two languages without a recipe are augmented at the default rates.

        Args:
            data: Further keys of the `data` section.
            training: Keys of the `training` section.

        Raises:
            ConfigError: The recipe cannot be read, a key or value is invalid, or a corpus of a recipe that comes with
                the program is missing.
        """
        sections = {"data": {**self.data, **(data or {})}, "training": training or {}}
        try:
            recipe = load_recipe(self.recipe, self.overrides, {name: keys for name, keys in sections.items() if keys})
        except ConfigError as error:
            if self.recipe is None or self.recipe.suffix == ".toml" or not NO_RECIPE.search(str(error)):
                raise
            raise ConfigError(
                f"{self.recipe} is not a recipe (TOML); if it is a text, give its translation too, or --text "
                f"{self.recipe} for a language model"
            ) from error
        if self.recipe is None:
            recipe = _augmented(recipe)
        files = set(_texts(recipe.data.model_dump()))
        if self.recipe is not None and (message := missing_corpus(find_recipe(self.recipe), files)):
            raise ConfigError(message)
        return recipe


def _augmented(recipe: "Recipe") -> "Recipe":
    """Returns a recipe with the default augmentation if it trains a translation model of texts and sets none."""
    data = recipe.data
    if not isinstance(data, DataConfig) or "augment" in data.model_fields_set or data.has_trees:
        return recipe
    return recipe.with_keys("data", {"augment": UNASKED_RATES})


def _texts(value: object) -> Iterator[str]:
    """Yields all texts in a value of a recipe, a mapping or a list."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def corpus_of(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RECIPE | SOURCE TARGET]",
            help="recipe: a TOML file, or a name that transformer recipes lists; or two texts, one sentence per line, "
            "line n of one the translation of line n of the other",
            autocompletion=complete_recipe,
        ),
    ] = None,
    source: Annotated[str | None, typer.Option(help="source text, one sentence per line")] = None,
    target: Annotated[str | None, typer.Option(help="its translation, aligned line by line")] = None,
    pairs: Annotated[
        str | None,
        typer.Option(
            help="file with both sides: .tsv, .csv, .jsonl, .parquet, .tmx, .po or .xliff, or trees: .trees or .mrg"
        ),
    ] = None,
    languages: Annotated[
        str | None, typer.Option(help="source and target language to select from a .tmx file, e.g. en,de")
    ] = None,
    text: Annotated[
        str | None, typer.Option(help="running text, to train a language model instead of a translation model")
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="override a recipe key, e.g. training.seed=2")
    ] = None,
) -> Corpus:
    """Builds the corpus from the command line.

    Raises:
        ConfigError: Nothing names a training text, or two arguments name the same side.
    """
    overrides, (recipe, files) = overrides or [], _recipe_or_texts(arguments or [])
    options = {"source": source, "target": target, "pairs": pairs, "languages": languages, "text": text}
    for key, path in files.items():
        if options[key]:
            raise ConfigError(f"{path} and --{key} {options[key]} both name the {key}; leave out one of them")
    data = {**{key: value for key, value in options.items() if value}, **files}
    elsewhere = recipe is not None or any(override.startswith("data.") for override in overrides)
    if not elsewhere and not data.keys() & {"pairs", "text"} and not {"source", "target"} <= data.keys():
        raise ConfigError(
            "nothing to train on; give a recipe, or two texts (SOURCE TARGET), or --pairs FILE, or --text FILE"
        )
    is_text = "text" in data and recipe is None
    return Corpus(recipe, {"task": "language-model", **data} if is_text else data, overrides)


def _recipe_or_texts(arguments: Sequence[str]) -> tuple[Path | None, dict[str, str]]:
    """Returns the recipe that the arguments name, and the keys of `data`.

    Raises:
        ConfigError: There are more than two arguments.
    """
    if len(arguments) > 2:
        raise ConfigError(f"{arguments[2]}: more arguments than a source and a target text; leave it out")
    if len(arguments) == 2:
        return None, dict(zip(("source", "target"), arguments, strict=True))
    if arguments and file_format(arguments[0]) in FILE_FORMATS:
        return None, {"pairs": arguments[0]}
    return Path(arguments[0]) if arguments else None, {}


takes_corpus = takes("corpus", corpus_of, "Data")
"""Decorator that adds the arguments and options of `corpus_of`, for the parameter `corpus`."""
