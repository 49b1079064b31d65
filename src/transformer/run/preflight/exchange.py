"""Messages between ranks through the launcher's store, which work before the ranks are connected with each other."""

import json
import os
import time
from datetime import timedelta
from typing import Any, Final

from torch.distributed import DistStoreError, HashStore  # pyright: ignore[reportPrivateImportUsage]
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from transformer.errors import TrainingError
from transformer.training.distributed.process_group import LAUNCHER_VARIABLES

POLL_SECONDS: Final = 0.05
PATIENCE: Final = 10
"""Multiple of the time for an answer after which a rank gives rank 0 up, which waits for others meanwhile."""
ROUNDS: Final = 5
"""Number of questions to the clock of rank 0; the one that was answered fastest counts."""


class Exchange:
    """The ranks of a job.

    All ranks must call the methods in the same order.

    Args:
        store: Store that all ranks see.
        rank: Rank of this process.
        size: Number of ranks.
        seconds: Time within which a rank has to answer.
    """

    def __init__(self, store: Store, rank: int, size: int, seconds: float) -> None:
        self.rank, self.size, self.seconds = rank, size, seconds
        self.present = set(range(size))
        self._store = store

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which collects the answers."""
        return self.rank == 0

    def gather(self, topic: str, value: Any) -> dict[int, Any]:
        """Sends a JSON value to rank 0.

        Returns:
            On rank 0 the values by rank; a rank that has not answered in time is no longer `present`. Empty on others.
        """
        self._store.set(f"{topic}/{self.rank}", json.dumps(value))
        if not self.is_main:
            return {}
        deadline, waiting = time.monotonic() + self.seconds, set(self.present)
        while waiting and time.monotonic() < deadline:
            waiting = {rank for rank in waiting if not self._store.check([f"{topic}/{rank}"])}
            if waiting:
                time.sleep(POLL_SECONDS)
        self.present -= waiting
        return {rank: json.loads(self._store.get(f"{topic}/{rank}")) for rank in sorted(self.present)}

    def broadcast(self, topic: str, value: Any = None) -> Any:
        """Returns the JSON value that rank 0 passes.

        Raises:
            TrainingError: Rank 0 does not answer.
        """
        if self.is_main:
            self._store.set(topic, json.dumps(value))
            return value
        self._wait(topic, PATIENCE * self.seconds)
        return json.loads(self._store.get(topic))

    def clock_offset(self) -> tuple[float, float]:
        """Returns by how much the clock of this rank is ahead of that of rank 0, and how far that may be wrong.

        Rank 0 must know who is `present`.
        """
        if self.is_main:
            for rank in sorted(self.present - {0}):
                self._answer_clock(rank)
            return 0.0, 0.0
        answers: list[tuple[float, float]] = []
        for number in range(ROUNDS):
            asked = time.time()
            self._store.set(f"clock/{self.rank}/ask/{number}", "")
            self._wait(f"clock/{self.rank}/answer/{number}", PATIENCE * self.seconds)
            now = time.time()
            answer = float(self._store.get(f"clock/{self.rank}/answer/{number}"))
            answers.append(((now - asked) / 2, (now + asked) / 2 - answer))
        error, offset = min(answers)
        return offset, error

    def _answer_clock(self, rank: int) -> None:
        try:
            for number in range(ROUNDS):
                self._wait(f"clock/{rank}/ask/{number}", self.seconds)
                self._store.set(f"clock/{rank}/answer/{number}", repr(time.time()))
        except TrainingError:
            return  # it will be missing when the answers are gathered

    def _wait(self, key: str, seconds: float) -> None:
        try:
            self._store.wait([key], timedelta(seconds=seconds))
        except DistStoreError as error:
            raise TrainingError(f"rank {self.rank} got no answer within {seconds:g} s; see the other ranks") from error


def join_exchange(seconds: float) -> Exchange:
    """Returns the ranks that a launcher started; without one, this process alone."""
    if not all(name in os.environ for name in LAUNCHER_VARIABLES):
        return Exchange(HashStore(), 0, 1, seconds)
    store = next(rendezvous("env://", timeout=timedelta(seconds=seconds)))[0]
    prefix = f"preflight/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    return Exchange(PrefixStore(prefix, store), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), seconds)
