"""Compiles the kernels, names the wheel and resolves the links of README.md; all else stands in pyproject.toml.

The same sources are compiled for AVX-512 (with or without AMX) and for AVX2. Products of int8 are also compiled for
AVX-VNNI, and linked with the rest of AVX2. The fastest variant that the processor
supports is chosen when the kernels are loaded. The libraries are loaded by their paths and know nothing of Python, so
one wheel serves every version of it.
"""

import os
import platform
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from email import message_from_string
from pathlib import Path
from threading import Lock
from urllib.parse import urlsplit

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

FOLDER = Path("src/transformer/kernels/csrc")
SITE = Path("docs/_build/html")
AVX2, AVX_VNNI = ("TRANSFORMER_AVX2", None), ("TRANSFORMER_AVX_VNNI", None)
VARIANTS = {"_avx512": [], "_avx2": [AVX2], "_avx_vnni": [AVX2, AVX_VNNI]}
OWN_SOURCES = {"_avx_vnni": ("packed_linear.cpp", "support.cpp")}
"""Sources that differ from AVX2; its objects are linked for all others."""
HAS_KERNELS = sys.platform == "linux" and platform.machine() == "x86_64"


class BuildKernels(build_ext):
    """Compiles all source files in parallel, and shows how many are done."""

    def get_ext_filename(self, fullname: str) -> str:
        """Returns the name of a library, which contains no version of Python."""
        return f"{fullname.replace('.', os.sep)}.so"

    def build_extensions(self) -> None:
        """Compiles each source file once per variant, then links the libraries; one that fails is left out.

        Libraries that were compiled in the folder of the sources are copied, because an editable installation builds
        in a new folder each time.
        """
        outdated = [extension for extension in self.extensions if self._is_outdated(extension)]
        outdated = [extension for extension in outdated if not self._is_copied(extension)]
        sources = {
            extension.name: [(self._variant_of(extension, source), source) for source in extension.sources]
            for extension in outdated
        }
        jobs = sorted({job for pairs in sources.values() for job in pairs})
        self._total = len(jobs)
        self._done, self._lock, self._started = 0, Lock(), time.monotonic()
        if outdated:
            self._show("compiling the kernels")
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = {job: pool.submit(self._compile, outdated[0], *job) for job in jobs}
            for extension in outdated:
                try:
                    parts = [objects[job].result() for job in sources[extension.name]]
                    path = self.get_ext_fullpath(extension.name)
                    self.compiler.link_shared_object(parts, path, extra_postargs=["-s"], target_lang="c++")
                except Exception as error:
                    name = extension.name.rpartition(".")[2].removeprefix("_")
                    print(f"\nno kernels for {name}, so slower ones or PyTorch compute: {error}", file=sys.stderr)
        if outdated:
            self._show("compiled the kernels", "\n")

    def _is_copied(self, extension: Extension) -> bool:
        target = Path(self.get_ext_fullpath(extension.name))
        compiled = Path("src", self.get_ext_filename(extension.name))
        if self.force or not compiled.exists() or compiled.stat().st_mtime < self._newest_source(extension):
            return False
        target.parent.mkdir(parents=True, exist_ok=True)
        self.copy_file(str(compiled), str(target))
        return True

    def _is_outdated(self, extension: Extension) -> bool:
        target = Path(self.get_ext_fullpath(extension.name))
        newest = self._newest_source(extension)
        return bool(self.force) or not target.exists() or target.stat().st_mtime < newest

    @staticmethod
    def _newest_source(extension: Extension) -> float:
        return max(Path(path).stat().st_mtime for path in [*extension.sources, *extension.depends, __file__])

    @staticmethod
    def _variant_of(extension: Extension, source: str) -> str:
        variant = extension.name.rpartition(".")[2]
        return variant if Path(source).name in OWN_SOURCES.get(variant, (Path(source).name,)) else "_avx2"

    def _compile(self, extension: Extension, variant: str, source: str) -> str:
        [path] = self.compiler.compile(
            [source], output_dir=str(Path(self.build_temp, variant)), macros=VARIANTS[variant],
            extra_postargs=extension.extra_compile_args, depends=extension.depends,
        )  # fmt: skip
        with self._lock:
            self._done += 1
            self._show("compiling the kernels")
        return path

    def _show(self, what: str, end: str = "") -> None:
        seconds = time.monotonic() - self._started
        start = "\r" if sys.stderr.isatty() else ""
        if start or end or not self._done:
            text = f"{start}{what}: {self._done} of {self._total} files, {seconds:.0f} s"
            print(text, end=end or ("" if start else "\n"), file=sys.stderr, flush=True)


