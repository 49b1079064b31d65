"""Training tasks, selected by the class of their `data` section."""

from pathlib import Path
from typing import Final

from transformer.data.config import DataConfig, TaskConfig
from transformer.data.progress import Progress
from transformer.data.task_configs import ImageConfig, LabelConfig, NeighbourConfig, TextConfig
from transformer.run.task import Task
from transformer.run.tasks.images import ImageTask
from transformer.run.tasks.labels import LabelTask
from transformer.run.tasks.neighbours import NeighbourTask
from transformer.run.tasks.text import TextTask
from transformer.run.tasks.translation import TranslationTask

__all__ = ["make_task"]

TASK_TYPES: Final[dict[type[TaskConfig], type[Task]]] = {
    DataConfig: TranslationTask,
    TextConfig: TextTask,
    LabelConfig: LabelTask,
    NeighbourConfig: NeighbourTask,
    ImageConfig: ImageTask,
}


def make_task(data: TaskConfig, seed: int, folder: Path, progress: Progress) -> Task:
    """Creates the task of a recipe.

    Args:
        data: The `data` section of the recipe.
        seed: Seed of the run, which also selects the held-out examples.
        folder: Folder for prepared data, unless the section names one.
        progress: Callback for progress reports.

    Raises:
        DataError: A file cannot be read.
    """
    return TASK_TYPES[type(data)](data, seed, folder, progress)  # pyright: ignore[reportCallIssue]
