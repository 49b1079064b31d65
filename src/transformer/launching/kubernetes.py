"""Manifests for Kubernetes: indexed jobs for training and shards, a deployment for a server."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from transformer.errors import ConfigError
from transformer.launching.cluster_job import ClusterJob, torchrun

Manifest = dict[str, Any]
CONTAINER, WORK, MEMORY = "transformer", "work", "memory"
WORK_FOLDER: Final = "/work"
PORT: Final = 29500
SERVER_PORT: Final = "5000"
RETRIES_OF_PROCESS: Final = 3
EXIT_ERROR: Final = 2
"""Exit code of an error that another attempt would repeat."""


def manifests(job: ClusterJob, image: str, claim: str = "") -> list[Manifest]:
    """Returns the objects that run a job.

    Args:
        job: The job.
        image: Image of the container, with the program.
        claim: Name of the claim on a volume that all pods share; empty for none.

    Raises:
        ConfigError: The command is not one for several machines, or lacks a volume.
    """
    if job.setup:
        raise ConfigError("--setup does not go with kubernetes; build it into the image")
    if job.kind == "server":
        return _server(job, image, claim)
    if not claim:
        raise ConfigError(
            f"{job.command[0]} on several machines needs a volume that all see; name its claim by --claim"
        )
    pod = _pod(job, image, claim)
    if job.kind == "shards":
        pod["containers"][0]["env"] = _variables(JOB_COMPLETIONS=job.copies, OMP_NUM_THREADS=job.cpus)
        return [_indexed_job(job, pod, job.copies)]
    name = job.job_name
    rendezvous = (f"--rdzv-id={name}", f"--rdzv-endpoint={name}-0.{name}:{PORT}")
    container = pod["containers"][0]
    container["command"] = torchrun(job, rendezvous)
    container["env"] = _variables(OMP_NUM_THREADS=max(1, job.cpus // job.ranks_of_node))
    container["volumeMounts"].append({"name": MEMORY, "mountPath": "/dev/shm"})
    pod["volumes"].append({"name": MEMORY, "emptyDir": {"medium": "Memory"}})
    pod["subdomain"], pod["terminationGracePeriodSeconds"] = name, 300
    service = _object("v1", "Service", name, {
        "clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"job-name": name},
        "ports": [{"name": "rendezvous", "port": PORT}],
    })  # fmt: skip
    return [service, _indexed_job(job, pod, job.nodes)]


def to_yaml(objects: Sequence[Manifest]) -> str:
    """Returns manifests as YAML documents, with strings as in JSON."""
    lines = [line for manifest in objects for line in ("---", *_yaml_lines(manifest))]
    return "\n".join(lines) + "\n"


def _indexed_job(job: ClusterJob, pod: Manifest, n_pods: int) -> Manifest:
    pod["restartPolicy"] = "Never"  # as a policy for failures requires
    return _object("batch/v1", "Job", job.job_name, {
        "completionMode": "Indexed", "completions": n_pods, "parallelism": n_pods,
        "backoffLimit": RETRIES_OF_PROCESS * n_pods, "activeDeadlineSeconds": max(60, round(3600 * job.hours)),
        "podFailurePolicy": {"rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "FailJob",
             "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": [EXIT_ERROR]}},
        ]},
        "template": {"spec": pod},
    })  # fmt: skip


def _server(job: ClusterJob, image: str, claim: str) -> list[Manifest]:
    name, labels = job.job_name, {"app": job.job_name}
    port = _option(job.command, "--port") or SERVER_PORT
    if not port.isdecimal():
        raise ConfigError(f"--port {port} is not a whole number; give e.g. {SERVER_PORT}")
    pod = _pod(job, image, claim)
    container = pod["containers"][0]
    if _option(job.command, "--host") is None:
        container["command"] += ["--host", "0.0.0.0"]
    container |= {
        "ports": [{"name": "http", "containerPort": int(port)}],
        "startupProbe": {**_probe("/live"), "periodSeconds": 5, "failureThreshold": 60},
        "readinessProbe": {**_probe("/ready"), "periodSeconds": 5},
        "livenessProbe": {**_probe("/live"), "periodSeconds": 10, "failureThreshold": 6},
    }
    template = {"metadata": {"labels": labels}, "spec": pod}
    deployment = {"replicas": job.copies, "selector": {"matchLabels": labels}, "template": template}
    service = {"selector": labels, "ports": [{"name": "http", "port": 80, "targetPort": "http"}]}
    return [_object("apps/v1", "Deployment", name, deployment), _object("v1", "Service", name, service)]


def _pod(job: ClusterJob, image: str, claim: str) -> Manifest:
    limits = {"cpu": str(job.cpus)}
    limits |= {"memory": job.memory} if job.memory else {}
    limits |= {"nvidia.com/gpu": str(job.gpus)} if job.gpus else {}
    container: Manifest = {
        "name": CONTAINER, "image": image, "command": ["transformer", *job.command],
        "resources": {"requests": dict(limits), "limits": limits}, "volumeMounts": [],
    }  # fmt: skip
    volumes: list[Manifest] = []
    if claim:
        container |= {"workingDir": WORK_FOLDER, "volumeMounts": [{"name": WORK, "mountPath": WORK_FOLDER}]}
        volumes.append({"name": WORK, "persistentVolumeClaim": {"claimName": claim}})
    return {"containers": [container], "volumes": volumes}


def _object(version: str, kind: str, name: str, spec: Manifest) -> Manifest:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _variables(**values: int) -> list[Manifest]:
    return [{"name": name, "value": str(value)} for name, value in values.items()]


def _probe(path: str) -> Manifest:
    return {"httpGet": {"path": path, "port": "http"}, "timeoutSeconds": 5}


def _option(command: Sequence[str], name: str) -> str | None:
    """Returns the value of an option in a command; None without it."""
    for word, following in zip(command, [*command[1:], ""], strict=True):
        if word == name:
            return following
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return None


def _yaml_lines(value: Any) -> Iterator[str]:
    """Yields the lines of a mapping or a list that is not empty, in block style."""
    is_mapping = isinstance(value, Mapping)
    for opening, item in (
        ((f"{key}:", item) for key, item in value.items()) if is_mapping else (("-", i) for i in value)
    ):
        if not isinstance(item, Mapping | list) or not item:
            yield f"{opening} {json.dumps(item)}"
        elif opening == "-":
            first, *others = _yaml_lines(item)
            yield f"- {first}"
            yield from (f"  {line}" for line in others)
        else:
            yield opening
            yield from (f"  {line}" for line in _yaml_lines(item))
