"""Files and folders that are whole or absent."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from substitution import substitute
from transformer.errors import DataError, OutputError
from transformer.storage.atomic import append_file, atomic_file, atomic_folder, replace_text


def no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, "a library's own words")


def fail_in_file(path: Path) -> None:
    with atomic_file(path) as file:
        file.write(b"newer")
        raise DataError("mine")


def fail_in_folder(path: Path, act: Callable[[Path], object]) -> None:
    with atomic_folder(path) as folder:
        (folder / "a").write_text("x")
        act(folder)


def not_between_file_systems(*_: object) -> int:
    raise OSError(errno.EXDEV, "a library's own words")


@pytest.mark.parametrize("can_copy", [True, False])
def test_a_file_is_appended_where_the_output_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, can_copy: bool
) -> None:
    """Catches a file that is copied before what is still in the buffer, twice, or not at all between file systems."""
    if not can_copy:
        substitute(monkeypatch, "atomic.copy_file_range", not_between_file_systems)
    (tmp_path / "part").write_bytes(b"part" * 50_000)
    with atomic_file(tmp_path / "out") as file:
        file.write(b"before")
        assert append_file(tmp_path / "part", file) == 200_000
        file.write(b"between")
        append_file(tmp_path / "part", file)
        file.write(b"after")
    assert (tmp_path / "out").read_bytes() == b"before" + b"part" * 50_000 + b"between" + b"part" * 50_000 + b"after"


def test_an_output_that_is_full_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a traceback of the kernel's copy, and a part that is blamed for a full disk."""
    (tmp_path / "part").write_bytes(b"part")
    substitute(monkeypatch, "atomic.copy_file_range", no_space)
    with pytest.raises(OutputError, match="out: No space left"), atomic_file(tmp_path / "out") as file:
        append_file(tmp_path / "part", file)
    assert [entry.name for entry in tmp_path.iterdir()] == ["part"]


def test_a_file_that_fails_leaves_the_older_one(tmp_path: Path) -> None:
    """Catches a cut file, a lost older one, and a temporary file left behind."""
    path = tmp_path / "a"
    path.write_text("older")
    with pytest.raises(DataError, match="mine"):
        fail_in_file(path)
    assert path.read_text() == "older"
    with pytest.raises(DataError, match="mine"):
        fail_in_file(tmp_path / "b")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    """Catches a pipe, or a device such as /dev/null, that a file replaces."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with atomic_file(pipe) as file:
        file.write(b"abc")
    assert os.read(reader, 10) == b"abc"
    os.close(reader)
    assert pipe.is_fifo()
    assert [*tmp_path.iterdir()] == [pipe]


def test_a_file_is_not_in_place_before_it_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a rename before the content is synced, whose failure would leave an empty file."""
    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OutputError) as raised:
        replace_text(tmp_path / "a", "x")
    assert str(raised.value) == f"{tmp_path / 'a'}: No space left on device; choose another output file"
    assert not list(tmp_path.iterdir())


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Returns a list that grows with each sync and rename, and the inode of what is synced or renamed."""
    fsync, recorded = os.fsync, list[tuple[str, int]]()

    def recorded_fsync(handle: int) -> None:
        recorded.append(("sync", os.fstat(handle).st_ino))
        fsync(handle)

    def recording(move: Callable[[Path, Path], None]) -> Callable[[Path, Path], None]:
        def recorded_move(source: Path, target: Path) -> None:
            recorded.append(("rename", os.stat(source).st_ino))  # noqa: PTH116
            move(source, target)

        return recorded_move

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    for name in ("replace", "rename"):
        monkeypatch.setattr(os, name, recording(getattr(os, name)))
    return recorded


def test_the_name_of_a_file_is_on_disk_too(tmp_path: Path, calls: list[tuple[str, int]]) -> None:
    """Catches a rename that a power failure undoes although the caller was told that the file is written."""
    replace_text(tmp_path / "a", "x")
    file, parent = ((tmp_path / name).stat().st_ino for name in ("a", "."))
    assert calls == [("sync", file), ("rename", file), ("sync", parent)]


def test_the_name_of_a_folder_is_on_disk_too(tmp_path: Path, calls: list[tuple[str, int]]) -> None:
    """Catches a folder whose files, entries or name are not on disk when the caller goes on."""
    with atomic_folder(tmp_path / "out") as folder:
        (folder / "b").mkdir()
        (folder / "b" / "a").write_text("x")
    parent, final, inner, file = ((tmp_path / name).stat().st_ino for name in (".", "out", "out/b", "out/b/a"))
    assert calls[-2:] == [("rename", final), ("sync", parent)]
    assert sorted(calls[:-2]) == sorted(("sync", inode) for inode in (final, inner, file))


def test_links_modes_and_long_names_are_kept(tmp_path: Path) -> None:
    """Catches a link replaced by a file, a private file that all can read, and a name made too long."""
    path, link = tmp_path / ("ü" * 127), tmp_path / "link"
    path.write_text("older")
    path.chmod(0o640)
    link.symlink_to(path)
    replace_text(link, "newer")
    assert (path.read_text(), path.stat().st_mode & 0o777, link.is_symlink()) == ("newer", 0o640, True)
    new = tmp_path / "new"
    replace_text(new, "")
    other = tmp_path / "other"
    other.touch()
    assert new.stat().st_mode == other.stat().st_mode


def test_a_folder_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """Catches a cut model that looks whole, and a folder that the next try finds not empty."""
    with pytest.raises(OutputError, match=r"new/out: No space left on device; free disk space, or choose"):
        fail_in_folder(tmp_path / "new" / "out", no_space)
    assert not list((tmp_path / "new").iterdir())
    with pytest.raises(FileNotFoundError, match="nowhere"):  # an error of an input file keeps its own name
        fail_in_folder(tmp_path / "out", lambda folder: (tmp_path / "nowhere").read_text())
    with pytest.raises(OutputError, match="out: File exists"):
        fail_in_folder(tmp_path / "out", lambda folder: (folder / "a").mkdir())
    assert [entry.name for entry in tmp_path.iterdir()] == ["new"]


def test_a_mount_point_is_filled_with_renames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a folder renamed to an empty volume, which no system permits."""
    substitute(monkeypatch, "atomic.ismount", lambda path: path == str(tmp_path / "out") or path == tmp_path / "out")
    (tmp_path / "out").mkdir()
    inode = (tmp_path / "out").stat().st_ino
    with atomic_folder(tmp_path / "out") as folder:
        (folder / "b").mkdir()
        (folder / "b" / "a").write_text("x")
        assert folder.parent == tmp_path / "out"
    assert (tmp_path / "out" / "b" / "a").read_text() == "x"
    assert [entry.name for entry in (tmp_path / "out").iterdir()] == ["b"]
    assert (tmp_path / "out").stat().st_ino == inode
