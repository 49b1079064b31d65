"""The simulated job of `benchmarks/sharding`, in small: the program's scheduler under stragglers and failures."""

import json
import math
import runpy
from dataclasses import replace
from typing import Any

import pytest

from samples import ROOT

SIMULATION: dict[str, Any] = runpy.run_path(str(ROOT / "benchmarks" / "sharding" / "thousand_workers.py"))
LeasedJob, with_fixed_parts = SIMULATION["LeasedJob"], SIMULATION["with_fixed_parts"]
SMALL = SIMULATION["Scenario"](workers=20, shards=200, work=20 * 9000.0)
TROUBLE = replace(SMALL, slow_share=0.1, mean_life=40_000.0)


@pytest.mark.parametrize("seed", range(5))
def test_slow_and_dying_workers_lose_no_shard_and_write_none_twice(seed: int) -> None:
    """Catches a shard of a dead worker that nobody takes up, many that two workers do, and a long wait for the last."""
    scenario = replace(TROUBLE, seed=seed, listing_age=30.0)
    leases, fixed = LeasedJob(scenario).run(), with_fixed_parts(scenario)
    assert leases.deaths > 0
    assert leases.missing == 0
    assert leases.done_twice < SMALL.workers
    assert leases.idle_seconds < fixed.idle_seconds
    assert 1 <= leases.over_ideal < fixed.over_ideal


def test_shards_of_workers_that_nobody_replaces_are_done() -> None:
    """Catches leases that never expire; with fixed parts the results of such workers are missing."""
    scenario = replace(TROUBLE, restart=math.inf)
    leases, fixed = LeasedJob(scenario).run(), with_fixed_parts(scenario)
    assert leases.missing == 0
    assert fixed.missing > 0


def test_paused_workers_repeat_little() -> None:
    """Catches a job that ends without the shard of a paused worker, or in which much is done again."""
    outcome = LeasedJob(replace(SMALL, mean_until_pause=20_000.0, pause=6000.0)).run()
    assert outcome.missing == 0
    assert 0 < outcome.done_twice <= 2 * SMALL.workers


def test_workers_without_trouble_share_the_work() -> None:
    """Catches a scheduler that leaves workers idle: ten equal shards each take the ideal time, by arithmetic."""
    calm = replace(SMALL, speed_spread=0.0, shard_spread=0.0)
    assert LeasedJob(calm).run().seconds == pytest.approx(9000)


@pytest.mark.parametrize("seed", range(5))
def test_repeated_shards_shorten_the_wait(seed: int) -> None:
    """Catches repeats that come too late to help, and much work that is done for nothing."""
    slow = replace(SMALL, slow_share=0.2, mean_life=40_000.0, seed=seed)
    repeating, waiting = LeasedJob(slow).run(), LeasedJob(replace(slow, repeats=False)).run()
    assert repeating.missing == waiting.missing == 0
    assert repeating.seconds < waiting.seconds
    assert repeating.wasted_share < waiting.wasted_share + 0.1


def test_the_committed_result_holds() -> None:
    """Catches a result of other code: the times of fixed parts are the same on any machine."""
    path = ROOT / "benchmarks" / "results" / "simulated" / "thousand_workers.json"
    scenarios = json.loads(path.read_text(encoding="utf-8"))["scenarios"]
    assert scenarios.keys() == SIMULATION["SCENARIOS"].keys()
    assert all(scenario["leases"]["missing"] == 0 for scenario in scenarios.values())
    name = "all of these with 1,000 shards"
    expected = with_fixed_parts(SIMULATION["SCENARIOS"][name])
    assert scenarios[name]["fixed parts"]["seconds"] == pytest.approx(expected.seconds, rel=1e-6)
