"""`transformer distill`: trains a small model on the translations of larger ones."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transformer.cli.completion import complete_model, complete_recipe
from transformer.cli.corpus import Corpus
from transformer.cli.fields import takes
from transformer.cli.files import check_files
from transformer.cli.filter_corpus import AllowOption, Ranking, parse_reasons, write_selection
from transformer.cli.hub import obtain_model
from transformer.cli.kernel_note import note_missing_kernels
from transformer.cli.pairs_file import Facts, check_same_facts
from transformer.cli.paths import folder_option
from transformer.cli.progress import spinner
from transformer.cli.quantize import print_comparisons
from transformer.cli.search import languages_of, takes_loading, takes_search
from transformer.cli.sharding import MAX_SHARDS
from transformer.cli.shards import ShardOption, parse_shard
from transformer.cli.shortlist import write_shortlist
from transformer.cli.teacher import NAME, Teacher
from transformer.cli.translate import InvalidOption, invalid_choice
from transformer.cli.verbosity import is_quiet, say, takes_verbosity
from transformer.data.config import DataConfig
from transformer.errors import ConfigError, DataError, counted
from transformer.options.search import GREEDY, Search
from transformer.recipes import find_recipe
from transformer.run.recipe_text import read_toml
from transformer.run.run_folder import default_folder
from transformer.storage.atomic import replace_text

if TYPE_CHECKING:
    from transformer.cli.search import Loading
    from transformer.run.recipe import Recipe
    from transformer.text.lines import Invalid

KEPT, DROPPED, STUDENT, SHORTLIST, INT8 = "kept.tsv", "dropped.tsv", "student", "shortlist.safetensors", "int8"
"""Names of what the stages write, in their order, in the folder of the command."""


@dataclass(frozen=True)
class PairChoice:
    """Pairs that the student is trained on.

    Attributes:
        references: Translation of the text by people; None without one.
        by_reference: Whether the hypothesis most like its reference is taken, instead of the best.
        with_references: Whether the pairs of the text and its references are added.
        reverse: Model of the other direction, by which pairs are ranked as well; None without one.
        share: Share of the pairs to keep of those that no rule drops; None for all.
        allowed: Reasons for which nothing is dropped.
    """

    references: Path | None
    by_reference: bool
    with_references: bool
    reverse: Path | None
    share: float | None
    allowed: list[str]

    def check(self, search: Search) -> None:
        """Validates the options.

        Raises:
            ConfigError: An option lacks another one without which it has no effect.
        """
        if self.by_reference and (self.references is None or search.beam == 1):
            lacking = "--target FILE" if self.references is None else "--beam 8"
            raise ConfigError(f"--by-reference chooses among hypotheses by the references; add {lacking}")
        if self.with_references and self.references is None:
            raise ConfigError("--with-references has no effect without --target; name the translation of SOURCE there")
        if self.reverse is not None and self.share is None:
            raise ConfigError("--reverse has no effect without --share; add e.g. --share 0.9")


def choice_of(
    references: Annotated[
        Path | None, typer.Option("--target", help="translation of SOURCE by people, aligned line by line")
    ] = None,
    by_reference: Annotated[
        bool,
        typer.Option("--by-reference", help="take the hypothesis of the beam most like --target (chrF), not the best"),
    ] = False,
    with_references: Annotated[
        bool, typer.Option("--with-references", help="train the student on the pairs of SOURCE and --target as well")
    ] = False,
    reverse: Annotated[
        Path | None,
        typer.Option(
            help="model of the other direction, by which pairs are ranked for --share", autocompletion=complete_model
        ),
    ] = None,
    share: Annotated[
        float | None, typer.Option(min=0, max=1, help="share of the translations to train on, the most likely ones")
    ] = None,
    allow: AllowOption = "",
) -> PairChoice:
    """Builds the choice of pairs from the command line.

    Raises:
        ConfigError: `allow` names an unknown reason.
    """
    return PairChoice(references, by_reference, with_references, reverse, share, parse_reasons(allow))


@takes_verbosity
@takes_loading
@takes_search
@takes("choice", choice_of)
def distill(
    teachers: Annotated[
        list[Path],
        typer.Argument(
            metavar="TEACHER...",
            help="models that translate the text; the predictions of several are averaged",
            autocompletion=complete_model,
        ),
    ],
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="text in the source language, a sentence per line")],
    student: Annotated[
        Path,
        typer.Option(
            help="recipe of the student; its training text is replaced by the translations",
            autocompletion=complete_recipe,
        ),
    ],
    run: Annotated[Path | None, folder_option("folder of all results; if not given, runs/NAME of the recipe")] = None,
    tolerance: Annotated[float, typer.Option(help="maximum loss of the student by int8, in BLEU points")] = 0.5,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="override a key of the recipe")
    ] = None,
    shards: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MAX_SHARDS,
            metavar="N",
            help="translate in N parts, which any number of processes share that run the same command",
        ),
    ] = None,
    shard: ShardOption = None,
    invalid_utf8: InvalidOption = "error",
    *,
    loading: "Loading",
    search: Search,
    choice: PairChoice,
) -> None:
    """Train a small model on the translations of larger ones (sequence-level knowledge distillation).

    The teachers translate SOURCE; bad pairs are dropped; the student is trained by its recipe; a shortlist is learned;
    the student is converted to int8. The same command continues where an earlier one was stopped. With --shards N, any
    number of processes share the translation, and with --shard K/N, only that part is translated; when all parts are in
    the folder, the command without these options continues with them.

    Example: transformer distill runs/big news.en --student small.toml --beam 5 --reverse de-en --share 0.9
    """
    invalid, part = invalid_choice(invalid_utf8), parse_shard(shard)
    choice.check(search)
    if shards and shard:
        raise ConfigError("--shards and --shard contradict each other; leave out one of them")
    check_files([source, *filter(None, [choice.references])])
    if choice.references is not None:
        _check_line_counts(source, choice.references, invalid)
    text = StudentText(student, overrides or [], source, choice)
    _, data = text.recipe(Path(f"{NAME}.tsv"))  # before hours of translation
    folder = run or default_folder(student, data)
    teacher = Teacher(teachers, source, choice.references if choice.by_reference else None, invalid)
    if shards:
        pairs = teacher.translate_shards(folder, loading, search, shards)
        say(f"{pairs} is complete; run the command without --shards to go on")
        return
    pairs = teacher.translate(folder, loading, search, part)
    if part is not None:
        say(f"{pairs} is complete; run the other shards, then the command without --shard, with all parts in {folder}")
        return
    _make_student(folder, text, _select(pairs, teachers[0], choice), tolerance)


def _make_student(folder: Path, text: "StudentText", pairs: Path, tolerance: float) -> None:
    """Trains the student on pairs, learns its shortlist, and converts it to int8, each unless it was done."""
    recipe, data = text.recipe(pairs)
    model = _train(folder / STUDENT, recipe)
    _learn_shortlist(folder / SHORTLIST, model, data)
    _quantize(folder / INT8, model, data, tolerance)
    say(f"next: transformer translate {folder / INT8} --shortlist {folder / SHORTLIST} --input FILE")


@dataclass(frozen=True)
class StudentText:
    """Training text of the student, and its recipe.

    Attributes:
        student: Recipe of the student.
        overrides: Values of `--set`.
        source: Text that the teachers translate.
        choice: Pairs that the student is trained on.
    """

    student: Path
    overrides: list[str]
    source: Path
    choice: PairChoice

    def recipe(self, pairs: Path) -> "tuple[Recipe, DataConfig]":
        """Returns the recipe, with a table of pairs as its training text, and its `data` section.

        Raises:
            ConfigError: It trains a model of another task, or has no validation text.
        """
        other_task = ConfigError(f"{self.student} does not train a translation model; leave out data.task")
        section = read_toml(find_recipe(self.student)).get("data")
        if isinstance(section, dict) and section.get("task", "translation") != "translation":
            raise other_task
        references = self.choice.references if self.choice.with_references else None
        source, target = ([str(self.source)], [str(references)]) if references else (None, None)
        text = {"source": source, "target": target, "pairs": [str(pairs)], "columns": None, "weights": None}
        recipe = Corpus(self.student, {}, self.overrides).load(text)
        if not isinstance(recipe.data, DataConfig):
            raise other_task
        if recipe.data.validation_source is None:
            raise ConfigError(
                f"{self.student}: data.validation_source is missing, on which the student and its int8 weights are "
                "measured; set it and data.validation_target, if need be by --set"
            )
        return recipe, recipe.data


def _check_line_counts(source: Path, references: Path, invalid: "Invalid") -> None:
    """Checks that both texts have as many lines.

    Raises:
        DataError: They have not.
    """
    from transformer.text.lines import read_lines

    n_lines = [sum(1 for _ in read_lines(path, invalid=invalid, overlong="cut")) for path in (source, references)]
    if n_lines[0] != n_lines[1]:
        raise DataError(
            f"{source} has {counted(n_lines[0], 'line')}, {references} {n_lines[1]:,}; give each line its translation"
        )


def _select(pairs: Path, teacher: Path, choice: PairChoice) -> Path:
    """Writes the pairs that are worth training on, unless they are there, and returns their file.

    Args:
        pairs: Table of all pairs.
        teacher: Model by which pairs are ranked.
        choice: The pairs to keep.
    """
    from transformer.data.fingerprint import file_checksum

    kept = pairs.with_name(KEPT)
    facts_file = kept.with_suffix(".json")
    reverse, share = choice.reverse, choice.share
    facts: Facts = {
        "pairs": file_checksum(pairs), "allow": sorted(choice.allowed), "reverse": reverse and str(reverse),
        "share": share,
    }  # fmt: skip
    if kept.exists() and facts_file.exists():
        check_same_facts(facts, facts_file, kept)
        return kept
    ranking = None if share is None else Ranking(teacher, reverse, share, languages_of(None, None))
    corpus = Corpus(None, {"pairs": str(pairs)}, [])
    write_selection(corpus, kept, pairs.with_name(DROPPED), choice.allowed, ranking)
    replace_text(facts_file, json.dumps(facts))
    return kept


def _train(folder: Path, recipe: "Recipe") -> Path:
    """Trains the student, or continues its training, and returns its best model.

    Raises:
        typer.Exit: A signal ended the training early.
    """
    if recipe.training.start_from is not None:
        obtain_model(Path(recipe.training.start_from))
    with spinner("loading PyTorch"):
        from transformer.run.train import train as train_run

    note_missing_kernels()
    result = train_run(recipe, folder, quiet=is_quiet())
    if result.interruption.requested:
        say(f"stopped at step {result.progress.step} and saved; the same command goes on")
        raise typer.Exit(result.interruption.exit_code)
    return result.model


def _learn_shortlist(output: Path, model: Path, data: DataConfig) -> None:
    """Learns the shortlist of the student from its training text, unless it is there."""
    if output.exists():
        return
    from transformer.data.inputs import read_files, training_files

    write_shortlist(model, read_files(training_files(data)), output, Path(data.name))


def _quantize(output: Path, model: Path, data: DataConfig, tolerance: float) -> None:
    """Converts the student to int8, unless that was done, and prints what it loses on the validation text.

    Raises:
        ConfigError: It loses more than the tolerance.
    """
    if output.exists() and any(output.iterdir()):
        return
    from transformer.data.readers import read_all_pairs
    from transformer.pipelines.translation.quantization import quantize_model

    validation = Path(data.validation_source or ""), Path(data.validation_target or "")
    pairs = [pair for pair in read_all_pairs(*validation, invalid=data.invalid_utf8) if all(map(str.strip, pair))]
    quantize_model(model, output, pairs, search=GREEDY, tolerance=tolerance, on_result=print_comparisons)
