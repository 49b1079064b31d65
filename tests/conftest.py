"""Shared fixtures, a tiny corpus and a tiny trained run among them, and settings of all test runs."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jaxtyping
import pytest
import torch
from filelock import FileLock
from hypothesis import HealthCheck, settings

from commands import Commands, close
from opened import CHROMIUM
from samples import ROOT, digit_pairs, tiny_recipe, write_lines
from shapes import begin_test, unchecked_shapes
from skipped import skip_summary

NOT_CHECKED = {"transformer.kernels.triton_kernels"}
"""Modules whose annotations are not checked, because Triton compiles their source code."""


def tensor_modules() -> list[str]:
    """Returns the modules of the package that import torch, numpy or jaxtyping."""
    source = ROOT / "src"
    imports = re.compile(r"^\s*(?:import|from) (?:torch|numpy|jaxtyping)\b", re.MULTILINE)
    files = [path for path in source.rglob("*.py") if path.name != "__init__.py"]
    importing = [path for path in files if imports.search(path.read_text(encoding="utf-8"))]
    return sorted({".".join(path.relative_to(source).with_suffix("").parts) for path in importing} - NOT_CHECKED)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option to run without shape checks, which torch.compile needs."""
    parser.addoption("--no-shapes", action="store_true", help="do not check annotated shapes while tests run")


def pytest_configure(config: pytest.Config) -> None:
    """Enables shape checks and makes runs reproducible.

    Torch uses one thread: tests are small, and bit-for-bit equality is guaranteed for one thread. Without a GPU, Triton
    interprets the GPU kernels, which must be set before they are imported. Hypothesis draws the same examples in every
    run and has no deadline. Colour settings of the terminal are removed, so that they do not affect the output of
    commands.
    """
    if not config.getoption("--no-shapes"):
        jaxtyping.install_import_hook(tensor_modules(), "shapes.check")
    torch.set_num_threads(1)
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        os.environ.pop(name, None)
    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"
    settings.register_profile(
        "unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, database=None
    )
    settings.load_profile("unhurried")


SLOW_FOLDERS = {"compile", "faults", "learning", "docs"}
"""Folders whose tests run whole commands, train or compile models; all of them are slow."""
TIME_LIMITS = {"soak": 7200, "interop": 3600, "slow": 900}
"""Seconds after which a test of a tier is stopped and named, because it hangs."""
FAST_TEST_LIMIT = 120
"""The same for fast tests: eight times what the longest of them takes on two busy cores."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests of `SLOW_FOLDERS` as slow, and limits the time of each test by its tier."""
    for item in items:
        is_slow_folder = item.path.relative_to(ROOT / "tests").parts[0] in SLOW_FOLDERS
        if is_slow_folder and item.get_closest_marker("soak") is None:
            item.add_marker("slow")
        tier = next((tier for tier in TIME_LIMITS if item.get_closest_marker(tier)), None)
        item.add_marker(pytest.mark.timeout(TIME_LIMITS[tier] if tier else FAST_TEST_LIMIT))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Writes the skipped tests to the summary of a GitHub workflow."""
    if (path := os.environ.get("GITHUB_STEP_SUMMARY")) and not hasattr(config, "workerinput"):
        command = " ".join(["pytest", *config.invocation_params.args])
        summary = skip_summary(terminalreporter.stats.get("skipped", []), command)
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(summary)


def pytest_unconfigure() -> None:
    """Ends the process that forks commands."""
    close()


@pytest.fixture(autouse=True)
def _shapes(request: pytest.FixtureRequest) -> None:
    """Turns shape checks on, except in folders that train models, where they would take most of the time."""
    begin_test(checked=request.path.relative_to(ROOT / "tests").parts[0] not in SLOW_FOLDERS)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Seeds torch before every test, and resets the threads that the test before may have changed."""
    torch.manual_seed(7)
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """A server of commands for one module."""
    with Commands(tmp_path_factory.mktemp("commands")) as running:
        yield running


@pytest.fixture(scope="session")
def digit_corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Returns the two text files, source and target, of 600 pairs."""
    folder = tmp_path_factory.mktemp("digits")
    pairs = digit_pairs(600)
    return (
        write_lines(folder / "digits.src", [source for source, _ in pairs]),
        write_lines(folder / "digits.tgt", [target for _, target in pairs]),
    )


@pytest.fixture(scope="session")
def tiny_run(digit_corpus: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """Returns the folder of a finished run of the tiny recipe, whose model generates a few digits and stops.

    It is trained only once for all test processes.
    """
    from transformer.run.recipe import parse_recipe
    from transformer.run.train import train

    folder = tmp_path_factory.getbasetemp()
    folder = (folder if worker_id == "master" else folder.parent) / "tiny-run"
    training = {"max_steps": 200, "warmup_steps": 200, "batch_tokens": 1024, "validate_every": 100, "save_every": 100}
    with FileLock(f"{folder}.lock"), unchecked_shapes():
        if not (folder / "done").exists():
            train(parse_recipe(tiny_recipe(digit_corpus, **training)), folder / "tiny", quiet=True)
            (folder / "done").touch()
    return folder / "tiny"


@pytest.fixture(scope="module")  # while it is open, no other test of its process can run an event loop
def browser() -> Iterator[Any]:
    """Starts Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield browser
        browser.close()
