"""Texts that several messages share."""

import pytest

from transformer.errors import counted


@pytest.mark.parametrize(("count", "text"), [(0, "0 lines"), (1, "1 line"), (2, "2 lines"), (21_000, "21,000 lines")])
def test_one_thing_has_no_plural(count: int, text: str) -> None:
    """Catches "1 lines", "0 line" and a long number without separators."""
    assert counted(count, "line") == text
