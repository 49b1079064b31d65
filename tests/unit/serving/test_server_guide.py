"""The configurations of the guide to serving, checked by the programs that read them where these are installed."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[3] / "docs/how-to/serve.md"


def block(language: str) -> str:
    """Returns the first block of a language, without its indentation."""
    block = re.search(rf"^( *)```{language}\n(.*?)^\1```", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert block
    return re.sub(rf"^{block[1]}", "", block[2], flags=re.MULTILINE)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """Catches a misspelt directive, which systemd ignores with a warning."""
    unit = tmp_path / "transformer.service"
    unit.write_text(block("ini").replace("/opt/transformer/bin/transformer", sys.executable), encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, str(unit) in done.stderr) == (0, False), done.stderr
    assert "LimitNOFILE=" in unit.read_text(encoding="utf-8")


@pytest.mark.skipif(shutil.which("nginx") is None, reason="there is no nginx")
def test_nginx_accepts_the_configuration(tmp_path: Path) -> None:
    """Catches a misspelt directive, with which nginx does not start."""
    servers = block("nginx").replace("listen 443 ssl", "listen 8443")
    folders = "".join(
        f"{name}_temp_path {tmp_path}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    configuration = tmp_path / "nginx.conf"
    configuration.write_text(
        f"pid {tmp_path}/pid;\nevents {{}}\nhttp {{\naccess_log off;\n{folders}{servers}}}\n", encoding="utf-8"
    )
    command = ["nginx", "-t", "-p", tmp_path, "-e", tmp_path / "errors", "-c", configuration]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
