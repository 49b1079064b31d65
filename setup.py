"""Compiles the kernels and names the wheel; everything else is configured in pyproject.toml.

The same sources are compiled for AVX-512 (with or without AMX) and for AVX2. The fastest variant that the processor
supports is chosen when the kernels are loaded. The libraries are loaded by their paths and know nothing of Python, so
one wheel serves every version of it.
"""

import os
import platform
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

FOLDER = Path("src/transformer/kernels/csrc")
VARIANTS = {"_avx512": [], "_avx2": [("TRANSFORMER_AVX2", None)]}
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
        self._total = sum(len(extension.sources) for extension in outdated)
        self._done, self._lock, self._started = 0, Lock(), time.monotonic()
        if outdated:
            self._show("compiling the kernels")
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            compiled = [
                [pool.submit(self._compile, extension, source) for source in extension.sources]
                for extension in outdated
            ]
            for extension, objects in zip(outdated, compiled, strict=True):
                try:
                    parts = [future.result() for future in objects]
                    path = self.get_ext_fullpath(extension.name)
                    self.compiler.link_shared_object(parts, path, extra_postargs=["-s"], target_lang="c++")
                except Exception as error:
                    name = extension.name.rpartition("_")[2]
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

    def _compile(self, extension: Extension, source: str) -> str:
        folder = Path(self.build_temp) / extension.name
        [path] = self.compiler.compile(
            [source], output_dir=str(folder), macros=extension.define_macros,
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
        site = Path("docs/_build/html")
        if site.is_dir() and not self.editable_mode:
            self.copy_tree(str(site), str(Path(self.build_lib) / "transformer" / "site"))


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


setup(
    cmdclass={"build_py": BuildPackage, "build_ext": BuildKernels, "bdist_wheel": KernelWheel},
    ext_modules=[
        Extension(
            f"transformer.kernels.{name}",
            sources=sorted(str(path) for path in FOLDER.glob("*.cpp")),
            depends=sorted(str(path) for path in FOLDER.glob("*.h")),
            define_macros=macros,
            # Without contraction, a sum is rounded the same way in every context.
            extra_compile_args=["-std=c++17", "-O3", "-g0", "-fopenmp", "-ffp-contract=off", "-w"],
        )
        for name, macros in (VARIANTS.items() if HAS_KERNELS else ())
    ],
)
