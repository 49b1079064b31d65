"""The figures of a run for TensorBoard, where its package is installed."""

import importlib.util
from pathlib import Path
from typing import Any

from transformer.errors import ConfigError


def require_tensorboard() -> None:
    """Asks for the package.

    Raises:
        ConfigError: it is not installed.
    """
    if importlib.util.find_spec("tensorboard") is None:
        raise ConfigError(
            "training.tensorboard=true needs the package tensorboard; pip install 'transformer[tensorboard]', or "
            "set it to false"
        )


class TensorBoard:
    """Writes scalars as TensorBoard's event files; TensorFlow is not needed.

    Args:
        folder: of the event files.
        step: where the run starts; figures beyond it, of steps that will be done again, are hidden.

    Raises:
        ConfigError: the package is not installed.
    """

    def __init__(self, folder: Path, step: int = 0) -> None:
        require_tensorboard()
        from torch.utils.tensorboard.writer import SummaryWriter  # takes a second to load

        self._writer = SummaryWriter(str(folder), purge_step=step + 1)

    def write(self, kind: str, figures: dict[str, Any]) -> None:
        """Writes the numbers of one line of metrics as `kind/name`, those of every block as `kind/name/block`."""
        for name, value in figures.items():
            parts = value if isinstance(value, dict) else {"": value}
            for part, number in parts.items():
                if name != "step" and isinstance(number, int | float):
                    self._writer.add_scalar(f"{kind}/{name}/{part}".rstrip("/"), number, figures["step"])

    def close(self) -> None:
        """Ends the file."""
        self._writer.close()
