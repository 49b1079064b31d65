"""Labelled images, read from folders of image files or from IDX files."""

import math
import struct
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from transformer.data.batch import ImageBatch
from transformer.errors import ConfigError, DataError
from transformer.interfaces import ExampleGroup
from transformer.text.lines import open_bytes

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

IMAGE_FILES: Final = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})
PILLOW_MODES: Final = frozenset(
    {"1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "LAB", "HSV"}
)
"""Modes of Pillow with 8 bits per channel."""
READ_ERRORS: Final = (OSError, ValueError, SyntaxError, TypeError, LookupError, struct.error)
"""Exceptions that Pillow raises for truncated or damaged files."""
GREY_CHANNELS: Final = 1
COLOUR_CHANNELS: Final = 3
MAX_PIXELS: Final = 1 << 28
"""Maximum size of an image; a larger one is refused before it is decoded."""
MAX_IDX_BYTES: Final = 1 << 36
"""Maximum size of the data in an IDX file."""


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Reads the array of an IDX file of bytes, plain or compressed.

    Raises:
        DataError: the file is not an IDX file of bytes, or is damaged.

    Source: LeCun, "The MNIST database", the format of its files.
    """
    with open_bytes(path) as file:
        head = file.read(4)
        if len(head) < 4 or head[:3] != b"\x00\x00\x08":
            raise DataError(f"{path} is not an IDX file of bytes (it begins with {head.hex()}); check the path")
        sizes = file.read(4 * head[3])
        if len(sizes) < 4 * head[3]:
            raise DataError(f"{path} ends within its header; copy it again")
        shape = struct.unpack(f">{head[3]}I", sizes)
        expected = math.prod(shape)
        if expected > MAX_IDX_BYTES:
            raise DataError(f"{path} declares {expected:,} bytes in its header; it is damaged, copy it again")
        content = file.read(expected + 1)
    if len(content) != expected:
        n_bytes = "more" if len(content) > expected else f"{len(content):,}"
        raise DataError(f"{path} holds {n_bytes} bytes where its header says {expected:,}; copy it again")
    return np.frombuffer(content, np.uint8).reshape(shape)


class ImageProcessor:
    """Image preprocessing: reads image files, and resizes and normalizes their pixels."""

    def __init__(
        self,
        size: tuple[int, int],
        channels: int,
        mean: Sequence[float],
        deviation: Sequence[float],
        *,
        resized: tuple[int, int] | int | None = None,
        resampling: str = "bilinear",
    ) -> None:
        """Creates the processor.

        Args:
            size: Height and width of the images that the model reads.
            channels: 1 for greyscale, 3 for colour.
            mean: Mean of each channel, or of all channels, for pixels from 0 to 1.
            deviation: Standard deviation of each channel, or of all channels.
            resized: Height and width to which an image is resized before its center is cropped, or its shorter edge,
                which keeps the proportions; `size` if None.
            resampling: Filter of the resizing, a name of Pillow in lower case.
        """
        self.size, self.channels = size, channels
        self.resized, self.resampling = size if resized is None else resized, resampling
        self._mean, self._deviation = (np.array(values, np.float32)[:, None, None] for values in (mean, deviation))

    def normalize(self, pixels: Sequence[NDArray[np.uint8]]) -> Float[Tensor, "B C height width"]:
        """Normalizes images of bytes (channels, height, width) and stacks them.

        This uses NumPy and a single thread. In the prefetch thread, torch would start a second thread pool, which
        competes with the one that trains and halves its speed on two cores.
        """
        images = np.stack(pixels).astype(np.float32)
        images /= np.float32(255)
        images -= self._mean
        images /= self._deviation
        return torch.from_numpy(images)

    def read(self, path: Path) -> NDArray[np.uint8]:
        """Reads the image of a file: channels, height, width.

        Raises:
            ConfigError: Pillow is not installed, or the model reads neither greyscale nor colour images.
            DataError: the file is not an image, or is damaged.
        """
        if self.channels not in (GREY_CHANNELS, COLOUR_CHANNELS):
            raise ConfigError(f"a model of {self.channels} channels cannot read image files; pass pixels, in Python")
        height, width = self.size
        with _open_image(path) as image:
            from PIL import Image, ImageOps

            upright = ImageOps.exif_transpose(image)
            converted = upright.convert("L" if self.channels == GREY_CHANNELS else "RGB")
            to_height, to_width = self._resized_size(converted.height, converted.width)
            if to_height * to_width > MAX_PIXELS:
                raise DataError(f"{path} is too long and narrow to be resized by its shorter edge; crop it")
            resized = converted.resize((to_width, to_height), Image.Resampling[self.resampling.upper()])
        top, left = (to_height - height) // 2, (to_width - width) // 2
        pixels = np.asarray(resized, np.uint8)[top : top + height, left : left + width]
        return pixels[None] if self.channels == GREY_CHANNELS else pixels.transpose(2, 0, 1)

    def _resized_size(self, height: int, width: int) -> tuple[int, int]:
        if isinstance(self.resized, tuple):
            return self.resized
        shorter = min(height, width)
        return self.resized * height // shorter, self.resized * width // shorter


def check_image(path: Path) -> None:
    """Checks by its first bytes that a file is a supported image.

    Raises:
        ConfigError: Pillow is not installed.
        DataError: the file is not an image.
    """
    with _open_image(path):
        pass


@contextmanager
def _open_image(path: Path) -> "Generator[PillowImage]":
    """Opens an image, whose pixels are read in the block.

    Raises:
        ConfigError: Pillow is not installed.
        DataError: the file is not an image, is damaged, or has pixels of more than 8 bits.
    """
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise ConfigError("reading image files needs Pillow; pip install 'transformer[images]'") from error
    Image.MAX_IMAGE_PIXELS = MAX_PIXELS
    try:
        with Image.open(path) as image:
            if image.mode not in PILLOW_MODES:
                raise DataError(
                    f"{path}: its pixels are {image.mode}, more than 8 bits; save it with 8 bits per channel"
                )
            yield image
    except (*READ_ERRORS, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise DataError(f"{path}: not an image that can be read; remove or repair it") from error


class ImageFolder:
    """The images of a folder with one subfolder per label; hidden subfolders and those without images are ignored.

    Attributes:
        names: Names of the labels, sorted.
        labels: Label id of each file.
        n_skipped_files: Number of files without the extension of an image.

    Raises:
        DataError: the folder contains no images.
    """

    def __init__(self, folder: Path, processor: ImageProcessor) -> None:
        folders = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
        files = {subfolder.name: _visible_files(subfolder) for subfolder in folders}
        images = {name: [path for path in paths if path.suffix.lower() in IMAGE_FILES] for name, paths in files.items()}
        self.n_skipped_files = sum(map(len, files.values())) - sum(map(len, images.values()))
        images = {name: paths for name, paths in images.items() if paths}
        if not images:
            raise DataError(
                f"{folder} has no folders of images; it needs one folder per label, e.g. {folder}/cat/1.png"
            )
        self._paths = [path for paths in images.values() for path in paths]
        self._processor = processor
        self.names = tuple(images)
        self.labels = np.repeat(np.arange(len(images)), [len(paths) for paths in images.values()])

    def take(self, ids: NDArray[np.integer]) -> Float[Tensor, "B C height width"]:
        """Returns the normalized images of the given numbers."""
        return self._processor.normalize([self._processor.read(self._paths[i]) for i in ids])


def _visible_files(folder: Path) -> list[Path]:
    """Returns the files of a label at any depth, without hidden files and folders."""
    inner = ((path, path.relative_to(folder).parts) for path in folder.rglob("*") if path.is_file())
    return sorted(path for path, parts in inner if not any(part.startswith(".") for part in parts))


class IdxImages:
    """The images of an IDX file: (images, height, width), or with a channel axis before or after height and width.

    Attributes:
        names: Names of the labels.
        labels: Label id of each image.
        n_skipped_files: Always 0, see `ImageFolder`.

    Raises:
        DataError: images and labels do not match each other or the model.
    """

    def __init__(self, images: Path, labels: Path, names: tuple[str, ...] | None, processor: ImageProcessor) -> None:
        pixels, self.labels = read_idx(images), read_idx(labels).astype(np.int64)
        if pixels.ndim == 3:
            pixels = pixels[:, None]
        elif pixels.ndim == 4 and pixels.shape[3] == processor.channels != pixels.shape[1]:
            pixels = pixels.transpose(0, 3, 1, 2)
        if pixels.ndim != 4 or self.labels.shape != pixels.shape[:1]:
            raise DataError(f"{images} has shape {pixels.shape}, {labels} {self.labels.shape}; they do not go together")
        if pixels.shape[1:] != (processor.channels, *processor.size):
            raise DataError(
                f"{images} has images of {pixels.shape[1]} channels and {pixels.shape[2]} x {pixels.shape[3]} pixels, "
                f"the model reads {processor.channels} and {processor.size[0]} x {processor.size[1]}; set "
                "model.channels and model.image_size"
            )
        self.n_skipped_files = 0
        n_labels = int(self.labels.max(initial=0)) + 1
        self.names = names or tuple(map(str, range(n_labels)))
        if len(self.names) < n_labels:
            raise DataError(f"{labels} has labels up to {n_labels - 1}, data.label_names {len(self.names)} names")
        self._pixels, self._processor = pixels, processor

    def take(self, ids: NDArray[np.integer]) -> Float[Tensor, "B C height width"]:
        """Returns the normalized images of the given numbers."""
        return self._processor.normalize([self._pixels[i] for i in ids])


class ImageDataset:
    """A dataset of labelled images.

    Args:
        images: All images.
        chosen: Numbers of the images in this dataset.
        tokens: Number of positions that the model makes of an image.
    """

    def __init__(self, images: ImageFolder | IdxImages, chosen: NDArray[np.integer], tokens: int) -> None:
        self._images, self._chosen = images, chosen
        self.lengths: NDArray[np.int32] = np.full((len(chosen), 1), tokens, np.int32)
        self.mix: tuple[ExampleGroup, ...] = ()

    def fetch(self, ids: NDArray[np.integer]) -> ImageBatch:
        """Returns the batch of the given examples."""
        numbers = self._chosen[ids]
        return ImageBatch(self._images.take(numbers), torch.from_numpy(self._images.labels[numbers]))
