"""Weights that PyTorch pickled: what is read of them, and what hostile files do not do."""

import builtins
import importlib
import io
import os
import pickle
import struct
import subprocess
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from transformer.bundle.huggingface import read_tensors
from transformer.bundle.pickled_weights import convert_pickled, describe_failure, read_pickled
from transformer.errors import BundleError
from transformer.storage.tensor_files import save_tensors


def tensors() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    shared = torch.randn(7, 3, generator=generator)
    whole = torch.randn(10, 2, generator=generator)
    return {
        "first": shared, "half": torch.randn(5, 2, generator=generator).half(), "mask": torch.tensor([True, False]),
        "bfloat": torch.randn(3, generator=generator).bfloat16(), "turned": torch.randn(2, 5, generator=generator).T,
        "upper": whole[:4], "lower": whole[4:], "parameter": nn.Parameter(torch.ones(2, 3)), "empty": torch.zeros(0, 3),
        "numbers": torch.arange(5), "tied": shared,
    }  # fmt: skip


@pytest.mark.parametrize("is_zip", [True, False])
def test_tensors_are_read_as_they_were_saved(tmp_path: Path, is_zip: bool) -> None:
    """Catches a type that is converted, a view that gets the values of its whole, and a name that is lost."""
    torch.save(OrderedDict(tensors()), tmp_path / "w.bin", _use_new_zipfile_serialization=is_zip)
    save_tensors(tmp_path / "model.safetensors", read_pickled(tmp_path / "w.bin"))
    expected = tensors()
    del expected["tied"]  # another name of the first
    actual = read_tensors(tmp_path)
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        assert (actual[name].dtype, actual[name].shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(actual[name], tensor), name


class Call:
    """An object whose pickle calls a function when it is read."""

    def __init__(self, function: Callable[..., object], *arguments: object, state: object = None) -> None:
        self.reduced = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self) -> Any:
        """Returns the function and its arguments."""
        return self.reduced


def saved(content: object) -> bytes:
    """Returns the file that `torch.save` writes."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def archive(pickled: bytes, data: Sequence[tuple[str, bytes]] = (), how: int = zipfile.ZIP_STORED) -> bytes:
    """Returns a zip file with a pickle and parts, as `torch.save` names them."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", how) as file:
        for name, content in (("data.pkl", pickled), ("version", b"3\n"), ("byteorder", b"little"), *data):
            file.writestr(f"archive/{name}", content)
    return buffer.getvalue()


def tensor_pickle(
    n_stored: int, offset: int, size: tuple[int, ...], stride: tuple[int, ...], names: str = "w"
) -> bytes:
    """Returns the pickle of tensors, one a letter of `names`, over a storage of `n_stored` numbers."""

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj: object) -> object:
            return ("storage", torch.FloatStorage, "0", "cpu", n_stored) if obj == "stored" else None

    buffer = io.BytesIO()
    rebuilt = Call(torch._utils._rebuild_tensor_v2, "stored", offset, size, stride, False, OrderedDict())
    Pickler(buffer, protocol=2).dump(dict.fromkeys(names, rebuilt))
    return buffer.getvalue()


def doubled(times: int) -> bytes:
    """Returns a pickle of a tuple of itself twice, and so on."""
    steps = (b"h" + bytes([i]) + b"h" + bytes([i]) + b"\x86q" + bytes([i + 1]) for i in range(times))
    return b"\x80\x02)q\x00" + b"".join(steps) + b"."


