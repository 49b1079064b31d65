"""Work of a worker: runs the items of a batch with the pipeline of a model."""

import logging
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from transformer.errors import TransformerError, WorkerError
from transformer.pipelines.classification import TextEncoder
from transformer.pipelines.text_generation import Generator
from transformer.pipelines.translation.translator import Translator
from transformer.serving.engine import encoding, generation, translating
from transformer.serving.engine.options import read_options, without_surrogates
from transformer.serving.errors import ServiceError
from transformer.serving.interfaces import Item, Task

Pipeline = TypeVar("Pipeline")
OnReady = Callable[[Mapping[int, dict[str, Any]]], object]
LOGGER: Final = logging.getLogger("transformer.serving")


def run_task(
    pipeline: Any,
    task: Task,
    items: Sequence[Item],
    options: Mapping[str, Any],
    on_ready: OnReady = lambda results: None,
) -> list[dict[str, Any]]:
    """Returns the results of a batch, in order.

    If the batch fails, each item is run alone, so that one bad text fails alone.

    Args:
        pipeline: `Translator`, `Generator` or `TextEncoder` of the model.
        task: Work to do with the items.
        items: Units of work.
        options: Options of the task, see `transformer.serving.engine.options`.
        on_ready: Function to call with results, by their places, that are ready long before the others.

    Returns:
        JSON-like results in the form that `transformer.serving.interfaces` describes; that of an item that fails is
        `{"error": ServiceError.to_json()}`.

    Raises:
        ServiceError: An option is invalid, or the model does not do this work.
    """
    run = _runner(pipeline, task, read_options(task, options), on_ready)
    try:
        return run(items)
    except ServiceError:
        raise
    except Exception as error:
        if len(items) == 1:
            return [{"error": service_error(error).to_json()}]
    return [result for item in items for result in run_task(pipeline, task, [item], options)]


def stream_task(pipeline: Any, item: Item, options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the parts of a prompt's continuation while it is generated; closing the iterator stops the work.

    Args:
        pipeline: `Generator` of a language model.
        item: Prompt.
        options: Options of "generate".

    Raises:
        ServiceError: An option or the prompt is invalid, the model does not generate, or the generation fails.
    """
    _check(pipeline, Generator, "generate")
    try:
        yield from generation.stream(pipeline, without_surrogates(item.text), read_options("generate", options))
    except ServiceError:
        raise
    except Exception as error:
        raise service_error(error) from error


def service_error(error: Exception) -> ServiceError:
    """Returns the error for a client: the message of an invalid request, or the type of a fault without its message.

    A fault is logged, without its message too, which may contain texts.
    """
    if isinstance(error, ServiceError):
        return error
    if isinstance(error, TransformerError) and not isinstance(error, WorkerError):
        return ServiceError("invalid_request", str(error))
    where = "".join(traceback.format_tb(error.__traceback__))
    LOGGER.error("%s in a worker:\n%s", type(error).__name__, where)
    return ServiceError("internal", f"{type(error).__name__} while the request was processed; the log says where")


def _runner(
    pipeline: Any, task: Task, options: Any, on_ready: OnReady
) -> Callable[[Sequence[Item]], list[dict[str, Any]]]:
    """Returns the function that runs the items of a task.

    Raises:
        ServiceError: The model does not do this work.
    """
    if task == "translate":
        return lambda items: translating.translate(_check(pipeline, Translator, task), items, options, on_ready)
    if task == "score":
        return lambda items: translating.score(_check(pipeline, Translator, task), items, options)
    if task == "generate":
        return lambda items: generation.generate(_check(pipeline, Generator, task), _texts(items), options)
    encoder = _check(pipeline, TextEncoder, task)
    if task == "embed":
        return lambda items: encoding.embed(encoder, _texts(items), options)
    if task == "classify":
        return lambda items: encoding.classify(encoder, _texts(items), options)
    return lambda items: [encoding.fill(encoder, text, options) for text in _texts(items)]


def _texts(items: Sequence[Item]) -> list[str]:
    return [without_surrogates(item.text) for item in items]


def _check(pipeline: Any, kind: type[Pipeline], task: Task) -> Pipeline:
    """Returns the pipeline after a check that it does the work."""
    if not isinstance(pipeline, kind):
        raise ServiceError("invalid_request", f"this model cannot {task}; choose another one", param="model")
    return pipeline
