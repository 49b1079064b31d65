"""The queue of the engine: fairness between clients, batches of equal options, items that are dropped."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import pytest

from transformer.serving.engine.estimates import HALF_LIFE_CHARACTERS, BatchingDelay, Throughput, TokenEstimator
from transformer.serving.engine.queue import FairQueue, PendingRequest, StreamRequest
from transformer.serving.errors import ServiceError
from transformer.serving.interfaces import Item, Job


def in_event_loop(test: Callable[[], None]) -> Callable[[], None]:
    """Runs a test in an event loop, which requests need for their futures."""

    async def run() -> None:
        test()

    @wraps(test)
    def wrapper() -> None:
        asyncio.run(run())

    return wrapper


def request(client: str, n: int, tokens: int = 1, options: Mapping[str, Any] | None = None) -> PendingRequest:
    job = Job("m", "translate", [Item(f"{client}{i}") for i in range(n)], client, options or {})
    return PendingRequest(job, [tokens] * n)


def texts(queue: FairQueue, max_tokens: int) -> list[str]:
    return [item.request.job.items[item.index].text for item in queue.take(max_tokens).items]


@in_event_loop
def test_a_large_request_does_not_delay_other_clients() -> None:
    """Catches a queue in the order of arrival, in which ten thousand items of one client come before all others."""
    queue = FairQueue()
    queue.add(request("a", 10_000))
    assert texts(queue, 2) == ["a0", "a1"]
    queue.add(request("b", 3))
    queue.add(request("c", 1))
    assert texts(queue, 4) == ["a2", "b0", "c0", "a3"]
    assert texts(queue, 4) == ["b1", "a4", "b2", "a5"]
    assert (queue.n_items, queue.tokens) == (10_004 - 10, 10_004 - 10)


@in_event_loop
def test_a_short_request_passes_long_ones_of_its_client() -> None:
    """Catches a user who waits for the lists that another one sends with the same key, and lists that never end."""
    queue = FairQueue()
    for _ in range(2):
        queue.add(request("a", 10))
    assert texts(queue, 2) == ["a0", "a1"]
    queue.add(request("a", 1, options={"beam": 1}))
    queue.add(request("a", 2, tokens=2))
    assert [texts(queue, 4) for _ in range(3)] == [["a0"], ["a0", "a1"], ["a2", "a3", "a4", "a5"]]
    assert len(texts(queue, 5)) == 5, "the first list has a ninth of its length left, and the second all of it"
    queue.add(request("a", 1, options={"beam": 1}))
    assert texts(queue, 4) == ["a0"]

    queue, n_steps = FairQueue(), 0
    long = request("a", 10)
    queue.add(long)
    while long in queue.requests():
        queue.add(request("a", 1))
        queue.take(1)
        n_steps += 1
    assert n_steps < 30, "a long request takes turns with later ones once as much was done for them"


@in_event_loop
def test_batches_have_equal_options_and_every_client_gets_its_turn() -> None:
    """Catches items of other options in a batch, and a client with rare options that waits forever."""
    queue = FairQueue()
    queue.add(request("a", 5, options={"beam": 1}))
    queue.add(request("b", 2, options={"beam": 4}))
    queue.add(request("a", 1, options={"beam": 4}))
    queue.add(request("c", 1, options={"beam": 1}))
    assert texts(queue, 3) == ["a0", "b0", "b1"]
    assert texts(queue, 9) == ["c0", "a0", "a1", "a2", "a3", "a4"]
    assert (len(queue), queue.tokens) == (0, 0)


@in_event_loop
def test_equal_options_are_equal_in_any_order() -> None:
    """Catches options that are compared by the order in which they were set."""
    first, second = request("a", 1, options={"beam": 2, "n_best": 2}), request("b", 1, options={"n_best": 2, "beam": 2})
    assert first.key == second.key != request("c", 1, options={"beam": 2}).key


@in_event_loop
def test_a_batch_has_at_most_its_tokens_and_at_least_one_item() -> None:
    """Catches batches that outgrow the memory, and an item above the limit that is never taken."""
    queue = FairQueue()
    queue.add(request("a", 2, tokens=50))
    queue.add(request("b", 4, tokens=3))
    assert texts(queue, 10) == ["a0"]
    assert texts(queue, 10) == ["b0"], "the next item of a does not fit"
    assert texts(queue, 10) == ["a1"]
    assert texts(queue, 10) == ["b1", "b2", "b3"]


@in_event_loop
def test_a_request_that_nobody_waits_for_leaves_the_queue() -> None:
    """Catches work for clients that left, and tokens that count for ever after against the limit of the queue."""
    queue = FairQueue()
    left, stays = request("a", 3, tokens=7), request("a", 1)
    queue.add(left)
    queue.add(stays)
    queue.requeue([left.items[0]])
    queue.discard(left)
    queue.discard(left)
    assert (len(queue), queue.tokens, queue.requests()) == (1, 1, {stays})
    assert texts(queue, 9) == ["a0"]
    queue.discard(stays)
    assert queue.tokens == 0


@in_event_loop
def test_items_of_a_dead_worker_come_first_and_alone() -> None:
    """Catches a text that kills its worker and takes the texts that share its batch down with it, twice."""
    queue = FairQueue()
    queue.add(request("a", 3))
    batch = queue.take(2)
    queue.add(request("b", 1))
    queue.requeue(batch.items)
    assert [texts(queue, 9) for _ in range(3)] == [["a0"], ["a1"], ["a2", "b0"]]


@in_event_loop
def test_streams_share_their_worker_with_none() -> None:
    """Catches two streams in one batch, which has a single worker to send parts."""
    queue = FairQueue()
    job = Job("m", "generate", [Item("a")])
    for _ in range(2):
        queue.add(StreamRequest(job, [1]))
    assert [len(queue.take(9).items) for _ in range(2)] == [1, 1]


@in_event_loop
def test_nothing_is_lost_or_taken_twice() -> None:
    """Catches items that are lost, repeated or miscounted in any order of adding, taking and dropping."""
    generator = random.Random(5)
    for _ in range(30):
        queue, added, taken, dropped = FairQueue(), Counter[Any](), Counter[Any](), Counter[Any]()
        requests: list[PendingRequest] = []
        while len(requests) < 30 or len(queue):
            action = generator.random()
            if action < 0.4 and len(requests) < 30:
                options = {"beam": generator.randint(1, 2)}
                requests.append(request(generator.choice("abcd"), generator.randint(1, 9), 2, options))
                queue.add(requests[-1])
                added.update(requests[-1].items)
            elif action < 0.9 and len(queue):
                batch = queue.take(generator.randint(1, 20))
                assert len({item.request.key for item in batch.items}) == 1
                taken.update(batch.items)
            elif requests:
                chosen = generator.choice(requests)
                dropped.update(item for item in chosen.items if item not in taken and item not in dropped)
                queue.discard(chosen)
            assert queue.tokens == 2 * queue.n_items == 2 * (added.total() - taken.total() - dropped.total())
        assert taken + dropped == added


def test_a_request_is_done_with_its_last_result() -> None:
    """Catches results in the order in which workers finish, and a late second result that replaces the first."""

    async def check() -> None:
        pending = request("a", 3)
        for index in (2, 0):
            pending.set_result(pending.items[index], {"text": str(index)})
        assert not pending.is_done
        pending.set_result(pending.items[0], ServiceError("internal", "late"))
        pending.set_result(pending.items[1], {"text": "1"})
        assert await pending.results() == [{"text": "0"}, {"text": "1"}, {"text": "2"}]

    asyncio.run(check())


def test_estimates_follow_the_results() -> None:
    """Catches a queue limit that counts Chinese as English, and a beam that counts as one hypothesis."""
    estimator = TokenEstimator()
    item = Item("x" * 100)
    assert estimator.estimate(Job("m", "translate", [item]), item, 1) == 31
    assert estimator.estimate(Job("m", "translate", [item]), item, 4) == 4 * 31
    assert estimator.estimate(Job("m", "translate", [item], options={"beam": 2, "n_best": 5}), item, 4) == 5 * 31
    for _ in range(20 * HALF_LIFE_CHARACTERS // 100):
        estimator.learn("translate", item, {"source_tokens": 100})
    assert 98 <= estimator.estimate(Job("m", "translate", [item]), item, 1) <= 101


@pytest.mark.parametrize("beam", ["x", -1, 0, None, 1e9, True, [3], 10**30])
def test_wrong_options_do_not_break_the_estimate(beam: object) -> None:
    """Catches an option that the worker would refuse, and that stops the server before."""
    item = Item("abc")
    assert TokenEstimator().estimate(Job("m", "translate", [item], options={"beam": beam}), item, 1) >= 1


def test_the_rate_is_learned() -> None:
    """Catches a Retry-After of zero or forever."""
    throughput = Throughput()
    assert throughput.seconds(1000, 2) == 1
    throughput.add(500, 2.0)
    assert throughput.seconds(1000, 2) == pytest.approx(2.0, rel=0.01)


def test_clients_that_were_just_answered_share_a_batch() -> None:
    """Catches a batch of the first of their next requests alone, and a wait that is long, or for one client."""
    delay = BatchingDelay()
    assert delay.seconds_left(0, now=10.0) == 0
    delay.batch_ended(n_items=3, seconds=0.02, now=10.0)
    assert delay.seconds_left(2, now=10.0) == pytest.approx(0.1 * 0.02)
    assert delay.seconds_left(2, now=10.003) == delay.seconds_left(3, now=10.0) == 0
    delay.batch_ended(n_items=3, seconds=60.0, now=10.0)
    assert delay.seconds_left(0, now=10.0) == pytest.approx(0.005)
    delay.batch_ended(n_items=1, seconds=0.02, now=10.0)
    assert delay.seconds_left(0, now=10.0) == 0
