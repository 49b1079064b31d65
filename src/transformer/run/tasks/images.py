"""Images with labels."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from transformer.bundle import Bundle
from transformer.config import Config
from transformer.data.fingerprint import file_checksum
from transformer.data.images import IMAGE_FILES, IdxImages, ImageDataset, ImageFolder, ImageProcessor
from transformer.data.progress import Progress
from transformer.data.task_configs import ImageConfig
from transformer.errors import ConfigError, DataError
from transformer.run.recipe import Defaults, Recipe
from transformer.run.task import Task, TaskData
from transformer.training.config import TrainingConfig
from transformer.training.objectives.classification import ClassificationObjective, ImageAugmentation


class ImageTask(Task):
    """Tells the label of an image."""

    kinds = ("image encoder",)
    metrics = ("accuracy", "loss")
    scored = "images"

    def __init__(self, data: ImageConfig, seed: int, folder: Path, progress: Progress) -> None:
        del folder
        self._data, self._seed, self._progress = data, seed, progress
        keys = ("images", "labels", "validation_images", "validation_labels")
        given = {key: getattr(data, key) for key in keys}
        self.sums = {f"data.{key}": _sum_of(Path(path)) for key, path in given.items() if path}

    def size(self) -> int:
        """Bytes of the images: their number is told by what reads them."""
        path = Path(self._data.images)
        return path.stat().st_size if path.is_file() else sum(1 for _ in path.rglob("*"))

    def defaults(self, recipe: Recipe) -> Defaults:
        """As of `Task`."""
        training: dict[str, Any] = {
            "label_smoothing": 0.1, "best_metric": "accuracy", "weight_decay": 0.05, "batch_tokens": 12_800,
            "adam_betas": (0.9, 0.999), "adam_eps": 1e-8,
        }  # fmt: skip
        if recipe.training.start_from is None:
            training["learning_rate"] = 1e-3
        return Defaults(model={"family": "vit", "preset": "tiny", "dropout": 0.1}, training=training, epochs=12)

    def prepare(self, recipe: Recipe, known: Bundle | None) -> TaskData:
        """As of `Task`.

        Raises:
            DataError: images or labels cannot be used, or the validation images have other labels.
        """
        assert recipe.model is not None
        data, config = self._data, recipe.model
        if data.label_names and not any(Path(path).is_file() for path in (data.images, data.validation_images or "")):
            raise ConfigError("data.label_names are those of an IDX file; of folders, leave them out")
        images = self._read(data.images, data.labels, config)
        if data.validation_images:
            others = self._read(data.validation_images, data.validation_labels, config)
            if not set(others.names) <= set(images.names):
                raise DataError(f"{data.validation_images} has labels that {data.images} lacks; check the folders")
            others.labels = np.array([images.names.index(name) for name in others.names], np.int64)[others.labels]
            chosen = np.arange(len(images.labels)), np.arange(len(others.labels))
        else:
            others, order = images, np.random.default_rng(self._seed).permutation(len(images.labels))
            n = max(1, round(len(order) * data.validation_share))
            chosen = np.sort(order[n:]), np.sort(order[:n])
        if not len(chosen[0]) or not len(chosen[1]):
            raise DataError(f"{data.images} leaves nothing to learn from or nothing to hold out; give more images")
        before: tuple[str, ...] = known.config.model_dump()["labels"] if known else ()
        if before and before != images.names and set(before) == set(images.names):
            images.labels = np.array([before.index(name) for name in images.names], np.int64)[images.labels]
            if others is not images:
                others.labels = np.array([before.index(name) for name in images.names], np.int64)[others.labels]
            images.names = before
        config = type(config).model_validate({**config.model_dump(), "labels": images.names, "pooler_size": None})
        sizes = config.model_dump()
        rows, columns = (a // b for a, b in zip(sizes["image_size"], sizes["patch_size"], strict=True))
        train, validation = (
            ImageDataset(each, numbers, rows * columns + 1)
            for each, numbers in zip((images, others), chosen, strict=True)
        )
        counts = np.bincount(images.labels[chosen[0]], minlength=len(images.names)).tolist()
        shown = ", ".join(f"{name} {count:,}" for name, count in list(zip(images.names, counts, strict=True))[:10])
        lines = [
            f"images: {len(chosen[0]):,} to learn from, {len(chosen[1]):,} held out; {rows * columns} patches each",
            f"{len(images.names)} labels: {shown}{', ...' if len(images.names) > 10 else ''}",
        ]
        if left_out := sum(each.n_skipped_files for each in {id(each): each for each in (images, others)}.values()):
            lines.append(
                f"left out: {left_out:,} files that do not end as images do ({', '.join(sorted(IMAGE_FILES))})"
            )
        facts = {
            "images": len(chosen[0]),
            "held_out": len(chosen[1]),
            "labels": dict(zip(images.names, counts, strict=True)),
        }
        return TaskData(config, None, train, validation, lines, facts)

    def objective(self, model: nn.Module, training: TrainingConfig, material: TaskData) -> nn.Module:
        """As of `Task`."""
        del material
        data = self._data
        changes = ImageAugmentation(flip=data.flip, shift=data.shift, erase=data.erase)
        checkpointing = training.activation_checkpointing
        return ClassificationObjective(model, training.label_smoothing, changes, activation_checkpointing=checkpointing)

    def _read(self, images: str, labels: str | None, config: Config) -> ImageFolder | IdxImages:
        """The images of a folder, or of an IDX file.

        Raises:
            ConfigError: a folder of images is given labels.
            DataError: a path does not exist, or an IDX file has no labels.
        """
        sizes = config.model_dump()
        pictures = ImageProcessor(sizes["image_size"], sizes["channels"], sizes["mean"], sizes["deviation"])
        if Path(images).is_dir():
            if labels:
                raise ConfigError(f"{images} is a folder, whose folders are the labels; leave out its labels")
            return ImageFolder(Path(images), pictures)
        if labels is None:
            raise DataError(f"{images} is no folder; of an IDX file give the labels too, as data.labels")
        return IdxImages(Path(images), Path(labels), self._data.label_names, pictures)


def _sum_of(path: Path) -> str:
    """The sum of a file, or of all files of a folder with their names."""
    if not path.is_dir():
        return file_checksum(path)
    lines = [f"{file.relative_to(path)} {file_checksum(file)}" for file in sorted(path.rglob("*")) if file.is_file()]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
