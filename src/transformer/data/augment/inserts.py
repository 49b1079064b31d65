"""Emoji, tags and placeholders that both sides have at corresponding places."""

from random import Random
from typing import Final

from transformer.data.augment.pair import Languages, Pair, shared_words, whole_sides

EMOJI: Final = (
    "😀", "😂", "😅", "😊", "😍", "😢", "😡", "🤔", "🙈", "👍", "👎", "👋", "🙏", "💪", "❤️", "🎉", "🔥", "🚀", "✅",
    "❌", "⚠️", "☕", "🍕", "🎂", "🐱", "🌞", ":)", ":-)", ";-)", ":(", "<3",
)  # fmt: skip
TAGS: Final = ("b", "i", "em", "strong", "u", "code", "span", 'g id="1"', 'a href="#"', 'a href="help.html"')
PLACEHOLDERS: Final = (
    "%s", "%d", "%1$s", "%2$s", "%(name)s", "{0}", "{1}", "{}", "{name}", "{count}", "{{user}}", "{{ date }}", "$1",
    "${path}",
)  # fmt: skip


def emoji(pair: Pair, rng: Random, languages: Languages) -> Pair | None:
    """Puts one to three emoji at the end of both sides, at their start, or behind a word that both have."""
    del languages
    written = "".join(rng.choices(EMOJI, k=rng.choice((1, 1, 1, 2, 3))))
    place = rng.random()
    if place < 0.6:
        return f"{pair[0]} {written}", f"{pair[1]} {written}"
    if place < 0.8:
        return f"{written} {pair[0]}", f"{written} {pair[1]}"
    return _beside_shared_word(pair, rng, written)


def tags(pair: Pair, rng: Random, languages: Languages) -> Pair | None:
    """Puts tags around all of both sides, or around a word that both have."""
    del languages
    tag = rng.choice(TAGS)
    places = shared_words(pair)
    place = rng.choice(places) if places else whole_sides(pair)
    return place.surround(pair, f"<{tag}>", f"</{tag.split()[0]}>")


def placeholders(pair: Pair, rng: Random, languages: Languages) -> Pair | None:
    """Puts a placeholder at an end of both sides, or in the place of a word that both have."""
    del languages
    written = rng.choice(PLACEHOLDERS)
    if places := shared_words(pair):
        place = rng.choice(places)
        source, target = (
            f"{side[:start]}{written}{side[end:]}"
            for side, (start, end) in zip(pair, (place.source, place.target), strict=True)
        )
        return source, target
    if rng.random() < 0.5:
        return f"{written}: {pair[0]}", f"{written}: {pair[1]}"
    return whole_sides(pair).surround(pair, "", f": {written}")


def _beside_shared_word(pair: Pair, rng: Random, written: str) -> Pair | None:
    """Returns the pair with text behind a word that both sides have; None if there is none."""
    places = shared_words(pair)
    return rng.choice(places).surround(pair, "", f" {written}") if places else None
