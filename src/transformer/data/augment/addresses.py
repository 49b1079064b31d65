"""Addresses of pages and mailboxes that both sides have at corresponding places."""

from random import Random
from typing import Final

from transformer.data.augment.names import made_up_name
from transformer.data.augment.pair import Languages, Pair, whole_sides

_HOSTS: Final = ("example", "python", "shop", "my-site", "news", "wiki", "blog", "data-center", "mail", "city", "web2")
_DOMAINS: Final = ("com", "org", "net", "de", "fr", "io", "co.uk", "eu", "info")
_PATHS: Final = ("index.html", "a_b", "search?q=x&n=1", "2024/05", "docs#start", "v1.2")


def addresses(pair: Pair, rng: Random, languages: Languages) -> Pair | None:
    """Puts the same address at the start of both sides, at their end, or before their final punctuation mark."""
    del languages
    written = _address(rng)
    place = rng.random()
    if place < 0.2:
        return f"{written}: {pair[0]}", f"{written}: {pair[1]}"
    if place < 0.5:
        return f"{pair[0]} {written}", f"{pair[1]} {written}"
    if place < 0.7:
        return whole_sides(pair).surround(pair, "", f" ({written})")
    return whole_sides(pair).surround(pair, "", f": {written}")


def _address(rng: Random) -> str:
    """Returns the address of a page or a mailbox."""
    host = f"{rng.choice((rng.choice(_HOSTS), _ascii_name(rng)))}.{rng.choice(_DOMAINS)}"
    path = "/".join(rng.choice((_ascii_name(rng), *_PATHS)) for _ in range(rng.randint(1, 2)))
    return rng.choice((
        f"https://{host}", f"https://www.{host}/{path}", f"www.{host}", f"http://{host}/{path}",
        f"{_ascii_name(rng)}@{host}", f"{_ascii_name(rng)}.{_ascii_name(rng)}@{host}",
    ))  # fmt: skip


def _ascii_name(rng: Random) -> str:
    return made_up_name(rng).lower().translate(str.maketrans("öé", "oe"))
