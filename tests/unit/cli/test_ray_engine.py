"""`transformer translate --engine ray` without Ray: what is checked before a job, and recorded after it."""

import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from transformer.cli.app import make_app
from transformer.cli.parquet_shards import TableColumns
from transformer.cli.ray_cluster import FREE_CPUS, ray_cluster
from transformer.cli.ray_engine import BATCH_ROWS, RayOptions, RayTranslation, fitting_actors
from transformer.errors import ConfigError, DataError, TransformerError, WorkerError
from transformer.ray import Translate
from transformer.sharding.leases import LeaseFolder

Work = Callable[[Path], None]
"""What the actors of a job do, with a file of results."""


def call(*arguments: object) -> None:
    make_app([str(arguments[0])])([str(argument) for argument in arguments], standalone_mode=False)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder of tables, with others that are none of the input."""
    folder = tmp_path / "in"
    tables = {"a": ["one", None], "b/c": ["two"]}
    for number, (name, texts) in enumerate(tables.items()):
        path = folder / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        ids = [f"{number}-{row}" for row in range(len(texts))]
        parquet.write_table(pa.table({"id": ids, "text": pa.array(texts, pa.string())}), path)
    for name in ("_old/a.parquet", ".a.parquet", "notes.txt"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("no table")
    return folder


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, tiny_run: Path, source: Path, tmp_path: Path) -> Callable[..., list[Path]]:
    """Runs the command with a function instead of Ray, and returns the files that it was given.

    By default the function translates each file in this process.
    """
    given: list[Path] = []

    def translate(path: Path, files: Sequence[Path]) -> None:
        tables = [Translate(tiny_run)(parquet.read_table(file)) for file in files]
        parquet.write_table(pa.concat_tables(tables), path)

    def run(*more: object, work: Work | None = None) -> list[Path]:
        def stand_in(self: RayTranslation, options: object, files: Sequence[Path], folder: Path, *rest: Any) -> None:
            given.extend(files)
            (work or (lambda path: translate(path, files)))(folder / "0.parquet")

        given.clear()
        monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
        monkeypatch.setattr(RayTranslation, "_translate", stand_in)
        call("translate", tiny_run, "--engine", "ray", "--input", source, "--output", tmp_path / "out", *more)
        return given

    return run


def test_all_files_of_a_folder_are_given_to_ray(
    job: Callable[..., list[Path]], source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches files in subfolders that are left out, and files of other programs that are read."""
    assert job() == [source / "a.parquet", source / "b/c.parquet"]
    assert parquet.read_table(tmp_path / "out").column_names == ["id", "text", "translation", "confidence", "error"]
    notes = capsys.readouterr().err
    assert f"3 rows are in {tmp_path / 'out'}" in notes
    assert "1 row could not be translated; the column 'error' says why" in notes


