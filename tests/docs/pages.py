"""Runs what the pages of the documentation show, and compares or updates the outputs.

`python tests/docs/pages.py --update docs/how-to/translate.md` writes the outputs that the commands and the Python of a
page have now, for an author to read. Three kinds of code blocks are run or checked:

- `pycon`: Python with `>>>` prompts, one namespace a page, compared as doctest does;
- `console`: `$ command` in bash, followed by what it prints; a line `...` stands for any lines;
- `sh`: not run; the commands of `transformer` and their options must exist.
"""

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>```+)\{?(?:code-block\} )?(?P<language>\w+)[^\n]*\n(?P<text>.*?)^ *(?P=fence) *$",
    re.M | re.S,
)
COMPARED = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Block:
    """A code block of a page.

    Attributes:
        language: Word after the opening fence.
        text: The block without its indentation.
        start: Offset of the text in the page.
        end: Offset of its end.
        indent: Indentation of the fence.
    """

    language: str
    text: str
    start: int
    end: int
    indent: str


@dataclass(frozen=True)
class Example:
    """A command or a Python statement with the output that the page shows and the one it has."""

    source: str
    shown: str
    printed: str

    @property
    def holds(self) -> bool:
        """Whether the page shows the output."""
        return doctest.OutputChecker().check_output(self.shown, self.printed, COMPARED)


def blocks(page: str, *languages: str, offset: int = 0) -> list[Block]:
    """Returns the code blocks of a page in the given languages, those within longer fences too: answers to unfold.

    Args:
        page: Text of the page, or a part of it.
        languages: Languages of the blocks.
        offset: Offset of the text in the page.
    """
    fenced = []
    for match in FENCE.finditer(page):
        start = offset + match.start("text")
        if match["language"] in languages:
            indent = match["indent"]
            text = re.sub(rf"^{indent}", "", match["text"], flags=re.M)
            fenced.append(Block(match["language"], text, start, offset + match.end("text"), indent))
        elif len(match["fence"]) > 3:
            fenced += blocks(match["text"], *languages, offset=start)
    return fenced


@contextmanager
def shell(folder: Path) -> Iterator[dict[str, str]]:
    """Starts the program behind the command `transformer`, and gives the environment in which a page's commands run."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "socket"
        server = [sys.executable, str(Path(__file__).with_name("forks.py")), str(path)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80", "PATH": f"{place}:{os.environ['PATH']}"}
        import forks

        forks.install(Path(place), path)
        with subprocess.Popen(server, stdout=subprocess.PIPE, env=environment) as process:
            assert process.stdout is not None
            process.stdout.readline()
            try:
                yield environment
            finally:
                process.kill()


def run_page(page: str, folder: Path, environment: dict[str, str]) -> Iterator[tuple[Block, list[Example]]]:
    """Runs the blocks of a page in their order.

    Args:
        page: Text of the page.
        folder: Working directory.
        environment: Environment of the commands.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page, "pycon", "console"):
        if block.language == "console":
            yield block, [_command(*part, folder, environment) for part in commands(block.text)]
        else:
            with contextlib.chdir(folder):
                yield (
                    block,
                    [_statement(example, names) for example in doctest.DocTestParser().get_examples(block.text)],
                )


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Splits a console block into commands and what they print."""
    for part in re.split(r"^(?=\$ )", text, flags=re.M):
        if part.startswith("$ "):
            lines = part[2:].splitlines(keepends=True)
            length = 1
            while lines[length - 1].endswith("\\\n"):
                length += 1
            yield "".join(lines[:length]).rstrip("\n"), "".join(lines[length:])


def _command(command: str, shown: str, folder: Path, environment: dict[str, str]) -> Example:
    result = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=120,
    )  # fmt: skip
    return Example(command, shown, result.stdout)


def _statement(example: doctest.Example, names: dict[str, Any]) -> Example:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*unsure", UserWarning)  # the model of the pages is trained for seconds
        try:
            exec(compile(example.source, "<page>", "single"), names)
        except Exception as error:
            # As doctest does: the frames of a traceback are not compared.
            print("Traceback (most recent call last):\n    ...")
            print(f"{type(error).__module__}.{type(error).__qualname__}: {error}".removeprefix("builtins."))
    return Example(example.source, example.want, printed.getvalue())


def updated(page: str, folder: Path, environment: dict[str, str]) -> str:
    """Returns a page with the outputs that its blocks have now; those that hold stay as they are, with their `...`."""
    pieces, position = [], 0
    for block, examples in run_page(page, folder, environment):
        text = "".join(_written(block.language, example) for example in examples)
        text = re.sub(r"^(?=.)", block.indent, text, flags=re.M)
        pieces += [page[position : block.start], text]
        position = block.end
    return "".join([*pieces, page[position:]])


def _written(language: str, example: Example) -> str:
    printed = example.shown if example.holds else example.printed
    if language == "console":
        return f"$ {example.source}\n{printed}"
    lines = example.source.splitlines()
    prompts = [">>> ", *["... "] * (len(lines) - 1)]
    return "".join(f"{prompt}{line}".rstrip() + "\n" for prompt, line in zip(prompts, lines, strict=True)) + printed


def options_of_program() -> dict[str, set[str]]:
    """Returns the options of each command, with the old spellings."""
    import typer

    from transformer.cli.app import COMMANDS, make_app

    group: Any = typer.main.get_command(make_app(COMMANDS))
    return {
        name: {
            "-h",
            "--help",
            *(word for parameter in command.params for word in (*parameter.opts, *parameter.secondary_opts)),
        }
        for name, command in group.commands.items()
    }


def unknown_words(script: str, known: dict[str, set[str]]) -> list[str]:
    """Returns the commands and options of a script that the program does not have."""
    unknown = []
    for line in script.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if "transformer" not in words:
            continue
        name, *rest = [*words[words.index("transformer") + 1 :], ""]
        if name not in known:
            if name not in ("", "--version", "--help", "--install-completion", "COMMAND"):
                unknown.append(f"transformer {name}")
            continue
        rest = rest[: rest.index("|")] if "|" in rest else rest
        if name == "launch" and "--" in rest:
            launched = rest[rest.index("--") + 1 :]
            unknown += unknown_words(f"transformer {' '.join(launched)}", known)
            rest = rest[: rest.index("--")]
        unknown += [
            f"{name} {word}" for word in rest if word.startswith("--") and word.split("=")[0] not in known[name]
        ]
    return unknown


def sandbox(folder: Path) -> None:
    """Writes the files that pages mention: a corpus, test files, new lines and a run folder."""
    from transformer.demo.corpus import load_phrasebook

    book = load_phrasebook()
    for name, pairs in (("corpus", book.train[:2000]), ("test", book.test[:50]), ("new", book.test[50:55])):
        for suffix, side in (("en", 0), ("de", 1)):
            text = "".join(f"{pair[side]}\n" for pair in pairs)
            (folder / f"{name}.{suffix}").write_text(text, encoding="utf-8")


def main() -> None:
    """Updates the pages named on the command line."""
    for name in [word for word in sys.argv[1:] if word != "--update"]:
        path = Path(name).resolve()
        with tempfile.TemporaryDirectory() as place, shell(Path(place)) as environment:
            sandbox(Path(place))
            training = "transformer train corpus.en corpus.de --set model.d_model=64 --quiet"
            subprocess.run(["bash", "-c", training], cwd=place, env=environment, check=True)
            text = path.read_text(encoding="utf-8")
            new = updated(text, Path(place), environment)
        if "--update" in sys.argv:
            path.write_text(new, encoding="utf-8")
        print(f"{name}: {'unchanged' if new == text else 'outputs differ'}")


if __name__ == "__main__":
    main()
