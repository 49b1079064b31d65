"""Batches of the engine: results that arrive before others."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from serving_engines import RecordingMetrics
from transformer.serving.engine.batching import Batcher, Shared
from transformer.serving.engine.estimates import Throughput
from transformer.serving.engine.process import Answer, ModelProcess
from transformer.serving.engine.queue import PendingRequest
from transformer.serving.engine.spawner_client import Spawner
from transformer.serving.interfaces import Item, Job
from transformer.serving.settings import ServerSettings


class OneWorker:
    """A process with one worker, whose answers are given by the test."""

    def __init__(self) -> None:
        self.requests: list[Mapping[str, Any]] = []
        self.answer = Answer(lambda kind: None)

    @property
    def n_idle(self) -> int:
        """1 until there is a request."""
        return 1 - len(self.requests)

    def request(self, message: Mapping[str, Any]) -> Answer:
        """Takes a batch."""
        self.requests.append(message)
        return self.answer


def test_a_line_that_is_searched_again_delays_nobody() -> None:
    """Catches results that are kept until the whole batch is done, and ones that land in another request."""

    async def check() -> None:
        settings, spawner = ServerSettings(models={"m": "m"}), cast("Spawner", None)
        shared = Shared(settings, 1, spawner, RecordingMetrics(), Throughput(), lambda: None)
        batcher, process = Batcher("m", shared, lambda: None), OneWorker()
        requests = [PendingRequest(Job("m", "translate", [Item(text)], text, {}), [1]) for text in "abc"]
        for request in requests:
            batcher.add(request)
        batcher.set_process(cast("ModelProcess", process))
        await asyncio.sleep(0)
        (batch,) = process.requests
        results = [{"text": item["text"].upper(), "source_tokens": 1, "target_tokens": 1} for item in batch["items"]]
        process.answer.add({"part": [[0, results[0]], [2, results[2]]]})
        by_text = {request.job.items[0].text: request for request in requests}
        first, second, third = (by_text[item["text"]] for item in batch["items"])
        assert await first.results() == results[:1]
        assert await third.results() == results[2:]
        assert not second.is_done
        process.answer.add({"results": [None, results[1], None]})
        assert await second.results() == results[1:2]
        await batcher.close()

    asyncio.run(asyncio.wait_for(check(), 60))
