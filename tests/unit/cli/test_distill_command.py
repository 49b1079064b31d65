"""`transformer distill`: the pairs that a student is trained on, its stages, and continuing after a stop."""

from pathlib import Path

import pytest
import sacrebleu

from commands import Commands, run
from samples import digit_pairs, write_lines, write_recipe

N_LINES = 250


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Returns a source text with an empty line, and its references."""
    folder = tmp_path_factory.mktemp("texts")
    source, target = zip(*[("", ""), *digit_pairs(N_LINES - 1, seed=9)], strict=True)
    return write_lines(folder / "text.en", source), write_lines(folder / "text.de", target)


@pytest.fixture(scope="module")
def student(texts: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a recipe whose training text does not exist, since distill replaces it."""
    folder = tmp_path_factory.mktemp("student")
    recipe = write_recipe(folder, (folder / "no.en", folder / "no.de"))
    validation = f'[data]\nvalidation_source = "{texts[0]}"\nvalidation_target = "{texts[1]}"\nweights = [2]\n'
    recipe.write_text(recipe.read_text().replace("[data]\n", validation))
    return recipe


def rows_of(table: Path) -> list[list[str]]:
    """Returns the cells of a table."""
    return [line.split("\t") for line in table.read_text().split("\n")[:-1]]


def distill(*arguments: object) -> str:
    """Runs the command, which must succeed, and returns what it says."""
    result = run("distill", *arguments)
    assert result.returncode == 0, result.stderr
    return result.stderr


def test_all_stages(tiny_run: Path, texts: tuple[Path, Path], student: Path, tmp_path: Path) -> None:
    """Catches a stage that is left out or done again, and a student trained on the text of its recipe."""
    folder = tmp_path / "out"
    command = (tiny_run, tiny_run, texts[0], "--student", student, "--run", folder, "--reverse", tiny_run)
    options = (
        "--share",
        0.5,
        "--allow",
        "numbers,copy,script,other-side,foreign,length-ratio,no-partner,poor-fit,duplicate",
        "--tolerance",
        100,
    )
    said = distill(*command, *options)
    kept, dropped = rows_of(folder / "kept.tsv"), rows_of(folder / "dropped.tsv")
    assert sorted([*kept, *([source, target] for _, _, source, target in dropped)]) == sorted(
        rows_of(folder / "distilled.tsv")
    )
    n_low = sum(reason == "low-score" for reason, *_ in dropped)
    assert abs(len(kept) - n_low) <= 1, "half of the pairs that no rule drops"
    assert f"{len(kept)} read" in "".join(said.split(","))
    assert "kept.tsv" in (folder / "student" / "recipe.toml").read_text()
    shortlist = folder / "shortlist.safetensors"
    assert run("translate", folder / "int8", "--shortlist", shortlist, "one two").returncode == 0
    times = {path: path.stat().st_mtime_ns for path in folder.iterdir() if path.is_file()}
    distill(*command, *options)
    assert times == {path: path.stat().st_mtime_ns for path in folder.iterdir() if path.is_file()}
    result = run("distill", *command, *options[:1], 0.6, *options[2:])
    assert result.returncode == 2
    assert "kept.tsv was written with another share; remove it to start anew" in result.stderr


def test_the_hypothesis_most_like_the_reference_is_taken(
    tiny_run: Path, texts: tuple[Path, Path], student: Path, tmp_path: Path
) -> None:
    """Catches the best hypothesis taken in spite of the references, and references of other lines."""
    options = ("--student", student, "--beam", 4, "--run", tmp_path, "--shard", "1/1")
    distill(tiny_run, texts[0], *options, "--target", texts[1], "--by-reference")
    chosen = rows_of(tmp_path / "distilled-1-of-1.tsv")
    lines, references = (path.read_text().split("\n")[:-1] for path in texts)
    printed = run("translate", tiny_run, "--input", texts[0], "--beam", 4, "--n-best", 4).stdout
    hypotheses: dict[int, list[str]] = {}
    for row in printed.split("\n")[:-1]:
        number, text, _ = row.split(" ||| ")
        hypotheses.setdefault(int(number), []).append(text)
    differs = False
    for number, (line, reference) in enumerate(zip(lines, references, strict=True), start=1):
        best = max(hypotheses[number], key=lambda text: sacrebleu.sentence_chrf(text, [reference]).score)
        assert chosen[number - 1] == [line, best]
        differs |= best != hypotheses[number][0]
    assert differs


