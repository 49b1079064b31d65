"""The tasks, by the kind of their `data` section."""

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

KINDS: Final[dict[type[TaskConfig], type[Task]]] = {
    DataConfig: TranslationTask,
    TextConfig: TextTask,
    LabelConfig: LabelTask,
    NeighbourConfig: NeighbourTask,
    ImageConfig: ImageTask,
}


def make_task(data: TaskConfig, seed: int, folder: Path, progress: Progress) -> Task:
    """The task of a recipe.

    Args:
        data: the recipe's section.
        seed: of the run; draws what is held out.
        folder: where prepared data is kept, unless the section names one.
        progress: is told how far things are.

    Raises:
        DataError: a file cannot be read.
    """
    return KINDS[type(data)](data, seed, folder, progress)  # pyright: ignore[reportCallIssue]
