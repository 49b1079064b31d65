"""Tests of the socket on which the server listens."""

import asyncio
import socket

from transformer.serving.server import bind


def test_answers_are_not_delayed_by_the_network() -> None:
    """Catches connections without TCP_NODELAY: each answer on a kept connection would come 40 ms late."""

    async def has_no_delay() -> int:
        accepted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted.set_result(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listener = bind("127.0.0.1", 0)
        async with asyncio.timeout(60), await asyncio.start_server(connected, sock=listener):
            _, writer = await asyncio.open_connection(*listener.getsockname())
            try:
                return await accepted
            finally:
                writer.close()
                await writer.wait_closed()

    assert asyncio.run(has_no_delay()) != 0
