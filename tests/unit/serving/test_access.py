"""Identities of clients, and the limits on them and on what they send."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from starlette.requests import Request

from transformer.errors import ConfigError
from transformer.serving.access import MAX_CLIENTS, Access, RateLimiter
from transformer.serving.bodies import read_limited
from transformer.serving.errors import ServiceError
from transformer.serving.keys import Keys, hash_key
from transformer.serving.settings import Limits, ServerSettings


def access(*proxies: str, **limits: int) -> Access:
    return Access(ServerSettings(models={"a": "a"}, proxies=proxies, limits=Limits(**limits)))


def request(address: str | None, *forwarded: str) -> Request:
    headers = [(b"x-forwarded-for", text.encode()) for text in forwarded]
    client = None if address is None else (address, 1234)
    return Request({"type": "http", "client": client, "headers": headers})


@pytest.mark.parametrize(
    ("proxies", "address", "forwarded", "expected"),
    [
        ((), "1.2.3.4", ("9.9.9.9",), "1.2.3.4"),
        (("10.0.0.0/8",), "1.2.3.4", ("9.9.9.9",), "1.2.3.4"),
        (("10.0.0.0/8",), "10.0.0.1", ("9.9.9.9",), "9.9.9.9"),
        (("10.0.0.0/8",), "10.0.0.1", ("6.6.6.6, 9.9.9.9, 10.0.0.2",), "9.9.9.9"),
        (("10.0.0.0/8",), "10.0.0.1", ("6.6.6.6", "9.9.9.9"), "9.9.9.9"),
        (("10.0.0.0/8",), "10.0.0.1", ("6.6.6.6, nonsense",), "10.0.0.1"),
        (("10.0.0.0/8",), "10.0.0.1", (), "10.0.0.1"),
        (("10.0.0.1",), "::ffff:10.0.0.1", ("9.9.9.9",), "9.9.9.9"),
        (("::1",), "::1", ("2001:db8:1:2:3:4:5:6",), "2001:db8:1:2::/64"),
        ((), "2001:db8:1:2:ffff::1", (), "2001:db8:1:2::/64"),
        ((), "fe80::1%eth0", (), "fe80::/64"),
        ((), None, (), "local"),
    ],
)
def test_addresses(proxies: tuple[str, ...], address: str | None, forwarded: tuple[str, ...], expected: str) -> None:
    """Catches a client that chooses its own address, and one that has as many as an IPv6 network has."""
    assert access(*proxies).address(request(address, *forwarded)) == expected


def test_wrong_proxies_are_refused_at_the_start() -> None:
    """Catches a proxy whose misspelt address is silently not trusted."""
    with pytest.raises(ConfigError, match="proxies: 'proxy' does not appear"):
        access("proxy")


def test_the_rate_allows_bursts_and_recovers() -> None:
    """Catches a limit that is too strict, too lax, or for ever, and a refusal that counts as a request."""
    now = 0.0
    rate = RateLimiter(60, clock=lambda: now)
    for _ in range(10):
        rate.take("a")
    with pytest.raises(ServiceError) as refused:
        rate.take("a")
    assert refused.value.retry_after == pytest.approx(1)
    rate.take("b")
    now = 0.25
    with pytest.raises(ServiceError) as refused:
        rate.take("a")  # a quarter of a request is none
    assert refused.value.retry_after == pytest.approx(0.75)
    now = 2.0
    rate.take("a")
    rate.take("a")
    with pytest.raises(ServiceError):
        rate.take("a")
    RateLimiter(0).take("a")


def test_the_table_of_clients_is_bounded() -> None:
    """Catches memory that grows with every address that ever asked, and a client forgotten although it still asks."""
    rate = RateLimiter(6, clock=lambda: 0.0)
    rate.take("busy")
    for number in range(2 * MAX_CLIENTS):
        rate.take(str(number))
        if number % 100 == 0:
            with pytest.raises(ServiceError):
                rate.take("busy")
    assert len(rate._buckets) == MAX_CLIENTS


def test_running_requests_are_counted() -> None:
    """Catches a request that fails and is counted as running for ever."""
    limited = access(concurrent=1, per_minute=0)

    def fail() -> None:
        with limited.admit("a"):
            with limited.admit("b"):
                pass
            with pytest.raises(ServiceError), limited.admit("a"):
                pass
            raise ZeroDivisionError

    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            fail()
    assert not limited._running


def body_of(chunks: Sequence[bytes], *, is_announced: bool) -> Request:
    """Returns a request whose body arrives in chunks, with or without a header of its length."""
    messages = [
        {"type": "http.request", "body": chunk, "more_body": number < len(chunks)}
        for number, chunk in enumerate(chunks, start=1)
    ]

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    length = str(sum(map(len, chunks))).encode()
    headers = [(b"content-length", length)] if is_announced else []
    return Request({"type": "http", "method": "POST", "headers": headers}, receive)


@pytest.mark.parametrize("is_announced", [True, False])
@pytest.mark.parametrize("sizes", [(17,), (5, 12), (16, 1)])
def test_a_body_of_exactly_the_limit_is_read(sizes: tuple[int, ...], is_announced: bool) -> None:
    """Catches a limit that is off by one, by the announced length or by what arrives."""
    chunks = [b"x" * size for size in sizes]
    content = asyncio.run(read_limited(body_of(chunks, is_announced=is_announced), 17))
    assert content == b"x" * 17
    with pytest.raises(ServiceError) as refused:
        asyncio.run(read_limited(body_of(chunks, is_announced=is_announced), 16))
    assert refused.value.code == "too_large"
    assert str(refused.value).startswith("the body is larger than 16 bytes; split it")


def test_keys_are_compared_by_the_whole_hash() -> None:
    """Catches keys that are compared by a part of their hashes, which others can share."""
    key = "tf-one"
    digest = hash_key(key)
    assert Keys({"one": digest}).find(key) == "one"
    for position, digit in enumerate(digest):
        other = digest[:position] + ("1" if digit == "0" else "0") + digest[position + 1 :]
        assert Keys({"other": other}).find(key) is None
        assert Keys({"other": other, "one": digest}).find(key) == "one"
    for part in ("", digest[:8], digest[:-1], digest + "0", digest.upper()):
        assert Keys({"other": part}).find(key) is None
