"""All checks of a rank, in the order in which the ranks take them together."""

from pathlib import Path
from typing import Any

from transformer.errors import TrainingError
from transformer.run.preflight.checks import check_communication, check_folder, local_facts
from transformer.run.preflight.exchange import Exchange
from transformer.run.preflight.report import Answers


def check_ranks(exchange: Exchange, folder: Path, device: str) -> Answers | None:
    """Checks this rank together with the others.

    Ranks are connected only if all have answered and have a device, since otherwise they would wait for each other.

    Args:
        exchange: The ranks.
        folder: Folder that all of them should share.
        device: Device of training.

    Returns:
        On rank 0 the answers of all ranks, on others None.

    Raises:
        TrainingError: This rank was too late, or rank 0 does not answer.
    """
    local = exchange.gather("local", local_facts(device))
    if exchange.rank not in exchange.broadcast("present", sorted(exchange.present)):
        raise TrainingError(
            f"rank {exchange.rank} was not ready within {exchange.seconds:g} s; give --seconds more time"
        )
    clocks = exchange.gather("clock", exchange.clock_offset())
    folders = exchange.gather("folder checked", check_folder(exchange, folder))
    is_ready = len(exchange.present) == exchange.size and not any(facts["trouble"] for facts in local.values())
    communication: dict[int, Any] = {}
    if exchange.broadcast("ready", is_ready):
        communication = exchange.gather("communication", check_communication(device, exchange.seconds))
    if not exchange.is_main:
        return None
    offsets = {rank: (offset, error) for rank, (offset, error) in clocks.items()}
    return Answers(exchange.size, exchange.seconds, local, offsets, folders, communication)
