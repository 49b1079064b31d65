"""The options that say how translations are searched for."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from transformer.decoding import Beam


Penalty = Literal["paper", "normalize"]

BeamOption = Annotated[
    int, typer.Option("--beam", min=1, max=1000, help="hypotheses followed at a time; 1 is greedy, the paper takes 4")
]
PenaltyOption = Annotated[
    Penalty,
    typer.Option("--length-penalty", help="paper: score / ((5 + length) / 6)^alpha; normalize: score / length^alpha"),
]
AlphaOption = Annotated[
    float | None,
    typer.Option("--alpha", min=0, help="exponent of the length penalty; 0.6, or 1 to normalize, if not given"),
]


def chosen_beam(size: int, penalty: Penalty, alpha: float | None) -> "Beam":
    """What the options ask for."""
    from transformer.decoding import Beam, length_normalization, paper_length_penalty

    if penalty == "paper":
        return Beam(size, paper_length_penalty(0.6 if alpha is None else alpha))
    return Beam(size, length_normalization(1.0 if alpha is None else alpha))
