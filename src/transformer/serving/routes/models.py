"""Checks and forms that the routes for language models and encoders share."""

from collections.abc import Mapping, Sequence
from typing import Any

from transformer.serving.errors import ServiceError
from transformer.serving.interfaces import TASKS, Item, Job, ModelInfo, Task
from transformer.serving.operations import Call


def openai_error(error: ServiceError) -> dict[str, Any]:
    """Returns an error as OpenAI's interface and ours write it."""
    return {"error": {"message": error.message, "type": _error_type(error), "param": error.param, "code": error.code}}


def _error_type(error: ServiceError) -> str:
    match error.status:
        case 401:
            return "authentication_error"
        case 403:
            return "permission_error"
        case 429:
            return "rate_limit_error"
        case status:
            return "server_error" if status >= 500 else "invalid_request_error"


def find_model(call: Call, name: str) -> ModelInfo:
    """Returns the model of a name.

    Raises:
        ServiceError: There is none.
    """
    models = call.services.engine.models
    if name not in models:
        raise ServiceError("not_found", "the model does not exist; GET /v1/models lists them", param="model")
    return models[name]


def model_for(call: Call, name: str, task: Task) -> ModelInfo:
    """Returns the model of a name, which must do some work.

    Raises:
        ServiceError: There is none, or it does other work.
    """
    info = find_model(call, name)
    if task not in TASKS[info.kind]:
        hint = "; translate with POST /translate or /v1/chat/completions" if info.kind == "encoder-decoder" else ""
        raise ServiceError("invalid_request", f"model {name} cannot {task}{hint}", param="model")
    return info


def check_texts(call: Call, texts: Sequence[str], param: str) -> None:
    """Checks the number and length of the texts of a request.

    Raises:
        ServiceError: They exceed a limit.
    """
    limits = call.services.settings.limits
    if len(texts) > limits.texts:
        raise ServiceError("too_large", f"more than {limits.texts} texts; send fewer at a time", param=param)
    if sum(map(len, texts)) > limits.characters:
        raise ServiceError("too_large", f"more than {limits.characters} characters; send fewer at a time", param=param)


def make_job(call: Call, model: str, task: Task, items: Sequence[Item], **options: Any) -> Job:
    """Returns the work of a request; options that are None are left out."""
    chosen = {name: value for name, value in options.items() if value is not None}
    return Job(model, task, items, call.client, chosen, call.deadline)


async def run(call: Call, job: Job) -> list[Mapping[str, Any]]:
    """Returns the results of a job, in order.

    Raises:
        ServiceError: A text fails; of several texts, the message names its position, from 1.
    """
    results: list[Mapping[str, Any]] = []
    for number, result in enumerate(await call.services.engine.run_each(job), start=1):
        if isinstance(result, ServiceError) and len(job.items) > 1:
            message = f"text {number}: {result.message}"
            raise ServiceError(result.code, message, param=result.param, retry_after=result.retry_after)
        if isinstance(result, Exception):
            raise result
        results.append(result)
    return results
