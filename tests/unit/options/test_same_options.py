"""Options have the same names on the command line, in Python and in requests to the server."""

from dataclasses import fields
from inspect import signature
from typing import Any

import typer

from transformer.cli.app import make_app
from transformer.decoding import Sampling, Search
from transformer.options.fields import facts_of
from transformer.options.translation import LoadingOptions
from transformer.pipelines import auto
from transformer.pipelines.translation.config import TranslatorConfig
from transformer.pipelines.translation.terminology import Terminology
from transformer.pipelines.translation.translator import Translator
from transformer.serving.engine.options import GenerateTaskOptions, TranslateTaskOptions
from transformer.serving.routes.openai_types import ChatRequest, CompletionRequest
from transformer.serving.routes.translate_fields import TranslateFields

PYTHON = {
    field.name
    for config in (Search, Sampling, Terminology, TranslatorConfig, LoadingOptions)
    for field in fields(config)
}

OTHER_FLAGS = {
    "retry_degenerate": "guard",  # users of the command line know it by the short name
    "sampling": "sample",  # a value with fields in Python, whose fields are options beside --sample
    "banned": "ban",  # the command line takes files of phrases and kinds separated by commas
    "protected": "protect",
}
NO_FLAG = {
    "limit_ends",  # a language model sets it
    "directions", "trained_target",  # the model records them
    "search", "terminology", "source_text", "calibration", "length_ratio", "normalize",  # facts and values with fields
    "description",
    "max_source_tokens", "max_target_tokens", "batch_tokens",  # follow from the model; for experiments
}  # fmt: skip
ONLY_FLAGS = {
    "alpha",  # exponent of --length-penalty, which is a function in Python
    "mbr_metric",  # the value of `mbr` in Python, where the beam is the number of samples
    "input", "output", "as", "invalid_utf8", "format", "json", "prefix", "alignment", "attention",  # files and formats
    "min_confidence",  # a mark in the output; Python has the number
    "shards", "join", "text_column", "id_column",  # several processes
    "engine", "concurrency", "num_cpus", "num_gpus", "batch_size",  # Ray, whose own functions take them in Python
    "dry_run", "all", "fuzzy", "mark", "columns", "report",  # documents: arguments of `Translator.translate_file`
    "verbose", "quiet",
}  # fmt: skip
OTHER_FIELDS = {
    "alternatives": "n_best",  # LibreTranslate counts the others; OpenAI has n
    "n": "n_best",
    "max_completion_tokens": "max_tokens",  # OpenAI's new name of it
}
ONLY_FIELDS = {
    "pivot", "model", "details",  # which models, and what is returned
    "messages", "prompt", "echo", "best_of", "stop", "stream", "stream_options", "user",  # of OpenAI
}  # fmt: skip
ONLY_JOBS = {"alignment", "stop", "special_tokens"}  # what is returned, and where a continuation ends


def flags() -> dict[str, Any]:
    """Returns the options of `transformer translate` by the names of their first flags."""
    group: Any = typer.main.get_command(make_app(["translate", "generate"]))
    options = [option for option in group.commands["translate"].params if option.param_type_name == "option"]
    return {option.opts[0].removeprefix("--").replace("-", "_"): option for option in options}


def test_command_line_and_python_have_the_same_options() -> None:
    """Catches an option that was added on one side, or under another name."""
    assert set(OTHER_FLAGS) | NO_FLAG <= PYTHON
    expected = {OTHER_FLAGS.get(name, name) for name in PYTHON - NO_FLAG}
    assert set(flags()) == expected | ONLY_FLAGS


def test_calls_in_python_take_the_declared_options() -> None:
    """Catches an argument of `load` that the command line and the reference do not know."""
    explicit = set(signature(auto.load).parameters) - {"path", "search", "options"}
    assert explicit | {field.name for field in fields(TranslatorConfig)} >= {
        field.name for field in fields(LoadingOptions)
    }
    assert set(signature(Translator.__call__).parameters) == {"self", "lines", "n_best", "terminology", "search"}


def test_the_server_has_options_of_the_same_names() -> None:
    """Catches a field of requests that is called otherwise in Python, or has other bounds."""
    for model in (TranslateFields, CompletionRequest, ChatRequest):
        names = {OTHER_FIELDS.get(name, name) for name in model.model_fields}
        assert names - ONLY_FIELDS <= PYTHON
    for job in (TranslateTaskOptions, GenerateTaskOptions):
        assert set(facts_of(job)) - ONLY_JOBS <= PYTHON
    assert facts_of(TranslateFields)["beam"].metadata == facts_of(Search)["beam"].metadata
    for name in ("top_p", "top_k", "seed"):
        own, python = facts_of(CompletionRequest)[name], facts_of(Sampling)[name]
        assert (own.help, own.metadata[: len(python.metadata)]) == (python.help, python.metadata)
