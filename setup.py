"""The compiled kernels: the same sources for AVX-512, with AMX or not, and for AVX2; a machine takes what it can run.

Everything else is in pyproject.toml.
"""

from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

FOLDER = Path("src/transformer/kernels/csrc")
KINDS = {"_avx512": [], "_avx2": [("TRANSFORMER_AVX2", None)]}


class OneByOne(build_ext):
    """The objects of both kinds have the same names."""

    def finalize_options(self) -> None:
        """As the command's own, whatever number of jobs is configured."""
        super().finalize_options()
        self.parallel = None


setup(
    cmdclass={"build_ext": OneByOne},
    ext_modules=[
        Extension(
            f"transformer.kernels.{name}",
            sources=sorted(str(path) for path in FOLDER.glob("*.cpp")),
            depends=sorted(str(path) for path in FOLDER.glob("*.h")),
            define_macros=macros,
            # OpenMP is the one that torch brings; a sum is rounded alike wherever the compiler puts it
            extra_compile_args=["-std=c++17", "-O3", "-fopenmp", "-ffp-contract=off", "-Wno-maybe-uninitialized"],
            optional=True,  # without a compiler, torch computes the same
        )
        for name, macros in KINDS.items()
    ],
)
