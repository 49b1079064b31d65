"""Every command that writes, on a full disk and with a closed standard output."""

import json
import os
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from commands import Commands
from samples import digit_pairs, write_lines, write_recipe
from transformer.bundle import Bundle, save_bundle
from transformer.models import family
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair, train_tokenizer

WRITERS = {
    "average": ("average {run} {run} --output {out}", "{out}"),
    "export": ("export {run} --output {out}", "{out}"),
    "import": ("import {published} --output {out}", "{out}"),
    "quantize": ("quantize {run} --source {few} --reference {few} --tolerance 100 --output {out}", "{out}"),
    "shortlist": ("shortlist {run} --source {source} --target {target} --output {out}", "{out}"),
    "prepare": ("prepare {recipe} --output {out}", "{out}/"),
    "prepare a text": ("prepare {text_recipe} --output {out}", "{out}/"),
    "check": ("check {source} {target} --format html --output {out}", "{out}"),
    "filter": ("filter {source} {target} --output {out}.tsv", "{out}.tsv"),
    "backtranslate": ("backtranslate {run} {source} --output {out}.tsv", "{out}.tsv.part"),
    "distill": (
        "distill {run} {source} --student {recipe} --run {out} --set data.validation_source={few} "
        "--set data.validation_target={few}",
        "{out}/distilled.tsv.part",
    ),
    "evaluate, report": ("evaluate --translations {few} --reference {few} --report {out}", "{out}"),
    "evaluate, output": ("evaluate {run} --source {source} --reference {target} --bootstrap 0 --output {out}", "{out}"),
    "translate": ("translate {run} --input {source} --output {out}", "{out}"),
    "translate, document": ("translate {run} --input {po} --output {out}", "{out}"),
    "translate, report": ("translate {run} --input {messages} --output /dev/null --report {out}.tsv", "{out}.tsv"),
    "translate, alignment": ("translate {run} --input {source} --output /dev/null --alignment {out}", "{out}"),
    "translate, attention": ("translate {run} --input {few} --output /dev/null --attention {out}", "{out}"),
    "score": ("score {run} --source {source} --target {target} --output {out}", "{out}"),
    "generate": ("generate {gpt} --input {source} --max-tokens 3 --output {out}", "{out}"),
    "classify": ("classify {bert} --input {source} --output {out}", "{out}"),
    "embed": ("embed {bert} --input {source} --output {out}", "{out}"),
    "embed, array": ("embed {bert} --input {source} --output {out}.npy", "{out}.npy"),
    "demo": ("demo --folder {out}", "{out}/corpus/train.en"),
}
"""Command of each writer, and the beginning of the path that its message names. A demo that has room takes minutes."""
CONTINUED = {"backtranslate": {"out.tsv.part", "out.tsv.part.json"}, "distill": {"out"}}
"""What a writer leaves so that the same command can continue."""
SIZE_LIMIT = 4000
"""Maximum bytes of a file, fewer than each output has, but more than the notes on standard error."""
MEASURED = {"average", "export", "import", "quantize"}
"""Writers that compare the size of a model with the free space before they write it."""
STREAMED = {
    "evaluate, output",
    "translate",
    "translate, alignment",
    "translate, attention",
    "score",
    "generate",
    "classify",
}


@pytest.fixture(scope="module")
def names(tiny_run: Path, digit_corpus: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Paths that the commands of `WRITERS` read."""
    folder = tmp_path_factory.mktemp("inputs")
    names = {"run": tiny_run, "source": digit_corpus[0], "target": digit_corpus[1]}
    names["few"] = write_lines(folder / "few", [source for source, _ in digit_pairs(40)])
    names["po"] = folder / "app.po"
    names["po"].write_text(
        "\n".join(f'msgid "{source} {n}"\nmsgstr ""\n' for n, (source, _) in enumerate(digit_pairs(200)))
    )
    names["messages"] = folder / "messages.json"
    names["messages"].write_text(json.dumps([f"one {{x, plural, one {{{n}" for n in range(200)]))
    names["recipe"], names["text_recipe"] = write_recipe(folder, digit_corpus), folder / "text.toml"
    names["text_recipe"].write_text(f'[data]\ntask = "language-model"\ntext = "{digit_corpus[0]}"\n')
    tokenizer = train_tokenizer(digit_corpus[0].read_text().splitlines(), TokenizerConfig(kind="characters"))
    for name, sizes in (("gpt", {"seq_len": 64}), ("bert", {"seq_len": 64, "labels": ("cold", "hot"), "d_ff": 20})):
        kind = family(name)
        sizes |= {"d_model": 16, "N": 1, "h": 2, "vocab_size": tokenizer.vocab_size}
        config = kind.config.model_validate(sizes)
        torch.manual_seed(1)
        save_bundle(folder / name, Bundle(config, kind.build(config), TokenizerPair(tokenizer, tokenizer)))
        names[name] = folder / name
    return names


@pytest.fixture(scope="module")
def published(commands: Commands, names: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published") / "hf"
    result = commands("export", names["gpt"], "--output", folder)
    assert result.returncode == 0, result.stderr
    return folder


@contextmanager
def small_disk(folder: Path) -> Generator[None]:
    """Mounts a file system of 8 MiB whose blocks are all in use."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small tmpfs is not permitted here")
    try:
        (folder / "filler").write_bytes(bytes(8 << 20))
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def assert_told(result: "subprocess.CompletedProcess[str]", path: str, reason: str) -> None:
    """Checks for one line of error that names the path; notes may precede it."""
    lines = result.stderr.splitlines()
    assert result.returncode == 2, result.stderr
    assert lines[-1].startswith(f"error: {path}"), result.stderr
    assert reason in lines[-1]
    assert not any("Traceback" in line or "Exception ignored" in line for line in lines)
    assert sum(line.startswith("error:") for line in lines) == 1


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("fault", ["size limit", "full disk"])
def test_nothing_stands_under_the_final_name(
    commands: Commands, names: dict[str, Path], published: Path, tmp_path: Path, name: str, fault: str
) -> None:
    """Catches tracebacks, cut files that look like results, leftovers, and a second try that is refused.

    Where mounting is not permitted, the size limit alone shows it.
    """
    line, path = WRITERS[name]
    disk = tmp_path / "disk"
    arguments = line.format(**names, published=published, out=disk / "out").split()
    final = disk / {
        "embed, array": "out.npy", "filter": "out.tsv", "backtranslate": "out.tsv", "translate, report": "out.tsv",
    }.get(name, "out")  # fmt: skip

    def check(result: "subprocess.CompletedProcess[str]", reason: str, left: Callable[[], set[str]]) -> None:
        assert_told(result, path.format(out=disk / "out"), reason)
        incomplete = {"out.incomplete"} if name in STREAMED else CONTINUED.get(name, set[str]())
        assert left() <= {"filler", *incomplete} | ({"out"} if name in ("prepare", "prepare a text", "demo") else set())

    def left() -> set[str]:
        return {entry.name for entry in disk.iterdir()}

    if fault == "size limit":
        disk.mkdir()
        check(commands(*arguments, file_size=SIZE_LIMIT), "File too large", left)
        assert_works(commands, arguments, final, name)
        return
    with small_disk(disk):
        check(commands(*arguments), "are free" if name in MEASURED else "No space left on device", left)
        (disk / "filler").unlink()
        assert_works(commands, arguments, final, name)


