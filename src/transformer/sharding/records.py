"""Records of a job and of its shards, as they are stored in the folder of the results."""

from typing import Any

from pydantic import Field

from transformer.config import Config

Settings = dict[str, Any]
"""What determines the results, as JSON values."""


class ShardEntry(Config):
    """A shard as the job file lists it."""

    first: int = Field(ge=0)
    n_items: int = Field(ge=1)
    positions: tuple[int, ...] = ()


class JobFile(Config):
    """The facts that all workers of a job agree on.

    Attributes:
        format: Version of the layout of the folder.
        settings: The model, the version of the program, and all options that determine a result.
        decided: Settings that the first worker has chosen for all.
        input: What tells the input from others.
        shards: The shards.
    """

    format: int
    settings: Settings
    decided: Settings
    input: Any
    shards: list[ShardEntry]


class ShardResult(Config):
    """Record of a finished shard.

    Attributes:
        sha256: Checksum of the result.
        n_bytes: Size of the result.
        n_items: Number of lines or other items that were read.
        rejected: Number of those that could not be done.
        seconds: Time that it took.
        worker: Name of the process that did it.
    """

    sha256: str
    n_bytes: int
    n_items: int
    rejected: int = 0
    seconds: float = 0.0
    worker: str = ""
