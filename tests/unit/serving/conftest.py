"""Fixtures of the tests of the server."""

from pathlib import Path

import pytest

import transformer
from serving_engines import LINES, TRANSLATOR, write_random_model
from serving_fakes import FakeEngine


@pytest.fixture(scope="module")
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture(scope="session")
def expected() -> list[str]:
    """The translations of `LINES`, made in this process."""
    return [result.text for result in transformer.load(TRANSLATOR, precision="float32", workers=1).translations(LINES)]


@pytest.fixture(scope="session")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a GPT with random weights."""
    return write_random_model("gpt", tmp_path_factory.mktemp("models") / "gpt")
