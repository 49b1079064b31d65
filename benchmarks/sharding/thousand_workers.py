"""Stragglers and failures among 1,000 workers: `Scheduler` with leases beside fixed parts, by a simulated clock.

The scheduler and the first shards of the workers are the program's own code; leases are kept in memory with the
program's times of expiry and renewal, and a worker waits between two looks as `Job.run` does. Workers differ in speed,
some are slow for the whole job, some die and are started again, some are held up for longer than a lease lasts and
then finish what they had begun. A worker that finds no shard repeats one that another worker has held for long. The
workers of both variants have the same speeds and die or pause at the same ages.

No time is measured, so the result does not depend on the machine.

Usage: python benchmarks/sharding/thousand_workers.py [--out FILE]
"""

import argparse
import heapq
import json
import math
import random
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from transformer.sharding.environment import Place
from transformer.sharding.job import POLL_SECONDS
from transformer.sharding.leases import LEASE_SECONDS, RENEWALS
from transformer.sharding.scheduler import Scheduler


@dataclass(frozen=True)
class Scenario:
    """Assumptions of a simulated job; times are in seconds.

    Attributes:
        workers: Number of processes.
        shards: Number of shards.
        work: Time of all shards together on one worker of speed 1: a billion sentences at 101 a second.
        speed_spread: Standard deviation of the logarithm of a worker's speed.
        shard_spread: The same of the work of a shard.
        slow_share: Share of workers that are slow.
        slow_speed: Factor of their speed.
        mean_life: Mean age at which a worker dies; infinity if none does.
        restart: Time from a death until a new worker takes its place; infinity if none does.
        mean_until_pause: Mean age at which a worker is held up, once; infinity if none is.
        pause: Time for which it is held up and renews no lease.
        listing_age: Age of the listing of results that a worker sees, as on a network share that caches them.
        repeats: Whether workers repeat shards that others hold for long.
        seed: Seed of the random numbers.
    """

    workers: int = 1000
    shards: int = 16_000
    work: float = 1e9 / 101
    speed_spread: float = 0.1
    shard_spread: float = 0.1
    slow_share: float = 0.0
    slow_speed: float = 0.2
    mean_life: float = math.inf
    restart: float = 300.0
    mean_until_pause: float = math.inf
    pause: float = 600.0
    listing_age: float = 0.0
    repeats: bool = True
    seed: int = 1


@dataclass(frozen=True)
class Outcome:
    """Course of a simulated job.

    Attributes:
        seconds: Time until all results are there; infinity if some never are.
        over_ideal: That time over the one of workers that all end together and never fail.
        idle_seconds: Time from the first worker without a shard to the end.
        missing: Shards without a result.
        done_twice: Shards that were done more than once; the later results are dropped.
        deaths: Workers that died.
        wasted_share: Work of killed workers and of results that were dropped, until the end, over all work.
    """

    seconds: float
    over_ideal: float
    idle_seconds: float
    missing: int
    done_twice: int
    deaths: int
    wasted_share: float


Lease = tuple[int, float, float]


class SimulatedFolder:
    """Leases and results of all workers in memory, by a clock that the simulation sets.

    Attributes:
        now: The time.
        written: Number of times that the result of each shard was written.
        listed: Shards whose results a listing shows.
        leases: Rank of the holder, time of expiry and time at which it was taken, of each shard that is held.
        again: The same of each shard that is repeated.
    """

    def __init__(self, listing_age: float) -> None:
        self.now = 0.0
        self.written, self.listed = Counter[int](), set[int]()
        self.leases, self.again = dict[int, Lease](), dict[int, Lease]()
        self._listing_age, self._recent = listing_age, deque[tuple[float, int]]()

    def write(self, shard: int) -> None:
        """Adds the result of a shard."""
        self.written[shard] += 1
        self._recent.append((self.now, shard))

    def refresh(self) -> None:
        """Lists the results that are old enough."""
        while self._recent and self._recent[0][0] <= self.now - self._listing_age:
            self.listed.add(self._recent.popleft()[1])


