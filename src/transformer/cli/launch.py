"""`transformer launch`: gives a command to a cluster."""

import subprocess
from collections.abc import Sequence
from typing import Annotated, Literal

import typer

from transformer.cli.verbosity import takes_verbosity
from transformer.errors import ConfigError

EPILOG = "Example: transformer launch slurm --processes 16 -- translate en-de --input big.en --output de/ --shards 64"


@takes_verbosity
def launch(
    system: Annotated[Literal["slurm", "kubernetes"], typer.Argument(help="the kind of cluster", metavar="SYSTEM")],
    command: Annotated[
        list[str],
        typer.Argument(help="after --: train, preflight, serve, or a command with --shards", metavar="-- COMMAND ..."),
    ],
    processes: Annotated[
        int,
        typer.Option(min=0, help="processes that share shards, or servers; in training, ranks of a machine"),
    ] = 0,
    nodes: Annotated[int, typer.Option(min=1, help="machines, in training")] = 1,
    gpus: Annotated[int, typer.Option(min=0, help="GPUs of a machine in training, or of another process")] = 0,
    cpus: Annotated[int, typer.Option(min=1, help="CPUs of a machine in training, or of another process")] = 1,
    memory: Annotated[str, typer.Option(help="memory of the same, as the cluster writes it, e.g. 16G or 16Gi")] = "",
    hours: Annotated[float, typer.Option(min=0.02, help="limit of the time, except of a server")] = 24.0,
    name: Annotated[str, typer.Option(help="name of the job; if not given, that of the command")] = "",
    partition: Annotated[str, typer.Option(help="partition of Slurm")] = "",
    setup: Annotated[
        list[str] | None,
        typer.Option(help="shell command before it, e.g. 'source env/bin/activate'; may be repeated (Slurm)"),
    ] = None,
    image: Annotated[str, typer.Option(help="image with the program (Kubernetes)")] = "",
    claim: Annotated[str, typer.Option(help="claim on the volume that all pods share (Kubernetes)")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the script or the manifests and stop")] = False,
) -> None:
    """Run training, work in shards or a server on Slurm or Kubernetes.

    Write the command as you would on one machine, after `--`. Folders have to be on a file system that all machines
    see. The same command again continues what was stopped.
    """
    from transformer.launching.cluster_job import ClusterJob
    from transformer.launching.kubernetes import manifests, to_yaml
    from transformer.launching.slurm import slurm_script

    job = ClusterJob(
        tuple(command), name=name, nodes=nodes, processes=processes, gpus=gpus, cpus=cpus, memory=memory, hours=hours,
        setup=tuple(setup or ()),
    )  # fmt: skip
    _check_options(system, {"--partition": partition}, {"--image": image, "--claim": claim})
    if system == "slurm":
        text, submit = slurm_script(job, partition), ["sbatch"]
    elif not image:
        raise ConfigError("kubernetes needs an image with the program; name it by --image")
    else:
        text, submit = to_yaml(manifests(job, image, claim)), ["kubectl", "apply", "-f", "-"]
    typer.echo(text.rstrip("\n") if dry_run else _submit(submit, text))


def _check_options(system: str, of_slurm: dict[str, str], of_kubernetes: dict[str, str]) -> None:
    """Checks that no option belongs to the other kind of cluster.

    Raises:
        ConfigError: One does.
    """
    others = of_kubernetes if system == "slurm" else of_slurm
    if misplaced := [option for option, value in others.items() if value]:
        raise ConfigError(f"{misplaced[0]} has no effect on {system}; leave it out")


def _submit(command: Sequence[str], text: str) -> str:
    """Gives a text to the program of a cluster and returns its answer.

    Raises:
        ConfigError: The program is missing or refuses.
    """
    try:
        result = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise ConfigError(
            f"{command[0]} is not installed here; run this where jobs are submitted, or add --dry-run to see the text"
        ) from error
    if result.returncode:
        reason = (result.stderr.strip() or f"exit code {result.returncode}").splitlines()[0]
        raise ConfigError(f"{command[0]} refused the job: {reason}; --dry-run shows what it was given")
    return result.stdout.strip()
