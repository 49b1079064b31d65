"""Facts of a page as JSON: what its scripts read beside the numbers of the tensors, which are named by their ids."""

from collections.abc import Sequence
from typing import NotRequired, TypedDict


class TensorFacts(TypedDict):
    """Shape and axes of a tensor; of a large table, the rows that the page has, and their names."""

    shape: list[int]
    axes: list[str]
    rows: NotRequired[list[int]]
    names: NotRequired[list[str]]


class OperandFacts(TypedDict):
    """A tensor in its role in a step.

    Of a parameter that several steps use, `paths` are the number and the input of each of them, and `whole_norm` is the
    norm of the sum of their gradients.
    """

    role: str
    symbol: str
    axes: list[str]
    shape: list[int]
    parameter: str
    tensor: int
    gradient_norm: float | None
    gradient: int | None
    paths: NotRequired[list[tuple[int, int]]]
    whole_norm: NotRequired[float | None]


class StepFacts(TypedDict):
    """A step of the computation; `readers` are the steps that read its output."""

    id: int
    kind: str
    title: str
    section: str
    block: str
    inputs: list[OperandFacts]
    output: OperandFacts
    attributes: dict[str, object]
    formula: str
    chain: dict[str, str]
    file: str
    line: int
    module: str
    paper: str
    note: str
    readers: list[int]


class BlockFacts(TypedDict):
    """A block of a section, and the numbers of its steps."""

    title: str
    number: int
    steps: list[int]


class PartFacts(TypedDict):
    """A section of the model, e.g. "Encoder layer 1"."""

    title: str
    blocks: list[BlockFacts]


class AttentionFacts(TypedDict):
    """The attention weights of a layer, and the step that computes them."""

    kind: str
    layer: int
    step: int
    tensor: int
    module: str
    rows: str
    columns: str


class TableFacts(TypedDict):
    """The first rows of the table that encodes positions."""

    tensor: int
    is_learned: bool
    count: int


class PictureFacts(TypedDict):
    """The picture that a model of images reads, with the fields of `Picture` and the grid of its patches."""

    tensor: int
    grid: list[int]
    mean: Sequence[float]
    deviation: Sequence[float]
    patch: tuple[int, int]


class Norm(TypedDict):
    """The norm of the gradient with respect to the output of a step, or of a section."""

    label: str
    norm: float
    section: NotRequired[str]


class NormSeries(TypedDict):
    """The norms of a model."""

    name: str
    values: list[Norm]


Question = TypedDict("Question", {"pass": str, "text": str, "target": str | None}, total=False)
"""The text of a pass that a server keeps under a name."""


class PageFacts(Question):
    """Everything that a page shows of a pass."""

    model: dict[str, object]
    axes: dict[str, str]
    tokens: dict[str, list[str]]
    labels: list[str]
    label_ids: list[int]
    vocabularies: dict[str, list[str]]
    loss: dict[str, float]
    steps: list[StepFacts]
    parts: list[PartFacts]
    attention: list[AttentionFacts]
    positions: TableFacts | None
    picture: PictureFacts | None
    probabilities: list[list[dict[str, object]]]
    changes: dict[str, object]
    gradient_norms: list[NormSeries]
    tensors: list[TensorFacts]