class BuildPackage(build_py):
    """Copies the package, with the documentation if `make docs` has built it."""

    def run(self) -> None:
        """Copies the built site to `transformer/site`, where `transformer docs` looks for it."""
        super().run()
        if self.editable_mode:
            return
        if not (SITE / "index.html").is_file():
            print("no documentation in this wheel; run `make docs` before building it", file=sys.stderr)
        for path in SITE.rglob("*"):
            relative = path.relative_to(SITE)
            if path.is_file() and not relative.parts[0].startswith("."):
                target = Path(self.build_lib, "transformer", "site", relative)
                target.parent.mkdir(parents=True, exist_ok=True)
                self.copy_file(str(path), str(target))


class KernelWheel(bdist_wheel):
    """A wheel for every Python 3 on the platform that the libraries were compiled for."""

    def finalize_options(self) -> None:
        """Marks the wheel as platform-dependent if it contains libraries."""
        super().finalize_options()
        self.root_is_pure = not HAS_KERNELS

    def get_tag(self) -> tuple[str, str, str]:
        """Returns the tags of the wheel; the platform is the oldest Linux whose C library has all symbols needed."""
        libraries = list(Path(self.bdist_dir or "").rglob("*.so"))
        if not libraries:
            return "py3", "none", "any"
        symbols = b"".join(path.read_bytes() for path in libraries)
        newest = max([17, *(int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", symbols))])
        return "py3", "none", f"manylinux_2_{newest}_x86_64"


def repository_address() -> str:
    """Returns the web address of the repository, without a final slash; "" if nothing tells it.

    GitHub's workflows name it in the environment, a source distribution in its metadata, and a clone in git's settings.
    """
    if name := os.environ.get("GITHUB_REPOSITORY"):
        return f"{os.environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{name}"
    if (metadata := Path("PKG-INFO")).is_file():
        links = message_from_string(metadata.read_text(encoding="utf-8")).get_all("Project-URL", [])
        return next((link.partition(", ")[2] for link in links if link.startswith("Source, ")), "")
    command = ["git", "config", "--get", "remote.origin.url"]
    try:
        origin = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""
    return web_address(origin)


def web_address(origin: str) -> str:
    """Returns the address of the web page of a remote of git, without user name and password; "" for a folder."""
    if match := re.fullmatch(r"(?:[\w.-]+@)?([\w-]+(?:\.[\w-]+)+):(?!/)(.+)", origin):  # git@host:owner/name.git
        host, path = match.groups()
    elif (parts := urlsplit(origin)).scheme in ("https", "ssh", "git") and parts.hostname:
        host, path = parts.hostname, parts.path
    else:
        return ""
    return f"https://{host}/{path.strip('/').removesuffix('.git')}"


def resolve_links(markdown: str, address: str) -> str:
    """Returns a text whose relative links work outside the repository.

    Args:
        markdown: The text.
        address: Web address of the repository. Without it, links become plain text and pictures are left out.
    """

    def resolve(match: re.Match[str]) -> str:
        mark, label, target = match.groups()
        if re.match(r"[a-z]+:|#", target):
            return match[0]
        if not address:
            return "" if mark else label
        return f"{mark}[{label}]({address}/{'raw' if mark else 'blob'}/HEAD/{target})"

    return re.sub(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)", resolve, markdown)


def project_links(address: str) -> dict[str, str]:
    """Returns the links that an index shows beside the text."""
    pages = {"Documentation": "blob/HEAD/docs/index.md", "Changes": "blob/HEAD/CHANGELOG.md", "Issues": "issues"}
    return {"Source": address, **{name: f"{address}/{page}" for name, page in pages.items()}} if address else {}


def main() -> None:
    """Describes the distribution to setuptools."""
    address = repository_address()
    setup(
        long_description=resolve_links(Path("README.md").read_text(encoding="utf-8"), address),
        long_description_content_type="text/markdown",
        project_urls=project_links(address),
        cmdclass={"build_py": BuildPackage, "build_ext": BuildKernels, "bdist_wheel": KernelWheel},
        ext_modules=[
            Extension(
                f"transformer.kernels.{name}",
                sources=sorted(str(path) for path in FOLDER.glob("*.cpp")),
                depends=sorted(str(path) for path in FOLDER.glob("*.h")),
                # Without contraction, a sum is rounded the same way in every context.
                extra_compile_args=["-std=c++17", "-O3", "-g0", "-fopenmp", "-ffp-contract=off", "-w"],
            )
            for name in (VARIANTS if HAS_KERNELS else ())
        ],
    )


if __name__ == "__main__":
    main()
