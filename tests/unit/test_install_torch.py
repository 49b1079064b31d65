"""The choice of a build of PyTorch, with the real pip and folders of small wheels instead of an index."""

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

import install_torch
from samples import ROOT


def wheel(folder: Path, name: str, version: str, *requirements: str) -> int:
    """Writes a wheel without files into a folder and returns its size in bytes."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    information = f"{name}-{version}.dist-info"
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    needed = "".join(f"Requires-Dist: {requirement}\n" for requirement in requirements)
    with ZipFile(path, "w") as archive:
        archive.writestr(f"{information}/METADATA", head + needed)
        archive.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{information}/RECORD", "")
    return path.stat().st_size


def choice(constraint: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Runs the script without installing anything, and without the settings of pip of this machine."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    script = [sys.executable, str(ROOT / "tools" / "install_torch.py"), "--constraint", str(constraint), "--dry-run"]
    return subprocess.run(
        script, env={**bare, "PIP_CONFIG_FILE": os.devnull, "PIP_NO_INPUT": "1", **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("override", "is_configured", "has_gpu", "address"),
    [
        ("", False, False, install_torch.CPU_INDEX),
        ("", False, True, None),
        ("", True, False, None),
        ("default", False, False, None),
        ("https://example.org/whl", True, True, "https://example.org/whl"),
    ],
)
def test_only_a_machine_with_a_gpu_gets_cuda(
    override: str, is_configured: bool, has_gpu: bool, address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches gigabytes of CUDA without a GPU, a GPU without it, and an index of the user's that is passed over."""
    monkeypatch.setattr(sys, "platform", "linux")
    options, _ = install_torch.choose_sources(override, is_configured=is_configured, has_gpu=has_gpu)
    assert options == ([] if address is None else ["--index-url", address])


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["global.index-url='https://example.org/simple'"], True),
        (["install.find-links='/wheels'", "global.timeout='60'"], True),
        ([":env:.no-index='1'"], True),
        ([":env:.find-links=''", ":env:.cert='/etc/ssl/cert.pem'"], False),
        ([], False),
    ],
)
def test_own_sources_of_pip_are_noticed(settings: list[str], expected: bool) -> None:
    """Catches a company's mirror that is bypassed, and an empty variable that counts as one."""
    assert install_torch.has_package_sources(settings) is expected


def test_build_and_size_are_told_before_the_download(tmp_path: Path) -> None:
    """Catches a download of unknown size, and libraries of CUDA that are not counted."""
    small, large, none = tmp_path / "small", tmp_path / "large", tmp_path / "none"
    constraint = tmp_path / "constraints.txt"
    constraint.write_text("torch==2.13.0\n")
    none.mkdir()
    wheel(small, "torch", "2.13.0+cpu", "sympy")
    wheel(large, "torch", "2.13.0", "nvidia-cublas==1.0")
    wheel(large, "nvidia_cublas", "1.0")
    without = choice(constraint, PIP_FIND_LINKS=str(small), PIP_NO_INDEX="1")
    assert without.stderr.startswith("PyTorch 2.13.0+cpu, the build without CUDA: 0 MB to download (")
    cuda = choice(constraint, PIP_FIND_LINKS=str(large), PIP_NO_INDEX="1")
    assert "the build with CUDA: 0 MB to download in 2 packages (" in cuda.stderr
    missing = choice(constraint, PIP_FIND_LINKS=str(none), PIP_NO_INDEX="1")
    assert missing.returncode == 1


def test_sizes_are_those_of_the_files(tmp_path: Path) -> None:
    """Catches a size in other units, and a file without one that counts as empty."""
    n_bytes = wheel(tmp_path, "torch", "1.0")
    [path] = tmp_path.iterdir()
    assert install_torch.size_of(path.as_uri()) == n_bytes
    assert install_torch.size_of((tmp_path / "missing").as_uri()) is None
    total = str(install_torch.Download("2.13.0", True, 29, 2_741_000_000))
    assert total == "PyTorch 2.13.0, the build with CUDA: 2,741 MB to download in 29 packages"