def assert_works(commands: Commands, arguments: list[str], final: Path, name: str) -> None:
    """Checks that the same command works once there is room."""
    if name == "demo":
        return
    result = commands(*arguments)
    assert result.returncode in ((0, 1) if name == "check" else (0,)), result.stderr
    assert final.exists()


def test_an_older_result_survives(commands: Commands, names: dict[str, Path], tmp_path: Path) -> None:
    """Catches a report that is lost because the newer one does not fit."""
    page = tmp_path / "page.html"
    page.write_text("older")
    page.chmod(0o604)
    arguments = f"check {names['source']} {names['target']} --format html --output {page}".split()
    assert_told(commands(*arguments, file_size=SIZE_LIMIT), str(page), "File too large")
    assert page.read_text() == "older"
    link = tmp_path / "link.html"
    link.symlink_to(page)
    assert commands(*arguments[:-1], link).returncode in (0, 1)
    assert "<html" in page.read_text()
    assert page.stat().st_mode & 0o777 == 0o604, "other people could read the older one"
    assert {entry.name for entry in tmp_path.iterdir()} == {"page.html", "link.html"}


def test_an_empty_mount_point_is_filled(commands: Commands, names: dict[str, Path], tmp_path: Path) -> None:
    """Catches a volume of a container, which no folder can be renamed to."""
    with small_disk(tmp_path / "disk"):
        (tmp_path / "disk" / "filler").unlink()
        result = commands("export", names["gpt"], "--output", tmp_path / "disk")
        assert result.returncode == 0, result.stderr
        assert {"config.json", "model.safetensors"} <= {path.name for path in (tmp_path / "disk").iterdir()}
        assert not list((tmp_path / "disk").glob(".*"))


PRINTERS = {
    "translate": "translate {run} --input {few}",
    "score": "score {run} --source {few} --target {few}",
    "evaluate": "evaluate --translations {few} --reference {few}",
    "check": "check {few} {few}",
    "info": "info {run}",
    "generate": "generate {gpt} one --max-tokens 3",
    "generate, streamed": "generate {gpt} --input {few} --max-tokens 3",
    "perplexity": "perplexity {gpt} {few}",
    "classify": "classify {bert} one",
    "embed": "embed {bert} --input {few}",
    "nearest": "embed {bert} --input {few} --nearest one",
}


@pytest.mark.parametrize("name", PRINTERS)
def test_a_result_that_cannot_be_printed_is_an_error(
    commands: Commands, names: dict[str, Path], tmp_path: Path, name: str
) -> None:
    """Catches success reported although everything was lost, and reports of the interpreter at its end."""
    arguments = PRINTERS[name].format(**names).split()
    assert_told(commands(*arguments, closed=1), "standard output: it is closed", "")
    if Path("/dev/full").exists():
        full = commands(*arguments, stdout="/dev/full")
        assert_told(full, "standard output: No space left on device", "")


def test_a_closed_standard_output_that_nobody_needs(commands: Commands, names: dict[str, Path], tmp_path: Path) -> None:
    """Catches a refusal although the translations go to a file."""
    arguments = ["translate", names["run"], "--input", names["few"], "--output", tmp_path / "out"]
    assert commands(*arguments, closed=1).returncode == 0
    assert (tmp_path / "out").read_bytes().count(b"\n") == 40