def test_shards_are_the_whole_and_a_stopped_one_continues(
    tiny_run: Path, texts: tuple[Path, Path], student: Path, tmp_path: Path
) -> None:
    """Catches lines that are lost or doubled between shards, samples that depend on them, and rows that were cut."""
    command = (tiny_run, texts[0], "--student", student, "--sample", "--seed", 3)
    distill(*command, "--run", tmp_path / "whole", "--shard", "1/1")
    (folder := tmp_path / "parts").mkdir()
    with Commands(tmp_path) as commands:
        stopped = commands("distill", *command, "--run", folder, "--shard", "2/3", file_size=1_501)
    assert stopped.returncode == 2
    assert "distilled-2-of-3.tsv.part: File too large" in stopped.stderr
    for number in (3, 1, 2):
        said = distill(*command, "--run", folder, "--shard", f"{number}/3")
        assert ("continues behind line" in said) == (number == 2)
    parts = [(folder / f"distilled-{number}-of-3.tsv").read_bytes() for number in (1, 2, 3)]
    assert b"".join(parts) == (tmp_path / "whole" / "distilled-1-of-1.tsv").read_bytes()
    assert [part.count(b"\n") for part in parts] == [83, 83, 84]
    result = run("distill", *command, "--run", folder, "--shard", "2/3", "--beam", 2)
    assert "distilled-2-of-3.tsv was written with another search; remove it to start anew" in result.stderr


def test_shards_are_joined(tiny_run: Path, texts: tuple[Path, Path], student: Path, tmp_path: Path) -> None:
    """Catches parts in the order of their names, 10 before 2, and parts of another command."""
    few = write_lines(tmp_path / "few.en", texts[0].read_text().split("\n")[:20])
    command = (tiny_run, few, "--student", student, "--run", tmp_path)
    for number in range(1, 12):
        distill(*command, "--shard", f"{number}/11")
    result = run("distill", *command, "--by-reference", "--beam", 4, "--target", few)
    assert "was written with another references and search" in result.stderr
    result = run("distill", *command, "--share", 0)
    assert "no pair is left" in result.stderr
    assert [row[0] for row in rows_of(tmp_path / "distilled.tsv")] == few.read_text().split("\n")[:-1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--by-reference"], "--by-reference chooses among hypotheses by the references; add --target FILE"),
        (["--by-reference", "--target", "{target}"], "by the references; add --beam 8"),
        (["--with-references"], "--with-references has no effect without --target"),
        (["--reverse", "x"], "--reverse has no effect without --share; add e.g. --share 0.9"),
        (["--target", "{student}"], "give each line its translation"),
        (["--shard", "3/2"], "--shard '3/2' is not K/N with K from 1 to N; write e.g. 1/4"),
        (["--allow", "x"], "--allow 'x' is unknown; choose from"),
        (["--student", "{bare}"], "data.validation_source is missing, on which the student"),
        (["--student", "{gpt}"], "does not train a translation model"),
    ],
)
def test_what_is_refused_before_the_work(
    tiny_run: Path, texts: tuple[Path, Path], student: Path, tmp_path: Path, options: list[str], message: str
) -> None:
    """Catches a mistake that is found after hours of translation."""
    bare, gpt = tmp_path / "bare.toml", tmp_path / "gpt.toml"
    bare.write_text("[training]\nmax_steps = 1\n")
    gpt.write_text('[data]\ntask = "language-model"\ntext = "x"\n')
    names = {"target": texts[1], "student": student, "bare": bare, "gpt": gpt}
    arguments = [option.format(**names) for option in options]
    result = run("distill", tiny_run, texts[0], "--student", student, "--run", tmp_path / "out", *arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert not (tmp_path / "out").exists()
