"""Runs the requests and clients of the guide to the server against a server."""

import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pages
import pytest

from samples import ROOT
from serving_engines import write_random_model

PAGE = (ROOT / "docs" / "how-to" / "serve.md").read_text(encoding="utf-8")
MODEL = ROOT / "models" / "en-de" / "transformer_model_en_de" / "bundle"
LIMIT = 60
"""Seconds after which a wait fails the test."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Starts a server of the models that the page names; yields its host and port."""
    folder = tmp_path_factory.mktemp("serve")
    gpt, minilm = write_random_model("gpt", folder / "gpt"), write_random_model("bert", folder / "minilm")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"localhost:{listener.getsockname()[1]}"
    command = [sys.executable, "-m", "transformer", "serve", "--port", address.partition(":")[2], "--workers", "1"]
    log = folder / "log"
    with log.open("wb") as file:
        models = [f"en-de={MODEL}", f"gpt={gpt}", f"minilm={minilm}"]
        process = subprocess.Popen([*command, *models], stdout=file, stderr=file)
    try:
        deadline = time.monotonic() + LIMIT
        while not is_live(address):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield address
    finally:
        process.terminate()
        assert process.wait(LIMIT) == 0, log.read_text()


def is_live(address: str) -> bool:
    """Whether a server answers."""
    try:
        with urllib.request.urlopen(f"http://{address}/live", timeout=LIMIT):
            return True
    except OSError:
        return False


PO = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "Good morning."\nmsgstr ""\n'


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_requests_of_the_guide(address: str, tmp_path: Path) -> None:
    """Catches a request of the guide that fails, or is answered in another way than shown."""
    blocks = pages.blocks(PAGE.replace("localhost:5000", address), "shell")
    examples = [part for block in blocks for part in pages.commands(block.text)]
    assert len(examples) >= 3
    (tmp_path / "app.po").write_text(PO, encoding="utf-8")  # the file of the reader
    for command, shown in examples:
        ended = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=LIMIT
        )
        printed = ended.stdout + ("" if ended.stdout.endswith("\n") else "\n")
        assert pages.Example(command, shown, printed).holds, f"{command}\n{printed}{ended.stderr}"
        assert "error" not in printed


def test_clients_of_the_guide(address: str, tmp_path: Path) -> None:
    """Catches Python of the guide that fails, or prints something else than its comments say."""
    blocks = pages.blocks(PAGE.replace("localhost:5000", address), "python")
    assert len(blocks) == 3
    for block in blocks:
        ended = subprocess.run(
            [sys.executable, "-c", block.text], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=LIMIT
        )
        assert ended.returncode == 0, ended.stderr
        for comment in re.findall(r"\)  # (.*)$", block.text, re.MULTILINE):
            assert comment in ended.stdout.splitlines()
