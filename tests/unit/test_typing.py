"""Types that reach users: what an editor completes, and what a type checker refuses before it runs."""

import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from transformer.decoding import Search, SearchOptions
from transformer.pipelines.translation.config import TranslatorConfig, TranslatorOptions

PROGRAM = """
import transformer

translator = transformer.load("en-de", max_source_tokens=50)
reveal_type(translator)
reveal_type(translator("Hi"))
reveal_type(translator.translate(["Hi"], beam=4))
reveal_type(translator.translate(["Hi"], n_best=2))
translator("Hi", beems=3)
translator("Hi", beam="4")
transformer.load("en-de", max_source=50)
"""


def test_keyword_arguments_are_the_fields() -> None:
    """Catches a field of the search, or a setting, that editors do not complete."""
    assert set(SearchOptions.__annotations__) == {field.name for field in fields(Search)} - {"n_best"}
    explicit = {"search", "workers"}
    assert set(TranslatorOptions.__annotations__) == {field.name for field in fields(TranslatorConfig)} - explicit


@pytest.mark.slow
def test_types_reach_the_user(tmp_path: Path) -> None:
    """Catches a loaded model without a type, and misspelled options that pass."""
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [Path(sys.executable).with_name("basedpyright"), "--outputjson", "--pythonpath", sys.executable]
    result = subprocess.run([*command, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    messages = json.loads(result.stdout)["generalDiagnostics"]
    revealed = [message["message"] for message in messages if message["severity"] == "information"]
    types = [text.partition(" is ")[2].strip('"') for text in revealed]
    assert types == ["Translator", "str", "list[str]", "list[list[str]]"]
    errors = [message for message in messages if message["severity"] == "error"]
    refused = {(message["range"]["start"]["line"] + 1, message["rule"]) for message in errors}
    assert {(9, "reportCallIssue"), (10, "reportArgumentType"), (11, "reportCallIssue")} <= refused
