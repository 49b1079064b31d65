"""A small server that translates waiting texts together with CTranslate2, for `benchmarks/serving/serving.py`.

While CTranslate2 is busy texts queue up, and whoever becomes free takes all of them, up to a number.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from peer import PeerTranslator, answer, read_order
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

MOST_TEXTS = 64


class Batcher:
    """A queue of texts, and as many tasks that translate them as CTranslate2 has workers."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.translator = PeerTranslator(order)
        self.workers = order["workers"]
        self.waiting: asyncio.Queue[tuple[str, asyncio.Future[str]]] = asyncio.Queue()

    async def translate(self, text: str) -> str:
        """Returns the translation of a text."""
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.waiting.put_nowait((text, future))
        return await future

    async def work(self) -> None:
        """Translates batches, forever."""
        while True:
            batch = [await self.waiting.get()]
            while not self.waiting.empty() and len(batch) < MOST_TEXTS:
                batch.append(self.waiting.get_nowait())
            translations = await asyncio.to_thread(self.translator.translate, [text for text, _ in batch])
            for (_, future), translation in zip(batch, translations, strict=True):
                if not future.done():
                    future.set_result(translation)


def application(order: dict[str, Any]) -> Starlette:
    """Returns the ASGI application."""
    batcher = Batcher(order)

    async def translate(request: Request) -> Response:
        texts = (await request.json())["q"]
        is_list = isinstance(texts, list)
        translations = await asyncio.gather(*map(batcher.translate, texts if is_list else [texts]))
        return Response(answer(translations, is_list=is_list), media_type="application/json")

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(batcher.work()) for _ in range(batcher.workers)]
        yield
        for task in tasks:
            task.cancel()

    return Starlette(routes=[Route("/translate", translate, methods=["POST"])], lifespan=lifespan)


if __name__ == "__main__":
    order = read_order()
    uvicorn.run(application(order), host="127.0.0.1", port=order["port"], log_level="warning", backlog=4000)
