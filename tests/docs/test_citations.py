"""Citations of the code and the documentation, compared with the bibliography and a list that was written by hand."""

import pytest

from check_citations import check, main

BIBLIOGRAPHY = "Wu et al. 2016, [Google](https://example.org)\n: Equation 14 has the length penalty.\n"
PLACES = {"Wu et al. 2016": {"Equation 14": ""}, "Vaswani et al. 2017": {"Table 3": "", "Section 5.3": ""}}


def test_every_citation_is_in_the_bibliography_and_in_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a wrong year, and sections, equations and tables that a source does not have."""
    assert main([]) == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("As in Wu et al. 2016, Eq. 14.", []),
        ("As in Wu et al. 2016,\n    Eq. 14, and in Table 3 of the paper.", []),
        ("The length penalty of Wu et al. 2015.", ["Wu et al. 2015: not in bibliography.md"]),
        ("As in Wu et al. 2016, Eq. 4.", ["Wu et al. 2016, Equation 4: not in citations.toml"]),
        ("See Sections 5.3 and 5.9.", ["Vaswani et al. 2017, Section 5.9: not in citations.toml"]),
        ("Wu et al. 2016 begin.\n\nTable 3 shows it.", []),
        ("Wu et al. 2016 show it in Table 3.", ["Wu et al. 2016, Table 3: not in citations.toml"]),
        ("As RFC 9110 (Section 7.8) says, in `Figure 1.5`, since June 2020.", []),
    ],
)
def test_a_citation_that_cannot_be_found_is_reported(text: str, messages: list[str]) -> None:
    """Catches places that are given to another source, and mistakes that are overlooked."""
    assert check(text, PLACES, BIBLIOGRAPHY) == messages
