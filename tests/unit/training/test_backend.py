"""The choice of device and precision."""

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from samples import tiny_recipe
from substitution import substitute
from transformer.errors import ConfigError
from transformer.run.recipe import parse_recipe
from transformer.run.train import train
from transformer.runtime.allocator import _gnu_c_library, retain_heap, trim_heap
from transformer.training.backend import Backend, choose_backend, enlarge_onednn_cache


def with_capabilities(monkeypatch: pytest.MonkeyPatch, **capabilities: bool) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_bf16_where_the_processor_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches bf16 on a processor that emulates it, many times slower than float32."""
    with_capabilities(monkeypatch, avx512_bf16=True)
    substitute(monkeypatch, "backend.instruction_set", lambda: "avx512")
    assert choose_backend().precision == "bf16"
    substitute(monkeypatch, "backend.instruction_set", lambda: "avx2")
    assert choose_backend().precision == "float32"
    substitute(monkeypatch, "backend.instruction_set", lambda: None)
    assert choose_backend().precision == "bf16"
    with_capabilities(monkeypatch, avx512_f=True, avx512_bf16=False)
    assert choose_backend().precision == "float32"
    assert choose_backend(precision="bf16").precision == "bf16"


def test_autocast_is_on_for_bf16_only() -> None:
    """Catches a precision that is reported but not used."""
    x = torch.ones(3, 3)
    for precision, dtype in (("bf16", torch.bfloat16), ("float32", torch.float32)):
        with Backend(torch.device("cpu"), precision).compute_context():
            assert (x @ x).dtype == dtype


def test_what_is_said() -> None:
    """Catches a run whose log does not name its precision."""
    assert str(Backend(torch.device("cpu"), "bf16")).startswith("bf16 products, float32 weights and sums on ")
    assert str(Backend(torch.device("cpu"), "float32")) == "float32 on 1 thread"  # as tests run


def test_what_cannot_be_had_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches float16 without loss scaling, whose gradients underflow, and a silent fall-back to the CPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="would need loss scaling, which is not supported; choose 'bf16'"):
        choose_backend(precision="float16")
    with pytest.raises(ConfigError, match=r"training\.device='cuda', but torch sees no GPU; choose 'cpu'"):
        choose_backend(device="cuda")


@pytest.mark.parametrize("settings", [{"precision": "float16"}, {"device": "cuda"}, {"tensorboard": True}])
def test_it_is_refused_before_the_texts_are_prepared(
    settings: dict[str, Any], digit_corpus: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches hours of data preparation before a setting that this machine does not support is refused."""

    def prepare(*_: object) -> None:
        pytest.fail("the corpus was read")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    substitute(monkeypatch, "prepare.CorpusBuilder.scan", prepare)
    with pytest.raises(ConfigError, match=rf"training\.{next(iter(settings))}="):
        train(parse_recipe(tiny_recipe(digit_corpus, **settings)), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_users_number_of_kernels_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches an environment variable of the user's that is overwritten, and a default that is not set."""
    monkeypatch.setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "7")
    enlarge_onednn_cache()
    assert os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == "7"
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY")
    enlarge_onednn_cache()
    assert int(os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"]) > 1024


def test_memory_is_kept_once_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a crash with a C library other than glibc."""
    retain_heap()
    monkeypatch.setattr("platform.libc_ver", lambda: ("", ""))
    _gnu_c_library.cache_clear()
    retain_heap()
    trim_heap()
    assert _gnu_c_library() is None
    _gnu_c_library.cache_clear()


def test_the_c_library_is_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a class that is created for every batch, which evicts entries of Python's attribute cache."""
    trim_heap()
    monkeypatch.setattr("ctypes.CDLL", None)
    trim_heap()


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="the heap is only retained and trimmed with the GNU C library"
)
def test_holes_are_given_back() -> None:
    """Catches freed memory between allocations in use that is not released; runs in a separate process."""
    code = """
import torch
from pathlib import Path
from transformer.runtime.allocator import trim_heap, retain_heap
def mib():
    return int(Path("/proc/self/statm").read_text().split()[1]) / 256
retain_heap()
pieces = [torch.ones(1 << 16) for _ in range(800)]
del pieces[::2]
before = mib()
trim_heap()
print(before - mib(), sum(int(piece.sum()) for piece in pieces))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    freed_mib, remaining_sum = result.stdout.split()
    assert float(freed_mib) > 90  # of 100 MiB
    assert int(remaining_sum) == 400 << 16
