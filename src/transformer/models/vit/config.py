"""Configuration of a Vision Transformer."""

from typing import Final, Literal

from pydantic import Field, model_validator

from transformer.config import Layers
from transformer.models.kinds import Activation, Dropout, ImageEncoderConfig

Pair = tuple[int, int]


class VitConfig(ImageEncoderConfig):
    """Configuration of a Vision Transformer: a pre-norm encoder of image patches, and optional heads."""

    family: Literal["vit"] = "vit"
    image_size: Pair = Field(default=(224, 224), description="image height and width in pixels")
    patch_size: Pair = Field(default=(16, 16), description="patch height and width in pixels")
    resized: Pair | int | None = Field(
        default=None,
        description="size to which images are resized before their center is cropped to image_size: height and width, "
        "or the shorter edge, which keeps the proportions; image_size if not set",
    )
    resampling: Literal["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"] = Field(
        default="bilinear", description="filter of the resizing"
    )
    channels: int = Field(default=3, ge=1, description="number of image channels: 3 for RGB, 1 for grayscale")
    mean: tuple[float, ...] = Field(
        default=(0.5,),
        description="channel means, subtracted from pixel values in [0, 1]; one for all channels, or one each",
    )
    deviation: tuple[float, ...] = Field(
        default=(0.5,),
        description="channel standard deviations, by which pixel values are divided; one for all, or one each",
    )
    d_model: int = Field(default=768, ge=1, description="hidden size of the model")
    N: Layers = Field(default=12, description="number of layers")
    h: int = Field(default=12, ge=1, description="number of attention heads")
    d_ff: int = Field(default=3072, ge=1, description="inner size of the feed-forward networks")
    activation: Activation = "gelu"
    attention_bias: bool = Field(default=True, description="use biases in W_q, W_k and W_v")
    eps: float = Field(default=1e-12, gt=0, description="epsilon of layer normalization")
    dropout: Dropout = 0.0
    attention_dropout: float = Field(default=0.0, ge=0, lt=1, description="dropout probability of attention weights")
    pooler_size: int | None = Field(
        default=None,
        ge=1,
        description="output size of the pooler, a linear layer over the first position; no pooler if not set",
    )
    pooler_activation: Literal["tanh", "relu", "gelu"] = Field(
        default="tanh", description="activation function of the pooler: tanh, relu or gelu"
    )
    labels: tuple[str, ...] = Field(
        default=(), description="label names of images; adds a classification head if not empty"
    )

    @model_validator(mode="after")
    def _sizes_fit(self) -> "VitConfig":
        if self.d_model % self.h:
            raise ValueError(f"h={self.h} does not divide d_model={self.d_model}; choose a divisor")
        if any(not 0 < patch <= image for patch, image in zip(self.patch_size, self.image_size, strict=True)):
            raise ValueError(f"patch_size={self.patch_size} does not fit into image_size={self.image_size}")
        resized = (self.resized, self.resized) if isinstance(self.resized, int) else self.resized or self.image_size
        if any(size < wanted for size, wanted in zip(resized, self.image_size, strict=True)):
            raise ValueError(
                f"resized={self.resized} is below image_size={self.image_size}, so there is nothing to crop"
            )
        if any(len(values) not in (1, self.channels) for values in (self.mean, self.deviation)):
            raise ValueError(f"mean and deviation have one number, or one of each of the {self.channels} channels")
        if min(self.deviation) <= 0:
            raise ValueError(f"deviation={self.deviation} is not above 0; pixels are divided by it")
        return self


Config = VitConfig

PRESETS: Final[dict[str, dict[str, object]]] = {
    "tiny": {"image_size": (28, 28), "patch_size": (4, 4), "channels": 1, "d_model": 128, "N": 4, "h": 4, "d_ff": 256},
    "small": {"d_model": 384, "h": 6, "d_ff": 1536},
    "base": {},
    "large": {"d_model": 1024, "N": 24, "h": 16, "d_ff": 4096},
}
"""`base` and `large` are those of Dosovitskiy et al. 2021, Table 1; `small` is that of Touvron et al. 2021, "DeiT"."""
