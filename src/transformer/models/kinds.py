"""Kinds of models: the settings that tasks and pipelines read of any family of a kind."""

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypeVar

from pydantic import Field

from transformer.config import Config
from transformer.errors import ConfigError

Part = TypeVar("Part")
Activation = Annotated[
    Literal["relu", "silu", "gelu", "gelu_tanh"],
    Field(description="activation function of the feed-forward networks: relu, silu, gelu or gelu_tanh"),
]
Dropout = Annotated[float, Field(ge=0, lt=1, description="dropout probability of residual connections and embeddings")]
FurtherEnds = Annotated[
    tuple[Annotated[int, Field(ge=0)], ...],
    Field(description="ids of further tokens that end a text, such as the end of a message in a chat"),
]
SourceLength = Annotated[
    int, Field(ge=2, description="maximum source length in tokens, EOS included; longer training pairs are dropped")
]
TargetLength = Annotated[
    int, Field(ge=2, description="maximum target length in tokens, EOS included; longer training pairs are dropped")
]


def required_part(part: Part | None, name: str) -> Part:
    """Returns an optional part of a model, such as a head.

    Raises:
        ConfigError: The model lacks it.
    """
    if part is None:
        raise ConfigError(f"the model has no {name}; build it with one")
    return part


class ModelConfig(Config):
    """Configuration of a model.

    Families define the settings as fields, in the order in which files and pages list them. The classes here show them
    to type checkers only.
    """

    kind: ClassVar[str]

    if TYPE_CHECKING:
        d_model: int

    @property
    def family_name(self) -> str:
        """Name of the family, the value of the field `family`."""
        return str(type(self).model_fields["family"].default)


class EncoderDecoderConfig(ModelConfig):
    """Configuration of an encoder-decoder, which maps texts to texts."""

    kind = "encoder-decoder"

    if TYPE_CHECKING:
        src_seq_len: int
        tgt_seq_len: int

    @property
    def seq_len(self) -> int:
        """Maximum length of a text that may be source and target, in tokens."""
        return min(self.src_seq_len, self.tgt_seq_len)


class LanguageModelConfig(ModelConfig):
    """Configuration of a language model, which continues texts."""

    kind = "language model"

    if TYPE_CHECKING:
        seq_len: int


class LabellingConfig(ModelConfig):
    """Configuration of a model that may have a classification head."""

    if TYPE_CHECKING:
        labels: tuple[str, ...]


class EncoderConfig(LabellingConfig):
    """Configuration of an encoder of texts."""

    kind = "encoder"

    if TYPE_CHECKING:
        seq_len: int
        text_tokens: int | None
        masked: bool
        embedding: Literal["mean", "first", "pooled"]
        labels_read: Literal["pooler", "embedding"]

    @property
    def max_text_tokens(self) -> int:
        """Maximum number of tokens of a text in one pass, special tokens included."""
        return self.text_tokens or self.seq_len


class ImageEncoderConfig(LabellingConfig):
    """Configuration of an encoder of images."""

    kind = "image encoder"

    if TYPE_CHECKING:
        image_size: tuple[int, int]
        patch_size: tuple[int, int]
        channels: int
        mean: tuple[float, ...]
        deviation: tuple[float, ...]
        resized: tuple[int, int] | int | None
        resampling: Literal["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"]

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return self.image_size[0] // self.patch_size[0], self.image_size[1] // self.patch_size[1]
