"""The `data` sections of tasks other than translation."""

from typing import Final, Literal

from pydantic import Field, model_validator

from transformer.data.config import Column, DataConfig, Paths, TaskConfig, as_list

Share = Field(default=0.1, gt=0, lt=1, description="fraction of the data to hold out if no validation files are set")


class TextConfig(TaskConfig):
    """Running text in windows of equal length, for language modeling, masked language modeling and span corruption.

    The end of the text is held out if `validation_text` is not set. Several files are concatenated.
    """

    task: Literal["language-model", "masked-words", "spans"] = "language-model"
    text: Paths = Field(description="text file, or a list of files")
    validation_text: Paths | None = Field(
        default=None, description="validation text file, or a list of files; the end of `text` if not set"
    )
    validation_share: float = Share
    window: int | None = Field(
        default=None, ge=8, description="length of an example in tokens; the model's maximum length if not set"
    )
    stride: int | None = Field(
        default=None,
        ge=1,
        description="tokens from the start of one training window to that of the next; no overlap if not set",
    )
    corruption_rate: float = Field(
        default=0.15, gt=0, lt=1, description="task spans only: fraction of the tokens of a window to mask"
    )
    span_length: float = Field(
        default=3.0, ge=1, description="task spans only: mean length of the masked spans in tokens"
    )

    @property
    def name(self) -> str:
        """Name of the corpus in messages: its first file."""
        return as_list(self.text)[0]

    @model_validator(mode="after")
    def _spans_alone(self) -> "TextConfig":
        fields = type(self).model_fields  # a stored recipe sets all of them
        changed = [name for name in ("corruption_rate", "span_length") if getattr(self, name) != fields[name].default]
        if changed and self.task != "spans":
            raise ValueError(f"data.{changed[0]} is of data.task='spans', not of {self.task!r}; leave it out")
        return self


class LabelConfig(TaskConfig):
    """Labelled texts: `text<TAB>label`, or columns of .tsv, .csv, .jsonl or .parquet files."""

    task: Literal["classification"] = "classification"
    examples: Paths = Field(description="file of texts and labels (.tsv, .csv, .jsonl, .parquet), or a list of files")
    validation_examples: str | None = Field(
        default=None, description="validation file; if not set, validation_share of the examples is held out"
    )
    validation_share: float = Share
    columns: tuple[Column, Column] | None = Field(
        default=None,
        description="text and label columns: numbers from 1, or names; if not set, 1 and 2, or text and label",
    )

    @property
    def name(self) -> str:
        """Name of the corpus in messages: its first file."""
        return as_list(self.examples)[0]


class NeighbourConfig(TaskConfig):
    """Pairs of texts with the same meaning, to train text embeddings."""

    task: Literal["embeddings"] = "embeddings"
    examples: Paths = Field(description="file of text pairs (.tsv, .csv, .jsonl, .parquet), or a list of files")
    validation_examples: str | None = Field(
        default=None, description="validation file; if not set, validation_share of the examples is held out"
    )
    validation_share: float = Share
    columns: tuple[Column, Column] | None = Field(
        default=None,
        description="columns of the two texts: numbers from 1, or names; if not set, 1 and 2, or first and second",
    )

    @property
    def name(self) -> str:
        """Name of the corpus in messages: its first file."""
        return as_list(self.examples)[0]


class ImageConfig(TaskConfig):
    """Labelled images: a folder with one subfolder of images per label, or IDX files of images and labels."""

    task: Literal["images"] = "images"
    images: str = Field(
        description="folder with one subfolder of images per label, or IDX file of images (.gz allowed)"
    )
    labels: str | None = Field(default=None, description="IDX file of labels; required for an IDX file of images")
    label_names: tuple[str, ...] | None = Field(
        default=None, description="label names for an IDX file; 0, 1, 2, ... if not set"
    )
    validation_images: str | None = Field(
        default=None, description="validation images; if not set, validation_share of the images is held out"
    )
    validation_labels: str | None = Field(default=None, description="IDX file of validation labels")
    validation_share: float = Share
    flip: bool = Field(default=True, description="flip training images horizontally with probability 0.5")
    shift: int = Field(default=2, ge=0, description="maximum random shift of training images in pixels; 0 disables it")
    erase: float = Field(
        default=0.0, ge=0, lt=1, description="probability of erasing a random rectangle of a training image"
    )

    @property
    def name(self) -> str:
        """Name of the corpus in messages: the path of the images."""
        return self.images

    @model_validator(mode="after")
    def _both_files_of_a_kind(self) -> "ImageConfig":
        if self.validation_labels is not None and self.validation_images is None:
            raise ValueError("data.validation_labels is given without data.validation_images; give both or neither")
        return self


AnyTaskConfig = DataConfig | TextConfig | LabelConfig | NeighbourConfig | ImageConfig
TASKS: Final[dict[str, type[AnyTaskConfig]]] = {
    "translation": DataConfig,
    "language-model": TextConfig,
    "masked-words": TextConfig,
    "spans": TextConfig,
    "classification": LabelConfig,
    "embeddings": NeighbourConfig,
    "images": ImageConfig,
}
"""The configuration class of each task's `data` section."""