def test_a_finished_job_is_not_run_again(job: Callable[..., list[Path]], capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a second start that writes all rows once more."""
    job("--id-column", "id")
    assert job("--id-column", "id") == []
    assert capsys.readouterr().err.count("3 rows are in") == 2


def stop(path: Path) -> None:
    """A job that ends early."""
    path.write_bytes(b"")
    raise RuntimeError("first line\nno more memory")


def test_a_job_is_continued_with_ids_alone(job: Callable[..., list[Path]], tmp_path: Path) -> None:
    """Catches a job without ids that is continued from its beginning, and so writes rows twice."""
    with pytest.raises(WorkerError, match="Ray ended the job: no more memory; the same command continues"):
        job("--id-column", "id", work=stop)
    assert len(job("--id-column", "id")) == 2
    with pytest.raises(WorkerError, match=r"no more memory; remove .*/second and start again"):
        job("--output", tmp_path / "second", work=stop)
    with pytest.raises(DataError, match=r"second holds a part of the rows; remove it, or use --id-column"):
        job("--output", tmp_path / "second")


def test_the_error_of_an_actor_that_died_names_its_class_and_the_reason(job: Callable[..., list[Path]]) -> None:
    """Catches a report that an actor never ran, without which one and why."""

    def die(path: Path) -> None:
        raise RuntimeError(
            f"The actor died unexpectedly before finishing this task.\n\tclass_name: Tracker\n\tip: {path}\n"
            "The actor is dead because its node has died.\n"
            "The actor never ran - it was cancelled before it started."
        )

    reason = "actor Tracker: The actor is dead because its node has died. The actor never ran - it was cancelled"
    with pytest.raises(WorkerError, match=f"Ray ended the job: {reason} before it started; remove"):
        job(work=die)


class WrappedError(DataError):
    """An error as Ray wraps it: of the type of its cause, with a page of text."""

    traceback_str = "a page"


@pytest.mark.parametrize(
    ("raised", "cause"),
    [
        (RuntimeError("a page"), ConfigError("beam=0 is too small; choose 1")),
        (WrappedError("a page"), DataError("beam=0 is too small; choose 1")),
        (RuntimeError("the actor died\n\ntransformer.errors.ConfigError: beam=0 is too small; choose 1"), None),
    ],
    ids=["cause", "of both types", "text"],
)
def test_an_error_of_the_translator_keeps_its_words(
    job: Callable[..., list[Path]], raised: Any, cause: Exception | None
) -> None:
    """Catches an error of the program that is reported as one of Ray, which wraps what its actors raise."""

    def fail(_: Path) -> None:
        raised.cause = cause
        raise raised

    with pytest.raises(TransformerError, match=r"^beam=0 is too small; choose 1$"):
        job(work=fail)


@pytest.mark.parametrize("rows", [2, 4])
def test_rows_are_counted_at_the_end(job: Callable[..., list[Path]], rows: int) -> None:
    """Catches rows of equal ids that a continued job leaves out, and rows that were written twice."""
    table = pa.table({"error": pa.nulls(rows, pa.string())})
    with pytest.raises(DataError, match=f"out has {rows} rows, but the input has 3; if two rows had one id"):
        job("--id-column", "id", work=lambda path: parquet.write_table(table, path))


def test_a_folder_belongs_to_one_job(job: Callable[..., list[Path]], source: Path, tmp_path: Path) -> None:
    """Catches translations of two searches or of two inputs in one folder, and two commands that write to it."""
    job("--id-column", "id")
    with pytest.raises(DataError, match="holds results with another search; choose another folder"):
        job("--id-column", "id", "--beam", 2)
    parquet.write_table(pa.table({"id": ["x"], "text": ["four"]}), source / "d.parquet")
    with pytest.raises(DataError, match="holds results with another input"):
        job("--id-column", "id")
    other = LeaseFolder(tmp_path / "out/_job/leases")
    assert other.acquire("running"), "a finished command should have given its lease up"
    with pytest.raises(DataError, match="another process writes to"):
        job("--id-column", "id")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--text-column", "words"], "has no column 'words'; choose from id, text"),
        (["--text-column", "number"], "column 'number' holds int64, not texts"),
        (["--text-column", "pair.en", "--input", "in/z.parquet"], "'pair.en' is a field of a column"),
        (["--input", "none"], "none: No such file or directory"),
        (["--input", "empty"], r"empty is not a \.parquet file or a folder with such"),
        (["--input", "named.parquet"], "has a column 'error' already, which is written; rename it"),
        (["--input", "ids.parquet", "--id-column", "id"], "column 'id' is empty in some rows"),
        (["--input", "broken.parquet"], "not a Parquet file, damaged or cut short"),
        (["--output", "full"], "full is not empty"),
        (["--output", "full/x"], "full/x is a file, but --engine ray writes a folder"),
        (["--output", "in"], "is both input and output"),
        (["--shards", 2], "--shards does not go with --engine ray"),
        (["--json"], "--format does not go with --engine ray"),
        (["--n-best", 2], "--n-best does not go with --engine ray"),
        (["--sample"], "samples depend on the number of each line"),
        (["--all"], "--all is for documents"),
    ],
)
def test_wrong_input_is_one_error(
    job: Callable[..., list[Path]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[object],
    message: str,
) -> None:
    """Catches a cluster that is started for what cannot be done, and a traceback of pyarrow."""
    monkeypatch.chdir(tmp_path)
    for name in ("empty", "full"):
        (tmp_path / name).mkdir()
    (tmp_path / "full/x").touch()
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    texts = pa.array(["one", "two"])
    parquet.write_table(pa.table({"text": texts, "error": texts}), "named.parquet")
    parquet.write_table(pa.table({"text": texts, "id": pa.array([1, None])}), "ids.parquet")
    parquet.write_table(
        pa.table({"id": ["z"], "text": ["one"], "number": [1], "pair": [{"en": "one"}]}), "in/z.parquet"
    )
    if "number" in arguments:
        arguments = [*arguments, "--input", "in/z.parquet"]
    with pytest.raises(TransformerError, match=message):
        job(*arguments)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("flag", ["--concurrency", "--num-cpus", "--num-gpus", "--batch-size"])
def test_options_of_ray_need_the_engine(tiny_run: Path, flag: str) -> None:
    """Catches an option without effect, which a user believes in."""
    with pytest.raises(ConfigError, match=f"{flag} has no effect without --engine ray"):
        call("translate", tiny_run, "one", flag, 1)


def test_ray_that_is_missing_is_named(
    tiny_run: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a folder that is made before it is known that nothing can be done."""
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ModuleNotFoundError) as error:
        call("translate", tiny_run, "--engine", "ray", "--input", source, "--output", tmp_path / "out")
    assert error.value.name == "ray"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("cpus", "gpus", "num_cpus", "num_gpus", "expected"),
    [
        ([8, 8], [], 1, 0, 14),  # two cores are left for reading and writing
        ([8, 8], [], 4, 0, 3),
        ([9, 9], [], 4, 0, 4),  # the ninth cores are left
        ([3, 3], [], 4, 0, 1),  # at least one, for which Ray waits
        ([2], [], 1, 0, 1),
        ([64, 64], [4, 8], 1, 1, 12),
        ([64], [2], 1, 0.5, 4),
        ([64], [0], 1, 1, 1),
    ],
)
def test_as_many_actors_as_there_is_room_for(
    cpus: list[int], gpus: list[int], num_cpus: float, num_gpus: float, expected: int
) -> None:
    """Catches actors that take all cores, so that nothing is read, and actors that no machine has room for."""
    nodes = [{"CPU": float(n), **({"GPU": float(gpus[i])} if gpus else {})} for i, n in enumerate(cpus)]
    options = RayOptions(True, None, num_cpus, num_gpus, BATCH_ROWS)
    assert fitting_actors(nodes, options) == expected


