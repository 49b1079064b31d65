"""Searches side by side."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from test_packed import random_model

from transformer.decoding import Request, Search, search_all, search_side_by_side
from transformer.packed import pack


def requests(n: int) -> list[Request]:
    return [Request([*torch.randint(4, 101, (1 + i % 7,)).tolist(), 2], 9, number=i) for i in range(n)]


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_every_request_is_answered_once_and_as_alone(workers: int) -> None:
    """Catches a request that two workers take, or none, and results under another's number."""
    model, asked = pack(random_model(), "float32"), requests(40)
    found = list(search_side_by_side(model, asked, Search(beam=2), workers=workers, batch_tokens=64))
    assert sorted(index for index, _ in found) == list(range(40))
    expected = search_all(model, asked, Search(beam=2))
    assert all(hypotheses[0].tokens == expected[index][0].tokens for index, hypotheses in found)
    assert torch.get_num_threads() == 2


def test_what_a_worker_raises_reaches_the_caller() -> None:
    """Catches a worker that dies unseen, so that the caller waits for ever or gets fewer lines."""

    class Broken:
        def begin(self, *_: Any) -> Any:
            raise RuntimeError("out of memory")

        def step(self, *_: Any) -> Any:
            raise AssertionError

    with pytest.raises(RuntimeError, match="out of memory"):
        list(search_side_by_side(Broken(), requests(9), Search(), workers=2, batch_tokens=16))


def test_workers_end_when_nobody_listens() -> None:
    """Catches threads that go on translating after the reader has left."""
    before = set(threading.enumerate())
    found = search_side_by_side(
        pack(random_model(), "float32"), iter(requests(5000)), Search(), workers=2, batch_tokens=64
    )
    next(iter(found))
    found.close()  # pyright: ignore[reportAttributeAccessIssue]
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=20)
        assert not thread.is_alive()
