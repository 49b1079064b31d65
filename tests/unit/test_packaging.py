"""The wheel that `pip install .` builds, of a copy of the project with the smallest source file of the kernels."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType
from zipfile import ZipFile

import pytest

from samples import ROOT

HAS_KERNELS = sys.platform == "linux" and os.uname().machine == "x86_64"
COMPILER = shutil.which("g++")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, folder)
    site = folder / "docs" / "_build" / "html"
    (site / ".doctrees").mkdir(parents=True)
    for path in (site / "index.html", site / ".doctrees" / "index.doctree"):
        path.write_text("built")
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
    assert "compiled the kernels: 3 of 3 files" in messages
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
        libraries = [name for name in names if name.endswith(".so")]
        assert sorted(libraries) == [f"transformer/kernels/_{name}.so" for name in ("avx2", "avx512", "avx_vnni")]
        assert not any(b".debug_info" in archive.read(name) for name in libraries)
    source = ROOT / "src"
    data = [
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc", ".so") and "egg-info" not in str(path)
    ]
    assert {name for name in data if "/csrc/" not in name} <= names
    assert not any("csrc" in name or "doctree" in name for name in names)
    assert "transformer/site/index.html" in names
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
    assert messages.count("so slower ones or PyTorch compute") == 3
    with ZipFile(wheel) as archive:
        assert not any(name.endswith(".so") for name in archive.namelist())


@pytest.mark.skipif(not (HAS_KERNELS and COMPILER), reason="needs g++ on x86-64 Linux")
def test_a_variant_that_the_compiler_lacks_leaves_the_other(project: Path) -> None:
    """Catches an old compiler without AVX-512 for bfloat16 that costs the kernels for AVX2 too."""
    source = project / "src/transformer/kernels/csrc/support.cpp"
    source.write_text(f"#ifndef TRANSFORMER_AVX2\n#error unsupported\n#endif\n{source.read_text()}")
    wheel, messages = built(project)
    with ZipFile(wheel) as archive:
        libraries = sorted(name for name in archive.namelist() if name.endswith(".so"))
        assert libraries == ["transformer/kernels/_avx2.so", "transformer/kernels/_avx_vnni.so"]
    assert "no kernels for avx512" in messages


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="git tells which files belong to the project")
def test_source_distribution_has_every_file_of_the_project(project: Path) -> None:
    """Catches a new folder or file that a source distribution leaves out, so that its tests or models fail."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    tracked = {name for name in listed.splitlines() if (ROOT / name).exists() and name != "recipes"}
    for name in tracked:
        if not (project / name).exists():
            (project / name).parent.mkdir(parents=True, exist_ok=True)
            (project / name).touch()
    subprocess.run([sys.executable, "setup.py", "-q", "sdist"], cwd=project, capture_output=True, check=True)
    [archive] = (project / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        inside = {name.partition("/")[2] for name in opened.getnames()}
    assert tracked - inside == set()
    assert not any(name.endswith((".doctree", ".so")) or "/build/" in name for name in inside)


@pytest.fixture(scope="module")
def setup_script() -> ModuleType:
    """Returns setup.py as a module."""
    specification = importlib.util.spec_from_file_location("setup_script", ROOT / "setup.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("origin", "address"),
    [
        ("git@example.org:owner/name.git", "https://example.org/owner/name"),
        ("https://user:secret@example.org/owner/name.git", "https://example.org/owner/name"),
        ("ssh://git@example.org:22/owner/name", "https://example.org/owner/name"),
        ("/home/me/name", ""),
        ("../name", ""),
        ("", ""),
    ],
)
def test_address_of_a_remote_has_no_secrets(setup_script: ModuleType, origin: str, address: str) -> None:
    """Catches a token of the builder that is published in a package's metadata, and a folder that passes for a link."""
    assert setup_script.web_address(origin) == address


def test_links_of_an_index_page_work_or_are_no_links(setup_script: ModuleType) -> None:
    """Catches links that are relative to the repository, which lead nowhere on the page of a package."""
    text, page = "[a](https://x.org) [b](docs/b.md#c) ![d](docs/d.png) [e](#f)", "https://h.org/o/n"
    assert setup_script.resolve_links(text, page) == (
        f"[a](https://x.org) [b]({page}/blob/HEAD/docs/b.md#c) ![d]({page}/raw/HEAD/docs/d.png) [e](#f)"
    )
    assert setup_script.resolve_links(text, "") == "[a](https://x.org) b  [e](#f)"
    readme = setup_script.resolve_links((ROOT / "README.md").read_text(encoding="utf-8"), "")
    assert "](docs" not in readme
    assert "](src" not in readme
