"""Installs PyTorch: without an NVIDIA GPU the build for CPUs, because the one with CUDA takes several gigabytes.

`make install` runs this with the Python of the new environment:

    python tools/install_torch.py --constraint constraints.txt

The environment variable TORCH_INDEX overrides the choice: the address of a package index, or `default` for the indexes
that pip uses anyway. Only the standard library and pip are needed.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import Request, url2pathname, urlopen

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
VARIABLE = "TORCH_INDEX"
SOURCES = ("index-url", "extra-index-url", "find-links", "no-index")
"""Settings of pip that say where packages come from."""
TIMEOUT_SECONDS = 20


@dataclass(frozen=True)
class Download:
    """The files that pip would download.

    Args:
        version: Version of torch, e.g. "2.13.0+cpu".
        has_cuda: Whether this build needs the libraries of CUDA.
        n_packages: Number of files.
        n_bytes: Their total size; None if a server does not tell.
    """

    version: str
    has_cuda: bool
    n_packages: int
    n_bytes: int | None

    def __str__(self) -> str:
        build = "with CUDA" if self.has_cuda else "without CUDA"
        size = "of unknown size" if self.n_bytes is None else f"{self.n_bytes / 1e6:,.0f} MB to download"
        packages = f" in {self.n_packages} packages" if self.n_packages > 1 else ""
        return f"PyTorch {self.version}, the build {build}: {size}{packages}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Chooses a build, prints which one and its size, and installs it.

    Returns:
        The exit status of pip.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--constraint", type=Path, required=True, help="file of versions for pip")
    parser.add_argument("--dry-run", action="store_true", help="print the choice and install nothing")
    options = parser.parse_args(arguments)
    constraint = ["--constraint", str(options.constraint)]
    sources, reason = choose_sources(
        os.environ.get(VARIABLE, ""), is_configured=has_package_sources(pip_settings()), has_gpu=has_nvidia_gpu()
    )
    download = resolve([*sources, *constraint])
    if download is None and sources and not os.environ.get(VARIABLE):
        sources, reason = [], f"{CPU_INDEX} cannot be used here; set {VARIABLE} to another index of builds for CPUs"
        download = resolve(constraint)
    print(f"{download or 'PyTorch'} ({reason})", file=sys.stderr, flush=True)
    if options.dry_run:
        return 0 if download else 1
    # All else that torch needs comes from the usual index, which has the versions of the constraints.
    without_requirements = ["--no-deps"] if sources else []
    return run_pip(["install", "torch", *sources, *without_requirements, *constraint])


def choose_sources(override: str, *, is_configured: bool, has_gpu: bool) -> tuple[list[str], str]:
    """Returns pip's options for the index of torch, none for the usual indexes, and the reason.

    Args:
        override: Value of TORCH_INDEX; empty if it is not set.
        is_configured: Whether pip has been told where packages come from; then that is used.
        has_gpu: Whether there is an NVIDIA GPU.
    """
    if override == "default":
        return [], f"{VARIABLE}=default"
    if override:
        return ["--index-url", override], f"{VARIABLE}={override}"
    if is_configured:
        return [], f"from the packages that pip is configured to use; {VARIABLE} overrides it"
    if has_gpu:
        return [], f"an NVIDIA GPU was found; {VARIABLE}={CPU_INDEX} takes the small build"
    if sys.platform != "linux":
        return [], f"there is one build for {sys.platform}"
    return ["--index-url", CPU_INDEX], f"no NVIDIA GPU was found; {VARIABLE}=default takes the build for GPUs"


def has_nvidia_gpu() -> bool:
    """Whether the driver of NVIDIA lists a GPU."""
    return shutil.which("nvidia-smi") is not None and b"GPU" in subprocess.run(
        ["nvidia-smi", "--list-gpus"], capture_output=True, check=False
    ).stdout  # fmt: skip


def pip_settings() -> list[str]:
    """Returns the lines of `pip config list`: files and environment variables."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()


def has_package_sources(settings: Sequence[str]) -> bool:
    """Whether settings of pip say where packages come from.

    Args:
        settings: Lines such as `global.index-url='https://example.org/simple'`; an empty value says nothing.
    """
    named = (line.split("=", 1) for line in settings if "=" in line)
    return any(key.rpartition(".")[2] in SOURCES and value.strip("'\" ") for key, value in named)


def resolve(options: Sequence[str]) -> Download | None:
    """Asks pip what it would download for torch; None if it finds no build.

    The requirements of a build are counted only if it has CUDA, since the others are small.
    """
    items = report([*options, "--no-deps"])
    if not items:
        return None
    [torch] = items
    has_cuda = any(name.startswith(("nvidia", "cuda")) for name in torch["metadata"].get("requires_dist", ()))
    if has_cuda:
        items = report(options) or items
    with ThreadPoolExecutor(8) as pool:
        sizes = list(pool.map(size_of, (item["download_info"]["url"] for item in items)))
    total = None if None in sizes else sum(size or 0 for size in sizes)
    return Download(torch["metadata"]["version"], has_cuda, len(items), total)


def report(options: Sequence[str]) -> list[dict]:
    """Returns the packages of pip's installation report for torch; none if the request cannot be fulfilled."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        command = ["install", "--dry-run", "--ignore-installed", "--report", str(path), "torch", *options]
        if run_pip([*command, "--quiet", "--retries", "1"], capture_output=True):
            return []
        return json.loads(path.read_text(encoding="utf-8"))["install"]


def size_of(url: str) -> int | None:
    """Returns the size of a file in bytes without downloading it; None if it is not told."""
    parts = urlsplit(url)
    try:
        if parts.scheme == "file":
            return Path(url2pathname(parts.path)).stat().st_size
        with urlopen(Request(url, method="HEAD"), timeout=TIMEOUT_SECONDS) as response:
            return int(response.headers["Content-Length"])
    except (OSError, TypeError, ValueError):
        return None


def run_pip(arguments: Sequence[str], *, capture_output: bool = False) -> int:
    """Runs pip in this environment and returns its exit status; it is quiet where nobody would see its progress."""
    quiet = [] if sys.stderr.isatty() else ["--quiet"]
    command = [sys.executable, "-m", "pip", *arguments, *quiet]
    return subprocess.run(command, capture_output=capture_output, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
