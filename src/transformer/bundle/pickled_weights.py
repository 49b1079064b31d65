"""Conversion of weights that PyTorch pickled (`pytorch_model.bin`) to safetensors, in a process of its own.

A pickle names functions that are called when it is read. This is the only file that reads one from a stranger: with
PyTorch's own reader, which knows tensors alone, in a process that has neither the secrets nor the memory of this one.
Only its safetensors file and one line of text come back.
"""

import os
import re
import resource
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn

from transformer.config import describe_error
from transformer.errors import BundleError, DataError
from transformer.storage.disk_space import check_space
from transformer.storage.tensor_files import save_tensors, tensor_bytes

CONVERTED: Final = "model.safetensors"
ZIP_START: Final = b"PK\x03\x04"
SPARE_BYTES: Final = 1 << 30
"""Memory that the process may use beyond that of an idle one and a few times the weights."""
SECONDS, BYTES_PER_SECOND = 120, 1 << 22
"""Time that the process may take: a fixed part, and a part that grows with the weights."""
MAX_GROWTH: Final = 2
"""Maximum of the bytes of tensors that share memory, in bytes of their file."""
MAX_LINE: Final = 300
KEPT_VARIABLES: Final = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TRANSFORMER_KERNELS")
"""Environment variables that the process gets; tokens and addresses of proxies are not among them."""
NAMED: Final = re.compile(r"GLOBAL ([\w.]+)")
"""A function or class that a pickle names, in the messages of PyTorch."""

STRANGE: Final = "which is not a part of a tensor"
"""Said of a function or class in a pickle that may have been made to do harm."""


def convert_pickled(files: Sequence[Path], folder: Path) -> Path:
    """Converts pickled weights to a safetensors file, and returns its path.

    Args:
        files: All files of the weights, of one file or of shards.
        folder: Folder for the safetensors file.

    Raises:
        BundleError: A file holds anything but tensors by name, is damaged, or exceeds the limits of memory and time.
        OutputError: The disk is too small.
    """
    n_bytes = sum(file.stat().st_size for file in files)
    check_space(folder, n_bytes, "the weights as safetensors")
    names = ", ".join(file.name for file in files[:1]) + (f" and {len(files) - 1} more" if len(files) > 1 else "")
    seconds = SECONDS + n_bytes // BYTES_PER_SECOND
    call = [sys.executable, "-P", "-m", __spec__.name, str(folder.resolve()), *(str(file.resolve()) for file in files)]
    environment = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    environment["PYTHONPATH"] = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path if entry)
    try:
        process = subprocess.run(
            call, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise BundleError(f"{names} took more than {seconds} seconds to read; copy it again") from error
    if process.returncode:
        lines = process.stderr.decode("utf-8", "replace").strip().splitlines() or [""]
        reason = f"the process that read it ended with {process.returncode}"
        if process.returncode == 1 and lines[-1]:
            reason = "".join(filter(str.isprintable, lines[-1]))[:MAX_LINE]
        advice = "use another copy of the model" if STRANGE in reason else "copy it again"
        raise BundleError(f"{names}: {reason}; {advice}")
    return folder / CONVERTED


def read_pickled(path: Path) -> dict[str, Tensor]:
    """Reads a table of tensors from a file of `torch.save`, in the zip format or the older one.

    Of several names of one tensor, as of tied embeddings, the first is kept.

    Raises:
        DataError: The file holds something else, tensors that are larger than the file, or a part of another size than
            the tensors in it.
        Exception: The file is damaged, or names something that is not a tensor.
    """
    with path.open("rb") as file:
        is_zip = file.read(len(ZIP_START)) == ZIP_START
    records = _record_sizes(path) if is_zip else []
    state = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)  # mapped parts end with the file
    if not isinstance(state, dict) or not state:
        raise DataError("it is not a table of tensors")
    for name, tensor in state.items():
        if not isinstance(name, str) or type(tensor) not in (Tensor, nn.Parameter):
            raise DataError(f"{name!r:.80} in it is not the name of a tensor, or stands for something else")
        if tensor.layout != torch.strided or tensor.device.type != "cpu" or tensor.is_quantized:
            raise DataError(f"{name!r:.80} in it is not a plain tensor")
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in state.values()}
    if is_zip and [storages[place] for place in sorted(storages) if storages[place]] != records:
        raise DataError("its parts have other sizes than its tensors")
    first = {_place(tensor): name for name, tensor in reversed(state.items())}
    distinct = {name: tensor.detach() for name, tensor in state.items() if first[_place(tensor)] == name}
    if tensor_bytes(distinct) > MAX_GROWTH * path.stat().st_size:
        raise DataError("its tensors are larger than the file")
    users = Counter(tensor.untyped_storage().data_ptr() for tensor in distinct.values())
    return {
        name: tensor.contiguous() if users[tensor.untyped_storage().data_ptr()] == 1 else tensor.clone().contiguous()
        for name, tensor in distinct.items()
    }


def _place(tensor: Tensor) -> tuple[object, ...]:
    """Returns what two names of one tensor have in common; empty tensors are all different."""
    return (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()) if tensor.numel() else (id(tensor),)


def _record_sizes(path: Path) -> list[int]:
    """Returns the sizes of the stored tensors in a file of `torch.save`, in the order of their places.

    Raises:
        DataError: A record is compressed, or two have the same name.
    """
    with zipfile.ZipFile(path) as archive:
        records = sorted(archive.infolist(), key=lambda record: record.header_offset)
    if any(record.compress_type != zipfile.ZIP_STORED for record in records):
        raise DataError("it is compressed, which no file of torch.save is")
    if len({record.filename for record in records}) < len(records):
        raise DataError("two of its parts have the same name")
    return [record.file_size for record in records if record.filename.split("/")[1:2] == ["data"] and record.file_size]


def limit_process(n_bytes: int) -> None:
    """Limits this process to the memory and time that weights of `n_bytes` need; it starts no other process."""
    torch.set_num_threads(1)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    memory = pages * resource.getpagesize() + 2 * (1 + MAX_GROWTH) * n_bytes + SPARE_BYTES
    written = MAX_GROWTH * n_bytes + (1 << 20)
    seconds = SECONDS + n_bytes // BYTES_PER_SECOND
    for kind, limit in (
        (resource.RLIMIT_AS, memory), (resource.RLIMIT_CPU, seconds), (resource.RLIMIT_FSIZE, written),
        (resource.RLIMIT_NPROC, 0), (resource.RLIMIT_CORE, 0),
    ):  # fmt: skip
        resource.setrlimit(kind, (limit, limit))


def _convert(folder: Path, files: Sequence[Path]) -> None:
    """Runs in the process: reads the files, and writes their tensors to one file."""
    limit_process(sum(file.stat().st_size for file in files))
    tensors: dict[str, Tensor] = {}
    for file in files:
        part = read_pickled(file)
        if twice := sorted(tensors.keys() & part.keys()):
            raise DataError(f"{twice[0]} is in {file.name} and in another part")
        tensors |= part
    save_tensors(folder / CONVERTED, tensors)


def describe_failure(error: Exception) -> str:
    """Returns why a file was not read, in one line."""
    if isinstance(error, DataError):
        return str(error)
    if named := NAMED.search(str(error)):
        return f"it names {named[1]}, {STRANGE}"
    return f"it is damaged, or holds more than tensors: {describe_error(error)}"


if __name__ == "__main__":
    target, *sources = map(Path, sys.argv[1:])
    try:
        _convert(target, sources)
    except Exception as error:  # a damaged pickle raises anything
        sys.exit(describe_failure(error))
