"""Training tasks, selected by the `data` section."""

from pathlib import Path
from typing import Any

from transformer.data.config import DataConfig
from transformer.data.progress import Progress
from transformer.data.task_configs import AnyTaskConfig, LabelConfig, NeighbourConfig, TextConfig
from transformer.run.task import Task
from transformer.run.tasks.images import ImageTask
from transformer.run.tasks.labels import LabelTask
from transformer.run.tasks.neighbours import NeighbourTask
from transformer.run.tasks.text import LanguageModelTask, MaskedWordsTask, SpansTask
from transformer.run.tasks.translation import TranslationTask

__all__ = ["make_task"]

TEXT_TASKS = {"language-model": LanguageModelTask, "masked-words": MaskedWordsTask, "spans": SpansTask}


def make_task(data: AnyTaskConfig, seed: int, folder: Path, progress: Progress) -> Task[Any]:
    """Creates the task of a recipe.

    Args:
        data: The `data` section of the recipe.
        seed: Seed of the run, which also selects the held-out examples.
        folder: Folder for prepared data, unless the section names one.
        progress: Callback for progress reports.

    Raises:
        DataError: A file cannot be read.
    """
    match data:
        case DataConfig():
            return TranslationTask(data, seed, folder, progress)
        case TextConfig():  # the end of the text is held out, whatever the seed
            return TEXT_TASKS[data.task](data, folder, progress)
        case LabelConfig():
            return LabelTask(data, seed, progress)
        case NeighbourConfig():
            return NeighbourTask(data, seed, progress)
        case _:
            return ImageTask(data, seed, progress)