MARK = "pickle-was-here"
NUMBERS = ("data/0", struct.pack("<6f", *range(6)))
PLAIN = tensor_pickle(6, 0, (2, 3), (3, 1))
HOSTILE: dict[str, Callable[[], bytes]] = {
    "os.system": lambda: saved({"w": Call(os.system, f"touch {MARK}")}),
    "posix by its name in a legacy file": lambda: b"\x80\x02cposix\nsystem\nX\x15\0\0\0touch pickle-was-here\x85R.",
    "subprocess": lambda: saved({"w": Call(subprocess.getoutput, f"touch {MARK}")}),
    "eval": lambda: saved({"w": Call(builtins.eval, f"open('{MARK}', 'w')")}),
    "exec": lambda: saved({"w": Call(builtins.exec, f"open('{MARK}', 'w')")}),
    "open": lambda: saved({"w": Call(builtins.open, MARK, "w")}),
    "import": lambda: saved({"w": Call(importlib.import_module, "antigravity")}),
    "getattr": lambda: saved({"w": Call(builtins.getattr, Call(importlib.import_module, "os"), "system")}),
    "nested reduce": lambda: saved({"w": Call(OrderedDict, [("a", Call(os.mkdir, MARK))])}),
    "state of an object": lambda: saved({"w": Call(OrderedDict, state={"x": Call(os.mkdir, MARK)})}),
    "key of the table": lambda: saved({Call(os.mkdir, MARK): torch.ones(2)}),
    "whole module": lambda: saved(nn.Linear(2, 3)),
    "torch.load in a pickle": lambda: saved({"w": Call(torch.load, MARK)}),
    "storage from a file": lambda: saved({"w": Call(torch.UntypedStorage.from_file, MARK, True, 64)}),
    "memo that doubles": lambda: archive(doubled(60)),
    "memo that is missing": lambda: archive(b"\x80\x02h\x07."),
    "text": lambda: saved({"w": "no tensor"}),
    "list": lambda: saved([torch.ones(2)]),
    "table in a table": lambda: saved({"model": {"w": torch.ones(2)}}),
    "number as a name": lambda: saved({3: torch.ones(2)}),
    "nothing": lambda: b"",
    "sparse": lambda: saved({"w": torch.eye(3).to_sparse()}),
    "without storage": lambda: saved({"w": torch.ones(3, device="meta")}),
    "cut": lambda: saved({"w": torch.ones(500)})[:-900],
    "cut legacy": lambda: b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.",
    "storage larger than its part": lambda: archive(tensor_pickle(8, 0, (8,), (1,)), [NUMBERS, ("more", bytes(64))]),
    "storage smaller than its part": lambda: archive(tensor_pickle(4, 0, (4,), (1,)), [NUMBERS]),
    "huge storage": lambda: archive(tensor_pickle(1 << 60, 0, (2,), (1,)), [NUMBERS]),
    "negative storage": lambda: archive(tensor_pickle(-6, 0, (2,), (1,)), [NUMBERS]),
    "stride out of bounds": lambda: archive(tensor_pickle(6, 0, (2, 3), (100, 1)), [NUMBERS]),
    "offset out of bounds": lambda: archive(tensor_pickle(6, 5, (2, 3), (3, 1)), [NUMBERS]),
    "negative offset": lambda: archive(tensor_pickle(6, -9, (2,), (1,)), [NUMBERS]),
    "negative size": lambda: archive(tensor_pickle(6, 0, (-2, -3), (3, 1)), [NUMBERS]),
    "huge tensor of one number": lambda: archive(tensor_pickle(6, 0, (1 << 20, 1 << 20), (0, 0)), [NUMBERS]),
    "missing part": lambda: archive(PLAIN),
    "part twice": lambda: archive(PLAIN, [NUMBERS, NUMBERS]),
    "compressed": lambda: archive(PLAIN, [NUMBERS], zipfile.ZIP_DEFLATED),
    "part outside": lambda: archive(PLAIN, [("../../data/0", NUMBERS[1])]),
    "zip behind a pickle": lambda: b"\x80\x02cposix\nsystem\n." + archive(PLAIN, [NUMBERS]),
    "TorchScript": lambda: archive(PLAIN, [NUMBERS, ("constants.pkl", PLAIN)]),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_files_do_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Catches a function that a file calls, a tensor beyond its storage, and memory that the file does not have."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.bin").write_bytes(HOSTILE[kind]())
    with pytest.raises(Exception) as raised:  # which error depends on the damage
        read_pickled(tmp_path / "w.bin")
    assert "\n" not in describe_failure(raised.value)
    assert [path.name for path in tmp_path.iterdir()] == ["w.bin"]
    assert "antigravity" not in sys.modules


@pytest.mark.filterwarnings("ignore")
def test_the_archive_of_the_hostile_files_is_read_if_it_is_honest(tmp_path: Path) -> None:
    """Catches archives above that are refused for another reason than the one that their names tell."""
    (tmp_path / "w.bin").write_bytes(archive(PLAIN, [NUMBERS]))
    assert read_pickled(tmp_path / "w.bin")["w"].tolist() == [[0, 1, 2], [3, 4, 5]]


HARMFUL = r"^w\.bin: it names posix\.system, which is not a part of a tensor; use another copy of the model$"


def test_a_process_reads_them_and_reports_in_one_line(tmp_path: Path) -> None:
    """Catches a file that is read in this process, and a message of several lines from the other."""
    (tmp_path / "out").mkdir()
    (tmp_path / "w.bin").write_bytes(HOSTILE["os.system"]())
    with pytest.raises(BundleError, match=HARMFUL):
        convert_pickled([tmp_path / "w.bin"], tmp_path / "out")
    assert not any((tmp_path / "out").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["eval", "storage from a file", "memo that doubles", "huge storage", "cut legacy"])
def test_the_process_does_nothing_either(tmp_path: Path, kind: str) -> None:
    """Catches a file that does harm only where it is really read, in a process with limits."""
    (tmp_path / "out").mkdir()
    (tmp_path / "w.bin").write_bytes(HOSTILE[kind]())
    with pytest.raises(BundleError, match=r"^w\.bin: .*; (copy it again|use another copy of the model)$"):
        convert_pickled([tmp_path / "w.bin"], tmp_path / "out")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["out", "w.bin"]


def test_a_process_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a pickle that keeps the command waiting for ever."""
    monkeypatch.setattr("transformer.bundle.pickled_weights.SECONDS", 0)
    (tmp_path / "w.bin").write_bytes(archive(PLAIN, [NUMBERS]))
    with pytest.raises(BundleError, match=r"^w\.bin took more than 0 seconds to read; copy it again$"):
        convert_pickled([tmp_path / "w.bin"], tmp_path)


@pytest.mark.slow
def test_the_process_is_limited() -> None:
    """Catches a process that takes all memory, or writes a file of any size."""
    code = """
import os, resource
from transformer.bundle.pickled_weights import limit_process
limit_process(1 << 20)
try:
    bytearray(1 << 34)
except MemoryError:
    print("memory", resource.getrlimit(resource.RLIMIT_CPU)[0], resource.getrlimit(resource.RLIMIT_FSIZE)[0])
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["memory", "120", str(3 << 20)]
