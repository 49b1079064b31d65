"""Options of a translator and of its loading that do not depend on a model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from transformer.options.fields import Count, Doc, Positive, Remedy, check_bounds

MAX_INPUT_CHARACTERS: Final = 1 << 22
"""Characters of a line that are kept, far more than are translated."""

Device = Annotated[Literal["auto", "cpu", "cuda"], Doc("device to compute on; auto: a GPU if there is one")]
Precision = Annotated[
    Literal["auto", "float32", "bf16", "int8"],
    Doc("precision of the weights; auto: int8 (text encoders: bf16) if fast on this CPU, else float32; bf16 on a GPU"),
]
Split = Literal["auto", "sentence", "none"]
Case = Literal["auto", "keep"]
Size = Annotated[Count, Remedy("give a positive number, or 0 for the default")]


@dataclass(frozen=True, kw_only=True)
class TranslationOptions:
    """Options of a translator beside its search and terminology.

    Raises:
        ConfigError: A value is invalid.
    """

    task: Annotated[
        str, Doc("prefix of each line and of its parts for text-to-text models, e.g. 'summarize: ' or '<2de> '")
    ] = ""
    max_source_tokens: Annotated[
        Size, Doc("maximum of source tokens, the end included; longer lines are split; 0: the model's positions")
    ] = 0
    max_target_tokens: Annotated[Size, Doc("maximum of target tokens, the end included; 0: the model's positions")] = 0
    batch_tokens: Annotated[Size, Doc("maximum of longest source x hypotheses in a batch; 0: the fastest")] = 0
    deterministic: Annotated[bool, Doc("translate each line alone: bitwise reproducible in any batch; slower")] = False
    split: Annotated[
        Split,
        Doc(
            "when a line of several sentences is split: auto (default), where the model was trained on lines of fewer "
            "or the translation lacks some; sentence, always; none, only where it is too long"
        ),
    ] = "auto"
    case: Annotated[
        Case,
        Doc(
            "how capitals and Title Case are translated: auto (default), by way of ordinary case where the model was "
            "trained on few such lines; keep, as they are"
        ),
    ] = "auto"
    copy: Annotated[bool, Doc("leave lines without letters, and addresses, as they are")] = True

    def __post_init__(self) -> None:
        """Validates the options."""
        check_bounds(self)


@dataclass(frozen=True, kw_only=True)
class LoadingOptions(TranslationOptions):
    """Options of `load` and of the commands that load a translator; only the fields are used, not the values."""

    precision: Precision = "auto"
    device: Device = "auto"
    workers: Annotated[Positive, Doc("number of parallel processes; default: one per thread, up to 8")] | None = None
    special_tokens: Annotated[
        bool,
        Doc("read names of special tokens in texts, e.g. <extra_id_0>, as these tokens; only for texts that you trust"),
    ] = False
    ensemble: Annotated[tuple[Path, ...], Doc("further model to average predictions with")] = ()
    rerank: Annotated[
        Path | None, Doc("model of the other direction, by which the hypotheses of a beam are ranked as well")
    ] = None
    shortlist: (
        Annotated[
            Path, Doc("file written by transformer shortlist: only predict likely tokens; scores are relative to these")
        ]
        | None
    ) = None
