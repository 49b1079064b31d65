"""`transformer evaluate --directions`: a model of several languages scored on a test set for each pair."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from transformer.cli.evaluate_shards import TestFiles
from transformer.cli.evaluation_work import Evaluated, EvaluationWork, PairTest
from transformer.cli.score_table import results_as_json
from transformer.errors import ConfigError

LEARNED, ALL = "learned", "all"
PLACES: Final = ("{source}", "{target}")
"""Signs in the names of files that stand for the languages."""


@dataclass(frozen=True)
class DirectionResults:
    """Scores of several pairs of languages.

    Attributes:
        pairs: Scores of each pair.
    """

    pairs: Mapping[PairTest, Evaluated]

    @property
    def first(self) -> PairTest:
        """The first pair."""
        return next(iter(self.pairs))

    def means(self, *, learned: bool) -> list[dict[str, float]]:
        """Returns the unweighted mean of each metric over the learned or the zero-shot pairs, of each system."""
        chosen = [evaluation for pair, (evaluation, _) in self.pairs.items() if pair.is_learned == learned]
        by_system = zip(*(evaluation.scores for evaluation in chosen), strict=True)
        return [
            {scores[0].name: sum(score.value for score in scores) / len(scores) for scores in zip(*system, strict=True)}
            for system in by_system
        ]

    def mean_lines(self) -> Iterator[str]:
        """Yields the lines of a table of the means."""
        for learned, kind in ((True, ""), (False, "zero-shot ")):
            count = sum(pair.is_learned == learned for pair in self.pairs)
            means = self.means(learned=learned)
            for number, mean in enumerate(means):
                name = f" {self.pairs[self.first][0].systems[number].name}" if len(means) > 1 else ""
                figures = "   ".join(f"{metric} {value:.2f}" for metric, value in mean.items())
                yield f"{'' if number else chr(10)}mean of {count} {kind}pair{'s' * (count > 1)}{name}: {figures}"

    def as_json(self) -> dict[str, Any]:
        """Returns all figures as JSON values."""
        pairs = {
            pair.name: {"zero_shot": not pair.is_learned, **results_as_json(evaluation, runs)}
            for pair, (evaluation, runs) in self.pairs.items()
        }
        return {
            "directions": pairs,
            "means": {"learned": self.means(learned=True), "zero_shot": self.means(learned=False)},
        }


def evaluate_directions(work: EvaluationWork, test: PairTest, directions: str) -> DirectionResults:
    """Evaluates the test set of each pair of languages; all files are checked before the first.

    Args:
        work: What is done with each test set.
        test: Test set, in whose names signs stand for the languages.
        directions: Value of `--directions`.

    Raises:
        ConfigError: A pair is not one of languages, an option does not go with several pairs, or a name of a file does
            not tell them apart.
        TransformerError: A model or a file cannot be used, or a result cannot be written.
    """
    options = {
        "--details": work.details, "--report": work.report, "--training": work.training, "--join": work.sharding.join,
        "--source-language": test.languages[0], "--target-language": test.languages[1],
    }  # fmt: skip
    if misplaced := [name for name, value in options.items() if value]:
        raise ConfigError(f"{misplaced[0]} does not go with --directions; leave out one of them")
    learned = _learned_pairs(work.models) if directions in (LEARNED, ALL) else ()
    pairs = _parse(directions, learned)
    _check_names(test, pairs)
    tests = [_of_pair(test, pair) for pair in pairs]
    for one in tests:
        work.check(one)
    learned = learned or _learned_pairs(work.models)
    tests = [replace(one, is_learned=_is_learned(pair, learned)) for one, pair in zip(tests, pairs, strict=True)]
    return DirectionResults({one: work.evaluate(one) for one in tests})


def _parse(directions: str, learned: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Returns the pairs of languages that `--directions` names, each once."""
    if directions in (LEARNED, ALL):
        if not learned:
            raise ConfigError(
                f"--directions {directions} needs a model of several languages, which records its pairs; name "
                "the pairs, e.g. en-de,de-en"
            )
        sources, targets = (list(dict.fromkeys(side)) for side in zip(*learned, strict=True))
        others = ((source, target) for source in sources for target in targets if source != target)
        return list(dict.fromkeys((*learned, *(others if directions == ALL else ()))))
    return list(dict.fromkeys(map(_parse_pair, directions.split(","))))


def _parse_pair(name: str) -> tuple[str, str]:
    from transformer.text.languages import parse_language

    parts = name.strip().split("-")
    for end in range(1, len(parts)):
        source, target = (parse_language("-".join(side)) for side in (parts[:end], parts[end:]))
        if source and target and source != target:
            return source, target
    raise ConfigError(f"--directions: {name.strip()!r} is not a pair of languages (BCP 47); write e.g. en-de,fr-de")


def _is_learned(pair: tuple[str, str], learned: Sequence[tuple[str, str]]) -> bool:
    """Whether a model learned a pair, or records none since it has one direction."""
    from transformer.text.languages import matching_tag

    fits = (all(map(matching_tag, pair, [[tag] for tag in known])) for known in learned)
    return not learned or any(fits)


def _learned_pairs(models: Sequence[Path]) -> tuple[tuple[str, str], ...]:
    """Returns the pairs that the first model learned, if it has several languages."""
    if not models:
        return ()
    from transformer.bundle.languages import recorded_pairs
    from transformer.cli.hub import obtain_model
    from transformer.pipelines.auto import read_model

    obtain_model(models[0])
    return recorded_pairs(read_model(models[0], None))


def _check_names(test: PairTest, pairs: Sequence[tuple[str, str]]) -> None:
    """Checks that the names of the files tell the pairs apart.

    Raises:
        ConfigError: The source, the references or the translations of two pairs would be the same file.
    """
    for option, path in (
        ("--source", test.files.source), *(("--reference", path) for path in test.files.references),
        *(("--translations", path) for path in test.files.translations),
    ):  # fmt: skip
        if path is not None and len(pairs) > 1 and not any(place in str(path) for place in PLACES):
            raise ConfigError(
                f"{option} {path} would be the file of all pairs; write {{source}} and {{target}} for the languages, "
                "e.g. test.{source}"
            )
    if test.output is not None and not all(place in str(test.output) for place in PLACES) and len(pairs) > 1:
        raise ConfigError(
            f"--output {test.output} would be written for all pairs; write {{source}} and {{target}} for the "
            "languages, e.g. out-{source}.{target}"
        )


def _of_pair(test: PairTest, pair: tuple[str, str]) -> PairTest:
    """Returns the test set of a pair of languages."""

    def name(path: Path) -> Path:
        return Path(str(path).replace(PLACES[0], pair[0]).replace(PLACES[1], pair[1]))

    files = TestFiles(
        None if test.files.source is None else name(test.files.source),
        tuple(map(name, test.files.references)),
        tuple(map(name, test.files.translations)),
        tuple(test.files.names),
    )
    output = None if test.output is None else name(test.output)
    return replace(test, files=files, output=output, languages=pair)
