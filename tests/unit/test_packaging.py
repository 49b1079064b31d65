"""The wheel that `pip install .` builds, of a copy of the project with the smallest source file of the kernels."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from samples import ROOT

HAS_KERNELS = sys.platform == "linux" and os.uname().machine == "x86_64"
COMPILER = shutil.which("g++")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    for path in (folder / "src/transformer/kernels/csrc").glob("*.cpp"):
        if path.name != "support.cpp":
            path.unlink()
    return folder


def built(project: Path, **environment: str) -> tuple[Path, str]:
    """Returns the wheel of a project, and what building it printed on standard error."""
    result = subprocess.run(
        [sys.executable, "setup.py", "-q", "bdist_wheel"], cwd=project, env=os.environ | environment,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    [wheel] = (project / "dist").glob("*.whl")
    return wheel, result.stderr


@pytest.mark.skipif(
    COMPILER is None or sys.platform != "linux" or os.uname().machine != "x86_64", reason="needs g++ on x86-64 Linux"
)
def test_wheel_has_stripped_kernels_recipes_and_data_for_every_python(project: Path, tmp_path: Path) -> None:
    """Catches a wheel for one version of Python, files that only an editable installation finds, and debug symbols."""
    wheel, messages = built(project)
    python, abi, system = wheel.stem.split("-")[-3:]
    assert (python, abi) == ("py3", "none")
    assert system.startswith("manylinux_2_")
    assert system.endswith("_x86_64")
    assert "compiled the kernels: 2 of 2 files" in messages
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
        libraries = [name for name in names if name.endswith(".so")]
        assert sorted(libraries) == ["transformer/kernels/_avx2.so", "transformer/kernels/_avx512.so"]
        assert not any(b".debug_info" in archive.read(name) for name in libraries)
    source = ROOT / "src"
    data = [
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc", ".so") and "egg-info" not in str(path)
    ]
    assert {name for name in data if not name.endswith(".cpp")} <= names
    site = tmp_path / "site"
    with ZipFile(wheel) as archive:
        archive.extractall(site)
    result = subprocess.run(
        [sys.executable, "-m", "transformer", "recipes", "multi30k-en-de"], cwd=tmp_path, capture_output=True,
        env=os.environ | {"PYTHONPATH": str(site)}, check=True,
    )  # fmt: skip
    assert result.stdout == (ROOT / "recipes/multi30k-en-de.toml").read_bytes()


@pytest.mark.skipif(not HAS_KERNELS, reason="kernels are for x86-64 Linux")
def test_wheel_is_built_without_a_compiler_and_says_so(project: Path) -> None:
    """Catches an installation that fails, or that is silent about being slow."""
    wheel, messages = built(project, CC="/missing/cc", CXX="/missing/c++")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert messages.count("so slower ones or PyTorch compute") == 2
    with ZipFile(wheel) as archive:
        assert not any(name.endswith(".so") for name in archive.namelist())


@pytest.mark.skipif(not (HAS_KERNELS and COMPILER), reason="needs g++ on x86-64 Linux")
def test_a_variant_that_the_compiler_lacks_leaves_the_other(project: Path) -> None:
    """Catches an old compiler without AVX-512 for bfloat16 that costs the kernels for AVX2 too."""
    source = project / "src/transformer/kernels/csrc/support.cpp"
    source.write_text(f"#ifndef TRANSFORMER_AVX2\n#error unsupported\n#endif\n{source.read_text()}")
    wheel, messages = built(project)
    with ZipFile(wheel) as archive:
        assert [name for name in archive.namelist() if name.endswith(".so")] == ["transformer/kernels/_avx2.so"]
    assert "no kernels for avx512" in messages


def test_source_distribution_has_all_that_a_wheel_is_built_from(project: Path) -> None:
    """Catches a source distribution that cannot be installed."""
    subprocess.run([sys.executable, "setup.py", "-q", "sdist"], cwd=project, capture_output=True, check=True)
    [archive] = (project / "dist").glob("*.tar.gz")
    (project / "unpacked").mkdir()
    subprocess.run(["tar", "-xf", archive, "-C", project / "unpacked"], check=True)
    [unpacked] = (project / "unpacked").iterdir()
    inside = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    needed = {path.relative_to(project).as_posix() for path in (project / "src").rglob("*") if path.is_file()}
    assert {
        "setup.py",
        "pyproject.toml",
        *(name for name in needed if "egg-info" not in name and "__pycache__" not in name),
    } <= inside
