"""Identifies clients by API key or address, and limits their rate and concurrent requests."""

import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from starlette.requests import Request

from transformer.errors import ConfigError
from transformer.serving.errors import ServiceError
from transformer.serving.keys import Keys
from transformer.serving.operations import Operation
from transformer.serving.settings import ServerSettings

MAX_CLIENTS: Final = 10_000
"""Number of clients whose rates are remembered; the one seen longest ago is forgotten first."""
BURST_SECONDS: Final = 10
"""A client may send the requests of this time at once."""
SCHEMES: Final = ("bearer ", "deepl-auth-key ")
"""Schemes of the header Authorization, in lower case."""
IPV6_PREFIX: Final = 64
"""Leading bits of an IPv6 address that identify a client: a household or a machine has all addresses below them."""


@dataclass(frozen=True)
class Client:
    """A client, known by its key or its address.

    Attributes:
        name: Identity for limits and fairness.
        owner: Name of its key; empty without a key.
    """

    name: str
    owner: str = ""


class RateLimiter:
    """Rate limit: a token bucket per client, for a limited number of clients.

    Args:
        per_minute: Requests of a client in a minute; 0 for unlimited.
        clock: Returns the time in seconds.
    """

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_minute / 60
        self._capacity = max(1.0, self._per_second * BURST_SECONDS)
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> None:
        """Counts a request of a client.

        Raises:
            ServiceError: The client has sent too many.
        """
        if not self._per_second:
            return
        now = self._clock()
        tokens, then = self._buckets.pop(client, (self._capacity, now))
        tokens = min(self._capacity, tokens + (now - then) * self._per_second)
        is_allowed = tokens >= 1
        self._buckets[client] = (tokens - 1 if is_allowed else tokens, now)
        if len(self._buckets) > MAX_CLIENTS:
            self._buckets.popitem(last=False)
        if not is_allowed:
            wait = (1 - tokens) / self._per_second
            raise ServiceError("rate_limited", "too many requests in a short time; send fewer", retry_after=wait)


class Access:
    """Identifies clients and limits their requests.

    Args:
        settings: Settings of the server.

    Raises:
        ConfigError: The file of keys cannot be read or has none, or a proxy is not an address or network.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._path = settings.keys
        self._proxies = _parse_networks(settings.proxies)
        self._rate = RateLimiter(settings.limits.per_minute)
        self._max_concurrent = settings.limits.concurrent
        self._running: dict[str, int] = {}
        self.reload()
        if self.refuses_all:
            message = f"keys={str(self._path)!r} has no key, so it would refuse all requests; add one by --new-key NAME"
            raise ConfigError(message)

    def reload(self) -> None:
        """Reads the file of keys again.

        Raises:
            ConfigError: It cannot be read; the old keys stay valid.
        """
        self._keys = None if self._path is None else Keys.read(self._path)

    @property
    def refuses_all(self) -> bool:
        """Whether requests need a key, and there is none."""
        return self._keys is not None and not self._keys.names

    def identify_early(self, request: Request, operation: Operation) -> Client | None:
        """Returns the client of a request whose body has not been read; None if its key may still come in the body.

        Raises:
            ServiceError: A key is needed and missing, or it is unknown.
        """
        if self._keys is not None and _takes_key(operation) and not _given_key(request):
            return None
        return self.identify(request, operation)

    def identify(self, request: Request, operation: Operation, body_key: str = "") -> Client:
        """Returns the client of a request.

        Args:
            request: The request.
            operation: What it asks for; it determines how a wrong key is answered.
            body_key: Value of `api_key` in the body.

        Raises:
            ServiceError: A key is needed and missing, or it is unknown.
        """
        if self._keys is None:
            return Client(self.address(request))
        key = _given_key(request) or body_key
        if not key:
            raise ServiceError("unauthorized", "an API key is needed; ask the operator of this server for one")
        name = self._keys.find(key)
        if name is None:
            code = "forbidden" if operation.interface in ("LibreTranslate", "DeepL") else "unauthorized"
            raise ServiceError(code, "the API key is unknown; check it")
        return Client(f"key {name}", name)

    def address(self, request: Request) -> str:
        """Returns the address of a client; of IPv6, the network that one household or machine has."""
        hops = ",".join(request.headers.getlist("x-forwarded-for")).split(",")
        address = _parse_address(request.client.host if request.client else "")
        while hops and address is not None and any(address in proxy for proxy in self._proxies):
            previous = _parse_address(hops.pop().strip())
            if previous is None:
                break
            address = previous
        if isinstance(address, IPv6Address):
            return str(IPv6Network((address, IPV6_PREFIX), strict=False))
        return str(address or "local")

    @contextmanager
    def admit(self, client: str) -> Generator[None]:
        """Counts a request as running within the context.

        Raises:
            ServiceError: The client has too many running requests, or has sent too many.
        """
        self._rate.take(client)
        n_running = self._running.get(client, 0)
        if self._max_concurrent and n_running >= self._max_concurrent:
            message = f"more than {self._max_concurrent} requests at a time; wait for answers first"
            raise ServiceError("rate_limited", message, retry_after=1.0)
        self._running[client] = n_running + 1
        try:
            yield
        finally:
            self._running[client] -= 1
            if not self._running[client]:
                del self._running[client]


def _given_key(request: Request) -> str:
    """Returns the key in the headers or in the query string; empty without one."""
    return _header_key(request) or request.query_params.get("api_key", "")


def _header_key(request: Request) -> str:
    """Returns the key in the headers; empty without one."""
    authorization = request.headers.get("authorization", "")
    for scheme in SCHEMES:
        if authorization.lower().startswith(scheme):
            return authorization[len(scheme) :].strip()
    return request.headers.get("x-api-key", "")


def _takes_key(operation: Operation) -> bool:
    """Whether an operation may have its key in the body."""
    return operation.request is not None and "api_key" in operation.request.model_fields


def _parse_address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text.removeprefix("[").partition("]")[0].partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _parse_networks(proxies: Sequence[str]) -> list[IPv4Network | IPv6Network]:
    try:
        return [ip_network(proxy, strict=False) for proxy in proxies]
    except ValueError as error:
        raise ConfigError(f"proxies: {error}; give addresses or networks, e.g. 10.0.0.0/8") from error
