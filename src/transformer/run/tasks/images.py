"""Image classification."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from transformer.bundle import Bundle
from transformer.data.fingerprint import file_checksum
from transformer.data.images import IMAGE_FILES, IdxImages, ImageDataset, ImageFolder
from transformer.data.progress import Progress
from transformer.data.task_configs import ImageConfig
from transformer.errors import ConfigError, DataError
from transformer.models.kinds import ImageEncoderConfig
from transformer.pipelines.classification import image_processor
from transformer.run.defaults import CompleteRecipe, TaskDefaults
from transformer.run.recipe import Recipe
from transformer.run.task import Task, TaskData, known_labels
from transformer.training.config import TrainingSettings
from transformer.training.objectives.classification import ClassificationObjective, ImageAugmentation


class ImageTask(Task[ImageEncoderConfig]):
    """Predicts the label of an image."""

    name = "images"
    model_type = ImageEncoderConfig
    metrics = ("accuracy", "loss")

    def __init__(self, data: ImageConfig, seed: int, progress: Progress) -> None:
        self._data, self._seed, self._progress = data, seed, progress
        keys = ("images", "labels", "validation_images", "validation_labels")
        paths = {key: getattr(data, key) for key in keys}
        self.checksums = {f"data.{key}": _checksum(Path(path)) for key, path in paths.items() if path}

    def defaults(self, recipe: Recipe) -> TaskDefaults:
        """Implements `Task.defaults`."""
        training: dict[str, Any] = {
            "label_smoothing": 0.1, "best_metric": "accuracy", "weight_decay": 0.05, "batch_tokens": 12_800,
            "adam_betas": (0.9, 0.999), "adam_eps": 1e-8,
        }  # fmt: skip
        if recipe.training.start_from is None:
            training["learning_rate"] = 1e-3
        return TaskDefaults(model={"family": "vit", "preset": "tiny", "dropout": 0.1}, training=training, epochs=12)

    def prepare(self, recipe: CompleteRecipe[ImageEncoderConfig], base_bundle: Bundle | None) -> TaskData:
        """Implements `Task.prepare`.

        Raises:
            ConfigError: Label names or a labels file are given for folders of images.
            DataError: Images or labels cannot be used, or the validation images have other labels.
        """
        data, config = self._data, recipe.model
        if data.label_names and not any(Path(path).is_file() for path in (data.images, data.validation_images or "")):
            raise ConfigError("data.label_names apply to IDX files only; leave them out for folders")
        self._progress("reading the images", 0, None)
        images = self._read(data.images, data.labels, config)
        if data.validation_images:
            held_out = self._read(data.validation_images, data.validation_labels, config)
            if not set(held_out.names) <= set(images.names):
                raise DataError(f"{data.validation_images} has labels that {data.images} lacks; check the folders")
            held_out.labels = np.array([images.names.index(name) for name in held_out.names], np.int64)[held_out.labels]
            chosen = np.arange(len(images.labels)), np.arange(len(held_out.labels))
        else:
            held_out, order = images, np.random.default_rng(self._seed).permutation(len(images.labels))
            n = max(1, round(len(order) * data.validation_share))
            chosen = np.sort(order[n:]), np.sort(order[:n])
        if not len(chosen[0]) or not len(chosen[1]):
            raise DataError(f"{data.images} leaves nothing to learn from or nothing to hold out; give more images")
        base_labels = known_labels(base_bundle)
        if base_labels and base_labels != images.names and set(base_labels) == set(images.names):
            new_ids = np.array([base_labels.index(name) for name in images.names], np.int64)
            for files in {id(files): files for files in (images, held_out)}.values():
                files.labels = new_ids[files.labels]
            images.names = base_labels
        config = config.updated(labels=images.names, pooler_size=None)
        rows, columns = config.grid
        train, validation = (
            ImageDataset(files, indices, rows * columns + 1)
            for files, indices in zip((images, held_out), chosen, strict=True)
        )
        counts = np.bincount(images.labels[chosen[0]], minlength=len(images.names)).tolist()
        shown = ", ".join(f"{name} {count:,}" for name, count in list(zip(images.names, counts, strict=True))[:10])
        table = [
            ("images", f"{len(chosen[0]):,} to train on, {len(chosen[1]):,} held out; {rows * columns} patches each"),
            ("labels", f"{len(images.names)}: {shown}{', ...' if len(images.names) > 10 else ''}"),
        ]
        if n_ignored := sum(
            files.n_skipped_files for files in {id(files): files for files in (images, held_out)}.values()
        ):
            table.append((
                "ignored", f"{n_ignored:,} files without the suffix of an image ({', '.join(sorted(IMAGE_FILES))})"
            ))  # fmt: skip
        labels = dict(zip(images.names, counts, strict=True))
        facts = {"images": len(chosen[0]), "held_out": len(chosen[1]), "labels": labels}
        return TaskData(
            config=config, text=None, objective=self.objective, train=train, validation=validation, rows=table,
            facts=facts, loss_unit="images",
        )  # fmt: skip

    def objective(self, model: nn.Module, settings: TrainingSettings) -> nn.Module:
        """Returns the objective of the training, see `TaskData`."""
        data, checkpointing = self._data, settings.activation_checkpointing
        augmentation = ImageAugmentation(flip=data.flip, shift=data.shift, erase=data.erase)
        return ClassificationObjective(
            model, settings.label_smoothing, augmentation, activation_checkpointing=checkpointing
        )

    def _read(self, images: str, labels: str | None, config: ImageEncoderConfig) -> ImageFolder | IdxImages:
        """Reads the images of a folder or of an IDX file.

        Raises:
            ConfigError: A labels file is given for a folder of images.
            DataError: A path does not exist, or an IDX file comes without labels.
        """
        processor = image_processor(config)
        if Path(images).is_dir():
            if labels:
                raise ConfigError(f"{images} is a folder, whose subfolders are the labels; leave out the labels file")
            return ImageFolder(Path(images), processor)
        if labels is None:
            raise DataError(f"{images} is not a folder; for an IDX file, set data.labels too")
        return IdxImages(Path(images), Path(labels), self._data.label_names, processor)


def _checksum(path: Path) -> str:
    """Returns the SHA-256 of a file, or of the names and checksums of all files of a folder."""
    if not path.is_dir():
        return file_checksum(path)
    lines = [f"{file.relative_to(path)} {file_checksum(file)}" for file in sorted(path.rglob("*")) if file.is_file()]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
