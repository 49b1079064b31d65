"""A folder of results by shard, which any number of processes fill."""

import hashlib
import json
import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

from pydantic import ValidationError

from transformer.config import describe_problems
from transformer.errors import DataError
from transformer.sharding.environment import Place
from transformer.sharding.leases import LEASE_SECONDS, RENEWALS, LeaseFolder
from transformer.sharding.records import JobFile, Settings, ShardEntry, ShardResult
from transformer.sharding.scheduler import Scheduler
from transformer.sharding.shard_leases import AGAIN, ShardLeases, lease_name
from transformer.sharding.shards import Progress, Shard, Source, no_progress
from transformer.storage.atomic import append_file, atomic_file, replace_text

FORMAT: Final = 2
JOB_FILE: Final = "job.json"
LEASES: Final = "leases"
PLAN_LEASE, JOIN_LEASE = "plan", "join"
POLL_SECONDS: Final = 2.0
READ_BYTES: Final = 1 << 18


@dataclass
class ShardOutput:
    """The result of a shard while it is written.

    Attributes:
        file: File of the result.
        rejected: Number, from 1, and reason of each line or other item that could not be done.
        check: Function that is called at each write, and may end the work by an exception.
    """

    file: BinaryIO
    rejected: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    check: Callable[[], None] = lambda: None
    _digest: Any = field(default_factory=hashlib.sha256, repr=False)
    n_bytes: int = 0

    def write(self, content: bytes) -> None:
        """Appends to the result."""
        self.check()
        self.file.write(content)
        self._digest.update(content)
        self.n_bytes += len(content)

    @property
    def sha256(self) -> str:
        """Checksum of what was written."""
        return self._digest.hexdigest()


