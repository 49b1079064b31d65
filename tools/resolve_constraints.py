"""Resolves the project's packages from the public index alone, for each version of Python, and installs nothing.

    python tools/resolve_constraints.py --output resolved.json

Settings of pip and local wheels are switched off. A version of Python that is not on this machine is resolved by its
number with the pip of another one; environment markers are then those of the other one. A package that the index lacks
is replaced by an empty one of the same version and named.
"""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
MODEL = "./models/en-de"
REQUESTS = {"torch": ["torch"], "user": [".[plot,serve]", MODEL], "developer": [".[dev]", MODEL]}
"""What is resolved: PyTorch alone, what `make install` needs, and what `make develop` needs."""
MISSING = re.compile(r"No matching distribution found for ([\w.-]+)==([\w.+-]+)")
MAX_STUBS = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a line per version of Python and request.

    Returns:
        0 if everything resolves, otherwise 1.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, help="file for the results, as JSON")
    parser.add_argument("--python", nargs="*", default=VERSIONS, help="versions of Python")
    parser.add_argument("--requests", nargs="*", default=list(REQUESTS), choices=list(REQUESTS), help="what to resolve")
    options = parser.parse_args(arguments)
    rows = []
    for row in resolve_all(options.python, options.requests):
        rows.append(row)
        print(describe(row), flush=True)
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        command = "python tools/resolve_constraints.py"
        options.output.write_text(json.dumps({"command": command, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    return int(any(row["error"] for row in rows))


def describe(row: dict[str, Any]) -> str:
    """Returns a result as one line."""
    result = row["error"] or f"{row['packages']} packages, torch {row['torch']}, triton {row['triton']}"
    stubs = f"; not in the index: {', '.join(row['stubs'])}" if row["stubs"] else ""
    return f"Python {row['python']} ({row['interpreter']}), {row['request']}: {result}{stubs}"


def resolve_all(versions: Sequence[str], requests: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Resolves each request for each version of Python."""
    with tempfile.TemporaryDirectory() as folder:
        pips = {version: _pip(version, Path(folder)) for version in versions}
        for version, (pip, options) in pips.items():
            for request in requests:
                row = resolve(pip, [*options, *REQUESTS[request]], Path(folder))
                where = f"resolved with {platform.python_version()}" if options else "itself"
                yield {"python": version, "interpreter": where, "request": request, **row}


def resolve(pip: Sequence[str], arguments: Sequence[str], folder: Path) -> dict[str, Any]:
    """Resolves one request, with empty packages for those that the index lacks.

    Args:
        pip: Command of a pip.
        arguments: Requirements and options.
        folder: Folder for pip's report and the empty packages.
    """
    report, wheels = folder / "report.json", folder / "stubs"
    shutil.rmtree(wheels, ignore_errors=True)
    wheels.mkdir()
    stubs: list[str] = []
    bare = {name: value for name, value in os.environ.items() if not name.startswith("PIP_") or name == "PIP_CERT"}
    while True:
        command = [
            *pip, "install", "--quiet", "--dry-run", "--ignore-installed", "--constraint", "constraints.txt",
            "--report", str(report), "--find-links", str(wheels), *arguments,
        ]  # fmt: skip
        result = subprocess.run(
            command, cwd=ROOT, env={**bare, "PIP_CONFIG_FILE": os.devnull}, capture_output=True, text=True, check=False
        )
        missing = MISSING.search(result.stderr)
        if result.returncode == 0 or missing is None or len(stubs) == MAX_STUBS:
            break
        stubs.append("==".join(missing.groups()))
        _write_stub(wheels, *missing.groups())
    if result.returncode:
        last = (result.stderr.strip().splitlines() or ["no message"])[-1]
        return {"error": last, "stubs": stubs, "packages": 0, "torch": None, "triton": None}
    installed = {
        item["metadata"]["name"].lower(): item["metadata"]["version"]
        for item in json.loads(report.read_text(encoding="utf-8"))["install"]
    }
    chosen = {name: installed.get(name) for name in ("torch", "triton")}
    return {"error": None, "stubs": stubs, "packages": len(installed), **chosen}


def _pip(version: str, folder: Path) -> tuple[list[str], list[str]]:
    """Returns the command of an up-to-date pip for a version of Python, and its options if it is another version's."""
    interpreter = f"python{version}"
    exists = shutil.which(interpreter) is not None and not subprocess.run(
        [interpreter, "-c", ""], capture_output=True, check=False
    ).returncode  # fmt: skip
    environment = folder / (interpreter if exists else "pip")
    python = environment / "bin" / "python"
    if not python.exists():
        subprocess.run([interpreter if exists else sys.executable, "-m", "venv", environment], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--upgrade", "pip"], check=True)
    if exists:
        return [str(python), "-m", "pip"], []
    tags = [*(f"2_{minor}" for minor in range(5, 40)), "1", "2010", "2014"]
    platforms = [f"--platform=manylinux{'_' if '_' in tag else ''}{tag}_{platform.machine()}" for tag in tags]
    target = f"--target={folder / 'target'}"
    return [str(python), "-m", "pip"], [f"--python-version={version}", "--only-binary=:all:", target, *platforms]


def _write_stub(folder: Path, name: str, version: str) -> None:
    """Writes a wheel without files."""
    name = name.replace("-", "_")
    information = f"{name}-{version}.dist-info"
    with ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{information}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{information}/RECORD", "")


if __name__ == "__main__":
    sys.exit(main())
