"""Writes the metrics of a run for TensorBoard."""

import importlib.util
from pathlib import Path
from typing import Any

from transformer.errors import ConfigError


def require_tensorboard() -> None:
    """Checks that the package tensorboard is installed.

    Raises:
        ConfigError: The package is not installed.
    """
    if importlib.util.find_spec("tensorboard") is None:
        raise ConfigError(
            "training.tensorboard=true needs the package tensorboard; pip install 'transformer[tensorboard]', or "
            "set it to false"
        )


class TensorBoard:
    """Writes scalars to TensorBoard event files; TensorFlow is not needed.

    Args:
        folder: Folder of the event files.
        step: Step at which the run starts; values of later steps, which will be repeated, are hidden.

    Raises:
        ConfigError: The package tensorboard is not installed.
    """

    def __init__(self, folder: Path, step: int = 0) -> None:
        require_tensorboard()
        from torch.utils.tensorboard.writer import SummaryWriter  # takes a second to load

        self._writer = SummaryWriter(str(folder), purge_step=step + 1)

    def write(self, kind: str, values: dict[str, Any]) -> None:
        """Writes the numbers of one line of metrics as `kind/name`, and those of blocks as `kind/name/block`."""
        for name, value in values.items():
            numbers = value if isinstance(value, dict) else {"": value}
            for block, number in numbers.items():
                if name != "step" and isinstance(number, int | float):
                    self._writer.add_scalar(f"{kind}/{name}/{block}".rstrip("/"), number, values["step"])

    def close(self) -> None:
        """Closes the event file."""
        self._writer.close()