class Job:
    """Work on the shards of an input.

    Args:
        folder: Folder of the results, which all workers share.
        source: The input.
        settings: What determines the results: model, version of the program, options. All workers must agree.
        n_shards: Number of shards; unused if the folder has a job already.
        suffix: End of the names of the results, such as `.txt`.
        decide: Function that returns further settings, which may differ between calls or take long to find; those of
            the first worker hold for all.
        lease_seconds: Time after which the shard of a worker that gives no sign of life is free again.

    Attributes:
        settings: The settings, with those that the first worker has decided once the job is planned.
        shards: The shards, once the job is planned.
    """

    def __init__(
        self,
        folder: Path,
        source: Source,
        settings: Mapping[str, Any],
        n_shards: int,
        suffix: str = ".txt",
        decide: Callable[[], Settings] = dict,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self.folder, self.source, self.suffix = folder, source, suffix
        folder.mkdir(parents=True, exist_ok=True)
        self.leases = LeaseFolder(folder / LEASES, lease_seconds)
        self.settings, self._n_shards, self._decide = dict(settings), n_shards, decide
        self.shards: tuple[Shard, ...] = ()

    def plan(self, done: Progress = no_progress) -> None:
        """Divides the input into shards, or reads what another worker has planned.

        Args:
            done: Callback for progress, called with the number of bytes read since the last call.

        Raises:
            DataError: The folder belongs to other settings or another input, or the input cannot be read.
        """
        path = self.folder / JOB_FILE
        while not path.exists():
            if self.leases.acquire(PLAN_LEASE):
                with self.leases.renewed(PLAN_LEASE):
                    if not path.exists():
                        self._write_plan(done)
            else:
                time.sleep(POLL_SECONDS / 4)
        try:
            job = JobFile.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise DataError(
                f"{path} is damaged: {describe_problems(error)}; remove the folder to start anew"
            ) from error
        self._check(job)
        self.settings |= job.decided
        self.shards = tuple(Shard(index, **entry.model_dump()) for index, entry in enumerate(job.shards))

    def run(self, work: Callable[[Shard, ShardOutput], None], place: Place, done: Callable[[int], None]) -> None:
        """Does shards until all are finished, those of workers that died included.

        Args:
            work: Function that writes the result of a shard.
            place: Place of this process among the workers.
            done: Callback for progress, called with the number of items finished since the last call, by all workers.

        Raises:
            OutputError: A result cannot be written; the others are kept.
        """
        scheduler = Scheduler(len(self.shards), ShardLeases(self), place.first_of(len(self.shards)))
        counted, seconds = set[int](), math.inf
        while not scheduler.is_complete:
            self._count(counted, done)
            if (shard := scheduler.next()) is not None:
                lease = lease_name(shard)
            elif (shard := scheduler.repeat(seconds)) is not None:
                lease = lease_name(shard, AGAIN)
            else:
                time.sleep(min(POLL_SECONDS, self.leases.seconds / 4))
                continue
            started = time.monotonic()
            with self.leases.renewed(lease), suppress(_FinishedByAnotherError):
                self._do(self.shards[shard], work)
            seconds = time.monotonic() - started
        self._count(counted, done)

    def join(self, output: Path, write: Callable[[BinaryIO], None] | None = None) -> bool:
        """Writes all results to one file in the order of the input, unless another worker is writing or has written it.

        Args:
            output: The file.
            write: Function that writes the results to the opened file, if they are not just written one after another.

        Raises:
            DataError: A result is missing or damaged.
            OutputError: The file cannot be written.
        """
        if self._is_joined(output, is_concatenated=write is None) or not self.leases.acquire(JOIN_LEASE):
            return False
        with self.leases.renewed(JOIN_LEASE), atomic_file(output) as joined:
            if write is not None:
                write(joined)
            else:
                self.write_results(joined)
            self._remove_leftovers()
        return True

    def write_results(self, file: BinaryIO) -> None:
        """Appends all results to a file of `atomic_file`, and verifies them meanwhile.

        Raises:
            DataError: A result is missing or damaged.
            OutputError: The file cannot be written.
        """
        with ThreadPoolExecutor(1) as verification:
            for shard in self.shards:
                verified = verification.submit(self.verify, shard)
                with self._named_damage(shard):
                    append_file(self.part(shard.index), file)
                verified.result()

    def verify(self, shard: Shard) -> None:
        """Checks the checksum of a result.

        Raises:
            DataError: The result is missing or damaged.
        """
        for _ in self._verified(shard):
            pass

    def results(self) -> Iterator[bytes]:
        """Yields all results in the order of the input, in pieces.

        Raises:
            DataError: A result is missing or damaged, which is known at the end of its pieces.
        """
        for shard in self.shards:
            yield from self._verified(shard)

    @property
    def n_items(self) -> int:
        """Number of lines or other items of the input."""
        return sum(shard.n_items for shard in self.shards)

    @property
    def n_bytes(self) -> int:
        """Size of all results."""
        return sum(self.part(shard.index).stat().st_size for shard in self.shards)

    def _is_joined(self, output: Path, *, is_concatenated: bool) -> bool:
        """Whether a file is newer than all results and, if it just has them one after another, as large."""
        parts = [self.part(shard.index) for shard in self.shards]
        with suppress(FileNotFoundError):
            facts = [path.stat() for path in parts]
            joined = output.stat()
            newest = max((fact.st_mtime for fact in facts), default=0.0)
            is_whole = not is_concatenated or joined.st_size == sum(fact.st_size for fact in facts)
            return joined.st_mtime >= newest and is_whole
        return False

    def rejected(self) -> Iterator[tuple[int, str]]:
        """Yields number, from 1, and reason of each line or other item that could not be done."""
        for shard in self.shards:
            path = self._rejects(shard.index)
            if path.exists():
                for row in path.read_text(encoding="utf-8").splitlines():
                    entry = json.loads(row)
                    yield entry["line"], entry["reason"]

    @property
    def is_finished(self) -> bool:
        """Whether the results of all shards are there."""
        return len(self.finished()) == len(self.shards)

    def has_result(self, index: int) -> bool:
        """Whether the result of a shard is there: asks for its record by name, which no listing has cached."""
        return self._entry(index).exists()

    def finished(self) -> set[int]:
        """Returns the shards whose results are listed."""
        names = {path.name for path in self.folder.glob("part-*.json")}
        return {shard.index for shard in self.shards if self._entry(shard.index).name in names}

    def close(self) -> None:
        """Ends the work of this process."""
        self.leases.close()

    def _do(self, shard: Shard, work: Callable[[Shard, ShardOutput], None]) -> None:
        started = time.monotonic()
        with atomic_file(self.part(shard.index)) as file:
            output = ShardOutput(file, check=self._check_of(shard))
            work(shard, output)
            if self.has_result(shard.index):
                raise _FinishedByAnotherError  # its result is the same, and stays
        rows = [json.dumps({"line": line, "reason": reason}, ensure_ascii=False) for line, reason in output.rejected]
        if rows:
            replace_text(self._rejects(shard.index), "\n".join(rows) + "\n")
        result = ShardResult(
            sha256=output.sha256, n_bytes=output.n_bytes, n_items=shard.n_items, rejected=len(rows),
            seconds=round(time.monotonic() - started, 3), worker=self.leases.owner,
        )  # fmt: skip
        replace_text(self._entry(shard.index), result.model_dump_json() + "\n")  # the last: now the shard is finished

    def _check_of(self, shard: Shard) -> Callable[[], None]:
        """Returns a function that ends the work on a shard that another worker has finished, if nothing else is left.

        Otherwise this worker goes on: the others take what is left.
        """
        interval = self.leases.seconds / RENEWALS
        next_look = time.monotonic() + interval

        def check() -> None:
            nonlocal next_look
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + interval
                if self.has_result(shard.index) and self.is_finished:
                    raise _FinishedByAnotherError

        return check

    def _count(self, counted: set[int], done: Callable[[int], None]) -> None:
        new = self.finished() - counted
        counted |= new
        done(sum(self.shards[shard].n_items for shard in new))

    def _verified(self, shard: Shard) -> Iterator[bytes]:
        """Yields the result of a shard in pieces.

        Raises:
            DataError: It is missing, or is not what the worker wrote.
        """
        path, digest = self.part(shard.index), hashlib.sha256()
        with self._named_damage(shard):
            result = ShardResult.model_validate_json(self._entry(shard.index).read_bytes())
            with path.open("rb") as file:
                while content := file.read(READ_BYTES):
                    digest.update(content)
                    yield content
        if digest.hexdigest() != result.sha256:
            raise DataError(f"{path} has changed since it was written; remove {self._entry(shard.index)} and run again")

    @contextmanager
    def _named_damage(self, shard: Shard) -> Generator[None]:
        path = self.part(shard.index)
        try:
            yield
        except (OSError, ValidationError) as error:
            raise DataError(f"{path} is missing or damaged; remove {self._entry(shard.index)} and run again") from error

    def _remove_leftovers(self) -> None:
        """Removes what killed workers had begun to write, and the files that told them the time."""
        now = time.time()
        for path in (*self.folder.glob(".writing-*"), *self.leases.folder.glob(".clock-*")):
            with suppress(FileNotFoundError):
                if now - path.stat().st_mtime > 2 * self.leases.seconds:
                    path.unlink()

    def _write_plan(self, done: Progress) -> None:
        entries = [
            ShardEntry(first=shard.first, n_items=shard.n_items, positions=shard.positions)
            for shard in self.source.divide(self._n_shards, done)
        ]
        job = JobFile(
            format=FORMAT, settings=self.settings, decided=self._decide(), input=self.source.facts(), shards=entries
        )
        replace_text(self.folder / JOB_FILE, job.model_dump_json(indent=1) + "\n")

    def _check(self, job: JobFile) -> None:
        """Checks that the folder belongs to this input and these settings.

        Raises:
            DataError: It does not.
        """
        recorded = {"format": job.format, **job.settings, "input": job.input}
        check_settings(self.folder, recorded, {"format": FORMAT, **self.settings, "input": self.source.facts()})

    def part(self, index: int) -> Path:
        """Returns the path of the result of a shard."""
        return self.folder / f"part-{index:05d}-of-{len(self.shards):05d}{self.suffix}"

    def _entry(self, index: int) -> Path:
        return self.part(index).with_suffix(".json")

    def _rejects(self, index: int) -> Path:
        return self.part(index).with_suffix(".rejected.jsonl")


def check_settings(folder: Path, recorded: Settings, current: Settings) -> None:
    """Checks that the results in a folder were made with the current settings.

    Raises:
        DataError: They were not.
    """
    current = json.loads(json.dumps(current))
    if names := [name for name in {**recorded, **current} if recorded.get(name) != current.get(name)]:
        raise DataError(
            f"{folder} holds results with another {' and '.join(names)}; choose another folder, or remove it to start "
            "anew"
        )


class _FinishedByAnotherError(Exception):
    """Another worker has finished the shard at hand."""
