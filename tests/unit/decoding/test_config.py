"""The options of a search: validation, length penalties and deprecated names."""

from dataclasses import replace
from typing import Any

import pytest

from transformer.cli.search import search_of
from transformer.decoding import Search, length_normalization, paper_length_penalty
from transformer.errors import ConfigError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam": 0}, "beam=0 is below 1; choose 1 for greedy search"),
        ({"stopping": "never"}, "stopping='never' is unknown; choose one of early, exhaustive"),
        ({"beam": 2, "n_best": 3}, "n_best=3 is not between 1 and beam=2; choose a wider beam"),
        ({"beam": 4, "groups": 3}, "groups=3 does not divide beam=4; choose a divisor"),
        ({"min_tokens": -1}, r"min_tokens=-1 is below 0; choose e\.g\. 0"),
        ({"diversity": float("nan")}, r"diversity=nan is not a finite number; choose e\.g\. 0"),
        ({"repetition_penalty": 0.0}, "repetition_penalty=0.0 is not above 0"),
        ({"banned": [()]}, "an empty sequence cannot be banned"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    """Catches a division by zero, a search that is silently another one, a setting that does nothing."""
    with pytest.raises(ConfigError, match=message):
        Search(**options)


def test_invalid_penalties_are_refused() -> None:
    """Catches a penalty that falls or overflows."""
    for length_penalty in (paper_length_penalty, length_normalization):
        for alpha in (-1.0, 400.0, float("nan")):
            with pytest.raises(ConfigError, match=r"alpha=.* is not between 0 and 10; choose e\.g\. 0\.6"):
                length_penalty(alpha)


def test_penalties_by_hand() -> None:
    """Catches a formula mistaken, and defaults of the command line swapped: (5 + 7) / 6 = 2, and 7 itself."""
    assert paper_length_penalty(0.5)(7) == pytest.approx(2**0.5)
    assert length_normalization(1.0)(7) == 7
    assert search_of(beam=4).length_penalty(7) == pytest.approx(2**0.6)
    assert search_of(beam=4, length_penalty="normalize").length_penalty(7) == 7
    assert search_of(beam=3, length_penalty="normalize", alpha=2.0).length_penalty(7) == 49
    assert search_of(beam=3, alpha=1.0).beam == 3


def test_deprecated_names_work_with_a_warning() -> None:
    """Catches an old keyword or attribute that is refused, ignored, or accepted in silence."""
    penalty = length_normalization(1.0)
    old: dict[str, Any] = {"penalty": penalty, "guard": False}
    with pytest.warns(DeprecationWarning, match="is deprecated; use") as warned:
        search = Search(beam=2, **old)
    assert sorted(str(warning.message) for warning in warned) == [
        "Search.guard is deprecated; use retry_degenerate",
        "Search.penalty is deprecated; use length_penalty",
    ]
    assert {warning.filename for warning in warned} == {__file__}
    assert search == Search(beam=2, length_penalty=penalty, retry_degenerate=False)
    with pytest.warns(DeprecationWarning, match=r"Search\.penalty is deprecated; use length_penalty"):
        assert search.penalty is penalty
    with pytest.warns(DeprecationWarning, match=r"Search\.guard is deprecated; use retry_degenerate"):
        assert search.guard is False
    with pytest.warns(DeprecationWarning, match="use retry_degenerate"):
        assert replace(search, **{"guard": True}).retry_degenerate
