"""Images with labels: folders of files, or IDX files."""

import math
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from transformer.data.batch import ImageBatch
from transformer.errors import ConfigError, DataError
from transformer.interfaces import DatasetMix
from transformer.text.lines import open_bytes

IMAGE_FILES: Final = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})
COLOURS: Final = frozenset(
    {"1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "LAB", "HSV"}
)
"""Pillow's modes of 8 bits a colour."""
DAMAGED: Final = (OSError, ValueError, SyntaxError, TypeError, LookupError, struct.error)
"""What Pillow raises of files that are cut or altered."""
GREY: Final = 1
COLOUR: Final = 3
MOST_PIXELS: Final = 1 << 28
"""Of a single image: one that is larger is refused before it is decoded."""
MOST_BYTES: Final = 1 << 36
"""Of an IDX file."""


def read_idx(path: Path) -> NDArray[np.uint8]:
    """The array of an IDX file of bytes, plain or compressed.

    Raises:
        DataError: it is none, or damaged.

    Source: LeCun, "The MNIST database", the format of its files.
    """
    with open_bytes(path) as file:
        head = file.read(4)
        if len(head) < 4 or head[:3] != b"\x00\x00\x08":
            raise DataError(f"{path} is no IDX file of bytes (it begins with {head.hex()}); check the path")
        sizes = file.read(4 * head[3])
        if len(sizes) < 4 * head[3]:
            raise DataError(f"{path} ends within its header; copy it again")
        shape = struct.unpack(f">{head[3]}I", sizes)
        expected = math.prod(shape)
        if expected > MOST_BYTES:
            raise DataError(f"{path} says in its header that it holds {expected:,} bytes; it is damaged, copy it again")
        content = file.read(expected + 1)
    if len(content) != expected:
        told = "more" if len(content) > expected else f"{len(content):,}"
        raise DataError(f"{path} holds {told} bytes where its header says {expected:,}; copy it again")
    return np.frombuffer(content, np.uint8).reshape(shape)


class ImageProcessor:
    """Images by number, normalized."""

    def __init__(self, size: tuple[int, int], channels: int, mean: Sequence[float], deviation: Sequence[float]) -> None:
        """Remembers how images are made ready.

        Args:
            size: height and width that a model reads.
            channels: 1 for grey, 3 for colours.
            mean: of each channel, or of all, taken off pixels from 0 to 1.
            deviation: of each channel, or of all.
        """
        self.size, self.channels = size, channels
        self._mean, self._deviation = (np.array(each, np.float32)[:, None, None] for each in (mean, deviation))

    def normalized(self, pixels: Sequence[NDArray[np.uint8]]) -> Float[Tensor, "B C height width"]:
        """Images of bytes (channels, height, width) as the model reads them.

        NumPy computes it, with one thread: in a thread of its own, torch would bring a second team of threads that
        waits for work beside the one that trains, which halves its speed on two cores.
        """
        images = np.stack(pixels).astype(np.float32)
        images /= np.float32(255)
        images -= self._mean
        images /= self._deviation
        return torch.from_numpy(images)

    def read(self, path: Path) -> NDArray[np.uint8]:
        """A file's image: channels, height, width.

        Raises:
            ConfigError: Pillow is not installed; the model reads neither grey images nor colours.
            DataError: it is no image, or damaged.
        """
        if self.channels not in (GREY, COLOUR):
            raise ConfigError(f"a model of {self.channels} channels reads no image files; give it pixels, in Python")
        try:
            from PIL import Image, ImageOps, UnidentifiedImageError
        except ImportError as error:
            raise ConfigError("image files are read by Pillow; pip install 'transformer[images]'") from error
        Image.MAX_IMAGE_PIXELS = MOST_PIXELS
        height, width = self.size
        try:
            with Image.open(path) as image:
                if image.mode not in COLOURS:
                    raise DataError(
                        f"{path}: its pixels are {image.mode}, more than 8 bits; save it with 8 bits a colour"
                    )
                upright = ImageOps.exif_transpose(image)
                found = upright.convert("L" if self.channels == GREY else "RGB")
                found = found.resize((width, height), Image.Resampling.BILINEAR)
        except (*DAMAGED, UnidentifiedImageError, Image.DecompressionBombError) as error:
            raise DataError(f"{path}: not an image that can be read ({error}); remove or repair it") from error
        pixels = np.asarray(found, np.uint8)
        return pixels[None] if self.channels == GREY else pixels.transpose(2, 0, 1)


class ImageFolder:
    """The files of a folder that has one folder a label; folders without images and hidden ones are none.

    Attributes:
        names: of the labels, sorted.
        labels: the number of each file's label.
        left_out: how many files there are that do not end as images do.

    Raises:
        DataError: there is none.
    """

    def __init__(self, folder: Path, pictures: ImageProcessor) -> None:
        folders = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
        files = {each.name: _visible_files(each) for each in folders}
        found = {name: [path for path in paths if path.suffix.lower() in IMAGE_FILES] for name, paths in files.items()}
        self.n_skipped_files = sum(map(len, files.values())) - sum(map(len, found.values()))
        found = {name: paths for name, paths in found.items() if paths}
        if not found:
            raise DataError(f"{folder} has no folders of images; it needs one folder a label, e.g. {folder}/cat/1.png")
        self._paths = [path for paths in found.values() for path in paths]
        self._pictures = pictures
        self.names = tuple(found)
        self.labels = np.repeat(np.arange(len(found)), [len(paths) for paths in found.values()])

    def take(self, ids: NDArray[np.integer[Any]]) -> Float[Tensor, "B C height width"]:
        """The images of the given numbers."""
        return self._pictures.normalized([self._pictures.read(self._paths[i]) for i in ids])


def _visible_files(folder: Path) -> list[Path]:
    """The files of a label, at any depth, but not what is hidden."""
    inner = ((path, path.relative_to(folder).parts) for path in folder.rglob("*") if path.is_file())
    return sorted(path for path, parts in inner if not any(part.startswith(".") for part in parts))


class IdxImages:
    """The images of an IDX file: (images, height, width), or with channels first or last.

    Attributes:
        names: of the labels.
        labels: the number of each image's label.
        left_out: 0, see `ImageFolder`.

    Raises:
        DataError: images and labels do not fit together, or to the model.
    """

    def __init__(self, images: Path, labels: Path, names: tuple[str, ...] | None, pictures: ImageProcessor) -> None:
        pixels, self.labels = read_idx(images), read_idx(labels).astype(np.int64)
        if pixels.ndim == 3:
            pixels = pixels[:, None]
        elif pixels.ndim == 4 and pixels.shape[3] == pictures.channels != pixels.shape[1]:
            pixels = pixels.transpose(0, 3, 1, 2)
        if pixels.ndim != 4 or self.labels.shape != pixels.shape[:1]:
            raise DataError(f"{images} has shape {pixels.shape}, {labels} {self.labels.shape}; they do not go together")
        if pixels.shape[1:] != (pictures.channels, *pictures.size):
            raise DataError(
                f"{images} has images of {pixels.shape[1]} channels and {pixels.shape[2]} x {pixels.shape[3]} pixels, "
                f"the model reads {pictures.channels} and {pictures.size[0]} x {pictures.size[1]}; set "
                "model.channels and model.image_size"
            )
        self.n_skipped_files = 0
        n_labels = int(self.labels.max(initial=0)) + 1
        self.names = names or tuple(map(str, range(n_labels)))
        if len(self.names) < n_labels:
            raise DataError(f"{labels} has labels up to {n_labels - 1}, data.label_names {len(self.names)} names")
        self._pixels, self._pictures = pixels, pictures

    def take(self, ids: NDArray[np.integer[Any]]) -> Float[Tensor, "B C height width"]:
        """The images of the given numbers."""
        return self._pictures.normalized([self._pixels[i] for i in ids])


class ImageDataset:
    """Serves images with labels, some of them.

    Args:
        images: all of them.
        chosen: numbers of those that are served.
        tokens: positions that the model makes of one.
    """

    def __init__(self, images: ImageFolder | IdxImages, chosen: NDArray[np.integer[Any]], tokens: int) -> None:
        self._images, self._chosen = images, chosen
        self.lengths: NDArray[np.int32] = np.full((len(chosen), 1), tokens, np.int32)
        self.mix: tuple[DatasetMix, ...] = ()

    def fetch(self, ids: NDArray[np.integer[Any]]) -> ImageBatch:
        """The images of the given numbers."""
        numbers = self._chosen[ids]
        return ImageBatch(self._images.take(numbers), torch.from_numpy(self._images.labels[numbers]))
