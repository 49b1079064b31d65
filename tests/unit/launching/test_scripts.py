"""Batch scripts and manifests, run with stand-ins of the programs that they call."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from transformer.cli.app import make_app
from transformer.errors import ConfigError
from transformer.launching.cluster_job import ClusterJob
from transformer.launching.kubernetes import manifests, to_yaml
from transformer.launching.slurm import slurm_script

SHARDS = ("translate", "en-de", "--input", "a b.en", "--output", "$out", "--shards", "64")
TRAIN = ("train", "recipe.toml", "--run", "runs/it's")


def run_script(script: str, folder: Path) -> list[list[str]]:
    """Runs a script in bash; returns the calls of the programs of a cluster, each as its words."""
    log = folder / "calls"
    for name in ("transformer", "srun", "torchrun"):
        program = folder / name
        program.write_text(f'#!/bin/bash\nprintf "%s\\0" {name} "$OMP_NUM_THREADS" "$@" >> {log}\necho >> {log}\n')
        program.chmod(0o755)
    (folder / "scontrol").write_text("#!/bin/bash\necho node-a\necho node-b\n")
    (folder / "scontrol").chmod(0o755)
    variables = {"PATH": f"{folder}:{os.environ['PATH']}", "SLURM_JOB_NODELIST": "node-[a-b]", "SLURM_JOB_ID": "41234"}
    subprocess.run(["bash"], input=script, text=True, env=variables, cwd=folder, check=True)
    return [line.split("\0")[:-1] for line in log.read_text().splitlines()]


def directives(script: str) -> set[str]:
    return {line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH")}


def test_an_array_runs_the_command_as_it_was_given(tmp_path: Path) -> None:
    """Catches words that the shell of the job changes, and an array of another size."""
    script = slurm_script(ClusterJob(SHARDS, processes=16, cpus=8, gpus=1, hours=1.5, memory="16G"), "long")
    assert run_script(script, tmp_path) == [["transformer", "8", *SHARDS]]
    expected = {"--array=0-15", "--time=1:30:00", "--cpus-per-task=8", "--gpus=1", "--mem=16G", "--partition=long"}
    assert expected <= directives(script)
    assert "--job-name=transformer-translate" in directives(script)


def test_every_machine_starts_its_ranks(tmp_path: Path) -> None:
    """Catches ranks that look for each other at different places, and words that the shell changes."""
    script = slurm_script(ClusterJob(TRAIN, nodes=2, gpus=8, cpus=64, setup=("export OMP_NUM_THREADS=1", "echo ready")))
    [[program, threads, *words]] = run_script(script, tmp_path)
    assert (program, threads) == ("srun", "8")
    assert words[:2] == ["--cpus-per-task=64", "torchrun"]
    assert {"--nnodes=2", "--nproc-per-node=8", "--rdzv-endpoint=node-a:21234", "--rdzv-id=41234"} <= set(words)
    assert words[words.index("transformer") :] == ["transformer", *TRAIN]
    assert {"--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=8"} <= directives(script)
    assert script.index("echo ready") < script.index("srun")


def test_a_check_that_fails_is_not_repeated() -> None:
    """Catches a preflight that torchrun starts again, so that its message stands there four times."""
    assert "--max-restarts=0" in slurm_script(ClusterJob(("preflight",)))
    assert "--max-restarts=3" in slurm_script(ClusterJob(TRAIN))


@pytest.mark.parametrize("command", [SHARDS, TRAIN, ("serve", "en-de", "--port=5001")])
def test_manifests_are_yaml(command: tuple[str, ...]) -> None:
    """Catches YAML that is read as something else, by an independent reader."""
    objects = manifests(ClusterJob(command, processes=3, gpus=1, memory="16Gi"), "registry/image:1.0", "corpora")
    assert list(yaml.safe_load_all(to_yaml(objects))) == objects


def test_pods_know_their_number_and_share_a_volume() -> None:
    """Catches pods that all begin with the same shard, or write into their own file systems."""
    [job] = manifests(ClusterJob(SHARDS, processes=5, cpus=4), "image", "corpora")
    assert (job["spec"]["completionMode"], job["spec"]["completions"], job["spec"]["parallelism"]) == ("Indexed", 5, 5)
    pod = job["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["command"] == ["transformer", *SHARDS]
    assert {"name": "JOB_COMPLETIONS", "value": "5"} in container["env"]
    assert pod["volumes"] == [{"name": "work", "persistentVolumeClaim": {"claimName": "corpora"}}]
    assert container["volumeMounts"] == [{"name": "work", "mountPath": container["workingDir"]}]


def test_ranks_find_the_first_pod_by_its_service() -> None:
    """Catches an address that no service has."""
    service, job = manifests(ClusterJob(TRAIN, nodes=3, name="large"), "image", "corpora")
    pod = job["spec"]["template"]["spec"]
    port = service["spec"]["ports"][0]["port"]
    assert f"--rdzv-endpoint=large-0.{service['metadata']['name']}:{port}" in pod["containers"][0]["command"]
    assert pod["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}


def test_a_server_is_probed_at_its_port() -> None:
    """Catches a server that nobody reaches: it listens on its own machine only, or is asked at another port."""
    deployment, service = manifests(ClusterJob(("serve", "en-de", "--port=5001"), processes=2), "image")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["command"][-2:] == ["--host", "0.0.0.0"]
    assert container["ports"] == [{"name": "http", "containerPort": 5001}]
    paths = {name: container[name]["httpGet"]["path"] for name in ("readinessProbe", "livenessProbe", "startupProbe")}
    assert paths == {"readinessProbe": "/ready", "livenessProbe": "/live", "startupProbe": "/live"}
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["slurm", "--", "serve", "en-de"], "serve has no end.*kubernetes"),
        (["slurm", "--", "translate", "en-de"], "translate en-de is not work for several machines.*--shards"),
        (["slurm", "--image", "x", "--", *TRAIN], "--image has no effect on slurm; leave it out"),
        (["slurm", "--name", "Large run", "--", *TRAIN], "'Large run' is not a name of a job"),
        (["kubernetes", "--claim", "x", "--", *TRAIN], "needs an image.*--image"),
        (["kubernetes", "--image", "x", "--", *TRAIN], "needs a volume that all see.*--claim"),
        (["kubernetes", "--image", "x", "--claim", "x", "--setup", "x", "--", *TRAIN], "--setup does not go"),
        (["kubernetes", "--image", "x", "--partition", "x", "--", *TRAIN], "--partition has no effect on kubernetes"),
        (["kubernetes", "--image", "x", "--", "serve", "en-de", "--port", "x"], "--port x is not a whole number"),
        (["slurm", "--", *TRAIN], "sbatch is not installed here.*--dry-run"),
    ],
)
def test_what_cannot_be_launched_is_one_line(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a job that a cluster would refuse, or that would do nothing."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=message):
        make_app(["launch"])(["launch", *words], standalone_mode=False)


def test_the_script_is_submitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a script that is printed instead of submitted, and an answer of Slurm that is lost."""
    sbatch = tmp_path / "sbatch"
    sbatch.write_text(f'#!/bin/sh\n/bin/cat > {tmp_path}/script\necho "Submitted batch job 7"\n')
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    result = CliRunner().invoke(make_app(["launch"]), ["launch", "slurm", "--", *SHARDS])
    assert result.output == "Submitted batch job 7\n"
    assert (tmp_path / "script").read_text() == slurm_script(ClusterJob(SHARDS))
    sbatch.write_text("#!/bin/sh\necho 'sbatch: error: invalid partition' >&2\nexit 1\n")
    with pytest.raises(ConfigError, match="sbatch refused the job: sbatch: error: invalid partition; --dry-run"):
        make_app(["launch"])(["launch", "slurm", "--", *SHARDS], standalone_mode=False)