class SimulatedLeases:
    """View of one worker, which sees its own results at once.

    Args:
        folder: The leases and results of all workers.
        rank: Rank of this worker.
    """

    def __init__(self, folder: SimulatedFolder, rank: int) -> None:
        self._folder, self._rank = folder, rank
        self._results = set[int]()

    def finished(self) -> set[int]:
        """Implements `LeaseStore.finished`."""
        self._folder.refresh()
        self._results -= self._folder.listed
        return self._folder.listed | self._results if self._results else self._folder.listed

    def is_finished(self, shard: int) -> bool:
        """Implements `LeaseStore.is_finished`."""
        return self._folder.written.get(shard, 0) > 0

    def leased(self) -> set[int]:
        """Implements `LeaseStore.leased`."""
        leases = [*self._folder.leases.items(), *self._folder.again.items()]
        return {shard for shard, (_, expiry, _) in leases if expiry >= self._folder.now}

    def acquire(self, shard: int) -> bool:
        """Implements `LeaseStore.acquire`."""
        return self._acquire(self._folder.leases, shard)

    def release(self, shard: int) -> None:
        """Implements `LeaseStore.release`."""
        self._release(self._folder.leases, shard)

    def ages(self) -> dict[int, float]:
        """Implements `LeaseStore.ages`."""
        folder = self._folder
        repeated = {shard for shard, (_, expiry, _) in folder.again.items() if expiry >= folder.now}
        held = {shard: lease for shard, lease in folder.leases.items() if lease[1] >= folder.now}
        return {shard: folder.now - taken for shard, (_, _, taken) in held.items() if shard not in repeated}

    def acquire_again(self, shard: int) -> bool:
        """Implements `LeaseStore.acquire_again`."""
        return self._acquire(self._folder.again, shard)

    def release_again(self, shard: int) -> None:
        """Implements `LeaseStore.release_again`."""
        self._release(self._folder.again, shard)

    def renew(self, shard: int, seconds: float) -> None:
        """Renews a lease for so long, at the program's interval, unless another worker has it."""
        interval = LEASE_SECONDS / RENEWALS
        expiry = self._folder.now + seconds // interval * interval + LEASE_SECONDS if seconds < math.inf else math.inf
        for leases in (self._folder.leases, self._folder.again):
            if self._holds(leases, shard):
                leases[shard] = self._rank, expiry, leases[shard][2]

    def write(self, shard: int) -> None:
        """Writes the result of a shard, unless it is there, and gives it up."""
        self._folder.write(shard)
        self._results.add(shard)
        self.release(shard)
        self.release_again(shard)

    def _acquire(self, leases: dict[int, Lease], shard: int) -> bool:
        if shard in leases and leases[shard][1] >= self._folder.now:
            return False
        leases[shard] = self._rank, math.inf, self._folder.now
        return True

    def _release(self, leases: dict[int, Lease], shard: int) -> None:
        if self._holds(leases, shard):
            del leases[shard]

    def _holds(self, leases: dict[int, Lease], shard: int) -> bool:
        return shard in leases and leases[shard][0] == self._rank


@dataclass
class Worker:
    """A process.

    Attributes:
        rank: Its index.
        speed: Its speed.
        dies: Time at which it dies.
        pauses: Time at which it is held up.
    """

    rank: int
    speed: float
    dies: float
    pauses: float


def workers_of_rank(scenario: Scenario, rank: int) -> Iterator[Worker]:
    """Yields the worker with this rank, and those that take its place, which start at the time that is sent."""
    draw = random.Random(f"{scenario.seed} {rank}")
    is_slow = draw.random() < scenario.slow_share
    start = 0.0
    while True:
        speed = math.exp(draw.gauss(0, scenario.speed_spread)) * (scenario.slow_speed if is_slow else 1)
        life, active = draw.expovariate(1.0), draw.expovariate(1.0)
        dies = start + life * scenario.mean_life if scenario.mean_life < math.inf else math.inf
        pauses = start + active * scenario.mean_until_pause if scenario.mean_until_pause < math.inf else math.inf
        yield Worker(rank, speed, dies, pauses)
        start, is_slow = dies + scenario.restart, False


def shard_work(scenario: Scenario) -> list[float]:
    """Returns the work of each shard."""
    draw = random.Random(f"{scenario.seed} shards")
    sizes = [math.exp(draw.gauss(0, scenario.shard_spread)) for _ in range(scenario.shards)]
    return [size * scenario.work / sum(sizes) for size in sizes]


def finish_time(worker: Worker, work: float, start: float, scenario: Scenario) -> float:
    """Returns the time at which a worker finishes some work, or infinity if it dies before."""
    end = start + work / worker.speed
    if start <= worker.pauses < end:
        end += scenario.pause
    return end if end <= worker.dies else math.inf


