"""The compiled kernels: the same sources for either kind of processor, of which a machine takes the one that it can run.

Everything else is in pyproject.toml.
"""

from pathlib import Path

from setuptools import Extension, setup

FOLDER = Path("src/transformer/kernels")
KINDS = {"_avx512": [], "_avx2": [("TRANSFORMER_AVX2", None)]}

setup(
    ext_modules=[
        Extension(
            f"transformer.kernels.{name}",
            sources=sorted(str(path) for path in FOLDER.glob("*.cpp")),
            depends=sorted(str(path) for path in FOLDER.glob("*.h")),
            define_macros=macros,
            # OpenMP is the one that torch brings
            extra_compile_args=["-std=c++17", "-O3", "-fopenmp", "-Wno-maybe-uninitialized"],
            optional=True,  # without a compiler, torch computes the same
        )
        for name, macros in KINDS.items()
    ]
)
