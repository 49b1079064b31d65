"""Builds the compiled kernels; everything else is configured in pyproject.toml.

The same sources are compiled for AVX-512 (with or without AMX) and for AVX2. The fastest variant that the processor
supports is chosen when the kernels are loaded.
"""

from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

FOLDER = Path("src/transformer/kernels/csrc")
VARIANTS = {"_avx512": [], "_avx2": [("TRANSFORMER_AVX2", None)]}


class SerialBuildExt(build_ext):
    """Builds one extension at a time, because the object files of both have the same names."""

    def finalize_options(self) -> None:
        """Ignores the configured number of parallel jobs."""
        super().finalize_options()
        self.parallel = None


setup(
    cmdclass={"build_ext": SerialBuildExt},
    ext_modules=[
        Extension(
            f"transformer.kernels.{name}",
            sources=sorted(str(path) for path in FOLDER.glob("*.cpp")),
            depends=sorted(str(path) for path in FOLDER.glob("*.h")),
            define_macros=macros,
            # The OpenMP runtime is the one loaded by torch. Without contraction, a sum is rounded the same way in every
            # context.
            extra_compile_args=["-std=c++17", "-O3", "-fopenmp", "-ffp-contract=off", "-Wno-maybe-uninitialized"],
            optional=True,  # without a compiler, PyTorch computes the same functions
        )
        for name, macros in VARIANTS.items()
    ],
)