def test_a_signal_ends_the_command_and_not_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches the handler of Ray, with which a command that is ended keeps its folder and has another exit code."""
    ray, ended = ModuleType("ray"), list[bool]()
    stand_ins: dict[str, Callable[..., object]] = {
        "init": lambda *address, **options: signal.signal(signal.SIGTERM, lambda *_: ended.append(False)),
        "is_initialized": lambda: True,
        "shutdown": lambda: ended.append(True),
    }
    for name, function in stand_ins.items():
        monkeypatch.setattr(ray, name, function, raising=False)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    previous = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as end, ray_cluster():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert end.value.code == 128 + signal.SIGTERM
    assert ended == [True]


def test_columns_need_a_table_that_is_divided(tiny_run: Path) -> None:
    """Catches a column that is named for a text."""
    with pytest.raises(ConfigError, match="--text-column is for Parquet files with --shards or --engine ray"):
        TableColumns("words").kind(tiny_run, "auto", in_shards=False)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("", ["auto", "local"]),
        ("local", ["local"]),
        ("127.0.0.1:{}", ["127.0.0.1:{}"]),
        ("ray://[::1]", ["ray://[::1]"]),
    ],
)
def test_ray_is_started_where_no_cluster_runs(
    address: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a command that needs a cluster, one that joins another than was asked for, and one without free cores."""
    started: dict[str, dict[str, object]] = {}

    def init(name: str, **options: object) -> None:
        started[name] = options
        if name == "auto":
            raise ConnectionError

    ray = ModuleType("ray")
    ray.__dict__.update(init=init, is_initialized=lambda: bool(started.keys() - {"auto"}), shutdown=lambda: None)
    monkeypatch.setitem(sys.modules, "ray", ray)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        monkeypatch.setenv("RAY_ADDRESS", address.format(port))
        with ray_cluster():
            assert list(started) == [name.format(port) for name in expected]
    if "local" in expected:
        assert started["local"]["num_cpus"] == len(os.sched_getaffinity(0)) + FREE_CPUS


@pytest.mark.parametrize("address", ["127.0.0.1:{}", "ray://127.0.0.1:{}"])
def test_a_cluster_that_does_not_answer_is_named(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches minutes in which Ray tries again, with warnings of its own alone."""
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        closed = address.format(listener.getsockname()[1])
    monkeypatch.setenv("RAY_ADDRESS", closed)
    with pytest.raises(ConfigError, match=f"no Ray cluster answers at RAY_ADDRESS={closed} "), ray_cluster():
        pass