class LeasedJob:
    """Workers that take free shards, until all results are there or no worker is left.

    Args:
        scenario: Assumptions.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.folder, self._work = scenario, SimulatedFolder(scenario.listing_age), shard_work(scenario)
        self._ranks = [workers_of_rank(scenario, rank) for rank in range(scenario.workers)]
        self._events: list[tuple[float, int, str, int]] = []
        self._idle = dict[int, float]()  # workers that found nothing, since when
        self._looks = dict[int, float]()  # the next look of each worker that has no shard
        self._first_idle, self._done_work, self._deaths, self._end = math.inf, 0.0, 0, math.inf
        self._begun = dict[int, float]()  # when each worker took its shard
        self._stops = dict[int, float]()  # when each worker will finish it, or die
        self._last = dict[int, float]()  # how long each worker took for its last shard
        self._workers = dict[int, Worker]()
        self._views, self._schedulers = dict[int, SimulatedLeases](), dict[int, Scheduler]()
        for rank in self._ranks:
            self._start(next(rank), 0.0)
        self._ideal = scenario.work / sum(worker.speed for worker in self._workers.values())

    def run(self) -> Outcome:
        """Runs the job."""
        while self._events:
            self.folder.now, rank, event, shard = heapq.heappop(self._events)
            if event == "look" and self._looks.get(rank) != self.folder.now:
                continue  # it has looked earlier
            if event == "die" or self.folder.now > self._workers[rank].dies:
                self._die(rank)
                continue
            if event == "resume":
                self._renew(rank, shard, self._workers[rank].dies)
                continue
            if event == "finish":
                self._last[rank] = self.folder.now - self._begun[rank]
                self._views[rank].write(shard)
                if len(self.folder.written) == self.scenario.shards:
                    self._end = self.folder.now
                    break  # workers that repeat a shard stop
            if not self._schedulers[rank].is_complete:
                self._take_shard(rank)
        left = {rank: stop - self._end for rank, stop in self._stops.items() if stop > self._end}
        self._done_work -= sum(seconds * self._workers[rank].speed for rank, seconds in left.items())
        return _outcome(
            self.scenario, self.folder.written, self._end, self._ideal, self._first_idle, self._deaths, self._done_work
        )

    def _start(self, worker: Worker, time: float) -> None:
        view = SimulatedLeases(self.folder, worker.rank)
        first = Place("", worker.rank, self.scenario.workers).first_of(self.scenario.shards)
        self._workers[worker.rank], self._views[worker.rank] = worker, view
        self._schedulers[worker.rank] = Scheduler(self.scenario.shards, view, first)
        if time < math.inf:
            self._add(time, worker.rank, "look")

    def _die(self, rank: int) -> None:
        self._deaths += 1
        self._idle.pop(rank, None)
        self._looks.pop(rank, None)
        self._last.pop(rank, None)
        self._start(next(self._ranks[rank]), self._workers[rank].dies + self.scenario.restart)

    def _take_shard(self, rank: int) -> None:
        now, worker = self.folder.now, self._workers[rank]
        self._looks.pop(rank, None)
        shard = self._schedulers[rank].next()
        if shard is None and self.scenario.repeats:
            shard = self._schedulers[rank].repeat(self._last.get(rank, math.inf))
        if shard is None:
            self._first_idle = min(self._first_idle, now)
            self._idle.setdefault(rank, now)
            self._wake(rank)
            return
        self._idle.pop(rank, None)
        end = finish_time(worker, self._work[shard], now, self.scenario)
        self._begun[rank], self._stops[rank] = now, min(end, worker.dies)
        self._done_work += (min(end, worker.dies) - now) * worker.speed
        stop = min(worker.dies, worker.pauses if worker.pauses >= now else math.inf)
        if stop < end:
            self._renew(rank, shard, stop)
        if stop + self.scenario.pause < min(end, worker.dies):
            self._add(stop + self.scenario.pause, rank, "resume", shard)
        self._add(min(end, worker.dies), rank, "finish" if end < math.inf else "die", shard)

    def _renew(self, rank: int, shard: int, until: float) -> None:
        self._views[rank].renew(shard, until - self.folder.now)
        for waiting in self._idle:
            self._wake(waiting)

    def _wake(self, rank: int) -> None:
        """Adds the next look of a waiting worker that can find something: after a lease expires or has become old."""
        now, leases = self.folder.now, self.folder.leases
        times = [expiry for _, expiry, _ in (*leases.values(), *self.folder.again.values()) if expiry >= now]
        if self.scenario.repeats and (own := self._last.get(rank, math.inf)) < math.inf:
            of_no_use = {shard for shard, (_, expiry, _) in self.folder.again.items() if expiry >= now}
            of_no_use |= {shard for shard in leases if self.folder.written[shard]}
            times += [max(now, taken + own) for shard, (_, _, taken) in leases.items() if shard not in of_no_use]
        expiry = min(times, default=math.inf)
        if expiry < math.inf:
            wait, since = min(POLL_SECONDS, LEASE_SECONDS / RENEWALS), self._idle[rank]
            look = since + (1 + (expiry - since) // wait) * wait
            if look < self._looks.get(rank, math.inf):
                self._add(look, rank, "look")

    def _add(self, time: float, rank: int, event: str, shard: int = -1) -> None:
        if event == "look":
            self._looks[rank] = time
        heapq.heappush(self._events, (time, rank, event, shard))


def with_fixed_parts(scenario: Scenario) -> Outcome:
    """Simulates workers that each do an equal part of the shards, which a new one continues after a death."""
    work = shard_work(scenario)
    written, deaths, done_work, ideal_speed = Counter[int](), 0, 0.0, 0.0
    ends: list[float] = []
    for rank in range(scenario.workers):
        successors = workers_of_rank(scenario, rank)
        worker, time = next(successors), 0.0
        ideal_speed += worker.speed
        first, last = (scenario.shards * number // scenario.workers for number in (rank, rank + 1))
        part = deque(range(first, last))
        while part and time < math.inf:
            finish = finish_time(worker, work[part[0]], time, scenario)
            done_work += (min(finish, worker.dies) - time) * worker.speed
            if finish < math.inf:
                written[part.popleft()] += 1
                time = finish
            else:
                deaths += 1
                time, worker = worker.dies + scenario.restart, next(successors)
        ends.append(time)
    return _outcome(scenario, written, max(ends), scenario.work / ideal_speed, min(ends), deaths, done_work)


def _outcome(
    scenario: Scenario, written: Counter[int], end: float, ideal: float, idle: float, deaths: int, done_work: float
) -> Outcome:
    return Outcome(
        seconds=end, over_ideal=end / ideal, idle_seconds=end - min(idle, end) if end < math.inf else math.inf,
        missing=scenario.shards - len(written), done_twice=sum(count > 1 for count in written.values()),
        deaths=deaths, wasted_share=max(0.0, done_work / scenario.work - 1),
    )  # fmt: skip


USUAL = Scenario()
SLOW = replace(USUAL, slow_share=0.02)
DEATHS = replace(USUAL, mean_life=50 * 3600.0)
PAUSES = replace(USUAL, mean_until_pause=50 * 3600.0)
ALL = replace(SLOW, mean_life=DEATHS.mean_life, mean_until_pause=PAUSES.mean_until_pause, listing_age=30.0)
SCENARIOS = {
    "speeds that differ by 10 %": USUAL,
    "and 2 % of the machines at a fifth of the speed": SLOW,
    "and a death every 50 hours of a machine, replaced after 5 minutes": DEATHS,
    "and such deaths, never replaced": replace(DEATHS, restart=math.inf),
    "and a pause of 10 minutes every 50 hours of a machine": PAUSES,
    "all of these, with lists of results that are 30 seconds old": ALL,
    "all of these with 4,000 shards": replace(ALL, shards=4000),
    "all of these with 1,000 shards": replace(ALL, shards=1000),
}


def main() -> None:
    """Simulates all scenarios and prints or writes the outcomes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="file for the result, as JSON")
    options = parser.parse_args()
    result = {"command": "python benchmarks/sharding/thousand_workers.py --out FILE", "scenarios": {}}
    for name, scenario in SCENARIOS.items():
        assumptions = {key: value if value < math.inf else None for key, value in asdict(scenario).items()}
        outcomes = {
            "leases": LeasedJob(scenario).run(),
            "leases without repeats": LeasedJob(replace(scenario, repeats=False)).run(),
            "fixed parts": with_fixed_parts(scenario),
        }
        facts = {variant: _json(outcome) for variant, outcome in outcomes.items()}
        result["scenarios"][name] = {"assumptions": assumptions, **facts}
        print(name, facts, sep="\n  ", flush=True)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def _json(outcome: Outcome) -> dict[str, float | int | None]:
    values = asdict(outcome).items()
    return {key: None if value == math.inf else round(value, 4) for key, value in values}


if __name__ == "__main__":
    main()
