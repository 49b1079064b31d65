"""`transformer preflight`: checks all ranks before a long job."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from transformer.cli.paths import folder_option
from transformer.cli.verbosity import takes_verbosity
from transformer.errors import TrainingError

EPILOG = (
    "Example: transformer preflight --folder runs, to check one rank; start all with the torchrun command of training"
)


@takes_verbosity
def preflight(
    folder: Annotated[
        Path,
        folder_option("folder that all ranks should share, such as that of the runs"),
    ] = Path(),
    device: Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="device to train on")] = "auto",
    seconds: Annotated[float, typer.Option(min=1, help="time within which every rank has to answer")] = 20.0,
    as_json: Annotated[bool, typer.Option("--json", help="print the table and all troubles as JSON")] = False,
) -> None:
    """Check clocks, versions, shared folder, all-reduce and a training step of all ranks.

    Start it with the same torchrun command as training. It prints a row for each rank, and ends with code 2 and a line
    that names the rank if something is wrong.
    """
    from transformer.cli.train import end_rank
    from transformer.run.preflight.exchange import join_exchange
    from transformer.run.preflight.preflight import check_ranks
    from transformer.run.preflight.report import format_rows, summary

    exchange = join_exchange(seconds)
    answers = check_ranks(exchange, folder, device)
    troubles: list[str] = []
    if answers is not None:
        troubles, rows = answers.troubles(), answers.rows()
        versions = answers.versions()
        facts = {"versions": versions, "ranks": rows, "troubles": troubles}
        lines = [", ".join(f"{name} {value}" for name, value in versions.items()), *format_rows(rows)]
        typer.echo(json.dumps(facts, ensure_ascii=False, indent=2) if as_json else "\n".join(lines))
    if exchange.size == 1:
        if troubles:
            raise TrainingError(summary(troubles))
        return
    if troubles:
        typer.echo(f"error: {summary(troubles)}", err=True)
    code = exchange.broadcast("code", 2 if troubles else 0)
    exchange.gather("end", True)  # rank 0 may hold the store, and ends after the others have read the code
    end_rank(code, exchange.is_main)
