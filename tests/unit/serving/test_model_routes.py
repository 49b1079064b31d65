"""Routes for language models and encoders, as bytes on a connection: streams, limits, and our own routes."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest

from serving_fakes import CONTINUATION, FakeEngine
from serving_http import RunningServer, running_server
from transformer.serving.errors import ServiceError
from transformer.serving.interfaces import ModelInfo

CHAT = {"model": "tiny-gpt", "messages": [{"role": "user", "content": "Tell me."}], "stream": True}
LIMITS = {"texts": 4, "characters": 100}


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with running_server(engine=FakeEngine(), operations=None, page=False, limits=LIMITS) as running:
        yield running


def refusal(server: RunningServer, path: str, body: Any) -> tuple[int, Any]:
    """Returns status and field of the error with which a request is refused."""
    status, _, answer = server.request("POST", path, body)
    return status, answer["error"]["param"]


def test_streams_are_server_sent_events(server: RunningServer) -> None:
    """Catches bytes that other clients than OpenAI's cannot read, and proxies that keep the stream back."""
    status, headers, content = server.request("POST", "/v1/chat/completions", CHAT)
    assert status == 200
    assert headers.get_content_type() == "text/event-stream"
    assert (headers["cache-control"], headers["x-accel-buffering"]) == ("no-cache", "no")
    *events, done, end = content.decode().split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    deltas = [json.loads(event.removeprefix("data: "))["choices"][0]["delta"] for event in events]
    words = [CONTINUATION[0], *(f" {word}" for word in CONTINUATION[1:])]
    expected = [{"role": "assistant", "content": "", "refusal": None}, *({"content": word} for word in words), {}]
    assert deltas == expected


def test_a_client_that_leaves_ends_the_generation(server: RunningServer) -> None:
    """Catches a worker that goes on for nobody, before the first word or in the middle of a stream."""
    engine = server.engine
    closed: list[str] = []

    async def speak_forever(job: Any) -> AsyncGenerator[dict[str, Any], None]:
        try:
            while True:
                yield {"text": " more", "tokens": 1}
                await asyncio.sleep(0.001)
        finally:
            closed.append("stream")

    body = json.dumps(CHAT).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n"
    request = f"{head}Content-Type: application/json\r\n\r\n".encode() + body
    server.call(engine.gate.clear)
    with server.connect() as connection:
        connection.sendall(request)
        server.wait_until(lambda: engine.n_running == 1)
    server.wait_until(lambda: (engine.n_running, engine.n_cancelled) == (0, 1))
    engine.stream = speak_forever
    with server.connect() as connection:
        connection.sendall(request)
        received = b""
        while b" more" not in received:
            received += connection.recv(4096)
        assert not closed
    server.wait_until(lambda: closed)


def test_a_failure_within_a_stream_is_its_last_event(server: RunningServer) -> None:
    """Catches a stream that looks complete although the generation failed, and a status 200 for an early failure."""
    prompt = "User: Tell me.\n\nAssistant:"
    server.engine.failures[prompt] = ServiceError("invalid_request", "the prompt is too long", param="messages")
    assert refusal(server, "/v1/chat/completions", CHAT) == (400, "messages")

    async def fail_later(job: Any) -> AsyncGenerator[dict[str, Any], None]:
        yield {"text": " once", "tokens": 1}
        raise ServiceError("internal", "a worker died")

    server.engine.stream = fail_later
    status, _, content = server.request("POST", "/v1/chat/completions", CHAT)
    *_, last, end = content.decode().split("\n\n")
    assert (status, end) == (200, "")
    assert json.loads(last.removeprefix("data: "))["error"]["type"] == "server_error"
    assert "[DONE]" not in content.decode()


def test_a_text_that_fails_is_named_by_its_position(server: RunningServer) -> None:
    """Catches a client of many texts that cannot know which one is wrong."""
    server.engine.failures["bad"] = ServiceError("invalid_request", "the text has no [MASK]")
    for path, model, name in (
        ("/v1/fill", "tiny-bert", "input"), ("/v1/embeddings", "tiny-bert", "input"),
        ("/v1/completions", "tiny-gpt", "prompt"),
    ):  # fmt: skip
        for texts, message in ((["a", "bad"], "text 2: the text has no [MASK]"), ("bad", "the text has no [MASK]")):
            status, _, answer = server.request("POST", path, {"model": model, name: texts})
            assert (status, answer["error"]["message"]) == (400, message)


def test_limits(server: RunningServer) -> None:
    """Catches requests larger than the settings allow."""
    many, long = ["a"] * 5, ["a" * 60] * 2
    for texts in (many, long):
        assert refusal(server, "/v1/completions", {"model": "tiny-gpt", "prompt": texts}) == (413, "prompt")
        assert refusal(server, "/v1/embeddings", {"model": "tiny-bert", "input": texts}) == (413, "input")
        assert refusal(server, "/v1/classify", {"model": "tiny-bert", "input": texts}) == (413, "input")
        assert refusal(server, "/v1/fill", {"model": "tiny-bert", "input": texts}) == (413, "input")
        pairs = {"model": "en-de", "source": texts, "target": texts}
        assert refusal(server, "/v1/score", pairs) == (413, "source")
    messages = [{"role": "user", "content": "a" * 60}] * 2
    assert refusal(server, "/v1/chat/completions", {"model": "tiny-gpt", "messages": messages}) == (413, "messages")
    assert refusal(server, "/v1/completions", {"model": "tiny-gpt", "prompt": ["a"] * 2, "n": 3}) == (413, "prompt")


def test_texts_are_labelled_filled_and_scored(server: RunningServer) -> None:
    """Catches results of our own routes in another form than `/openapi.json` describes."""
    _, _, labelled = server.request("POST", "/v1/classify", {"model": "tiny-bert", "input": ["a b", "c"], "top": 1})
    assert labelled["data"][0] == {"labels": [{"label": "positive", "probability": 0.75}], "tokens": 2}
    assert len(labelled["data"]) == 2
    _, _, filled = server.request("POST", "/v1/fill", {"model": "tiny-bert", "input": "a [MASK]"})
    assert filled["data"][0]["masks"][0][0]["text"] == "a word"
    pairs = {"model": "en-de", "source": ["a", "b"], "target": ["A", "B C"]}
    _, _, scored = server.request("POST", "/v1/score", pairs)
    assert [one["per_token"] for one in scored["data"]] == [-1.0, -1.0]
    assert [item.second for item in server.engine.jobs[-1].items] == ["A", "B C"]
    assert server.request("POST", "/v1/score", {"model": "en-de", "source": "a", "target": "A"})[0] == 200


def test_scores_have_a_target_language() -> None:
    """Catches a score by a tag that nobody chose, and a language that the model does not write, taken all the same."""
    directions = (("en", "de"), ("de", "en"), ("en", "fr"))
    models = [
        ModelInfo("several", "encoder-decoder", directions=directions),
        ModelInfo("en-de", "encoder-decoder", "en", "de"),
        ModelInfo("unknown", "encoder-decoder"),
    ]
    pair = {"source": "a", "target": "A"}
    with running_server(engine=FakeEngine(models), operations=None, page=False, limits=LIMITS) as server:
        for model, language, options in (
            ("several", "fr-CA", {"target_language": "fr"}), ("en-de", "de-AT", {}), ("en-de", None, {}),
            ("unknown", "it", {}),
        ):  # fmt: skip
            assert server.request("POST", "/v1/score", {**pair, "model": model, "target_language": language})[0] == 200
            assert server.engine.jobs[-1].options == options
        for model, language in (("several", None), ("several", "it"), ("several", "x!"), ("en-de", "fr")):
            body = {**pair, "model": model, "target_language": language}
            assert refusal(server, "/v1/score", body) == (400, "target_language")


def test_wrong_requests_are_refused_by_our_routes(server: RunningServer) -> None:
    """Catches models that do other work, unequal lists, and fields that do not exist."""
    assert refusal(server, "/v1/classify", {"model": "tiny-gpt", "input": "a"}) == (400, "model")
    assert refusal(server, "/v1/fill", {"model": "other", "input": "a"}) == (404, "model")
    assert refusal(server, "/v1/score", {"model": "en-de", "source": ["a"], "target": ["A", "B"]}) == (400, "target")
    assert refusal(server, "/v1/fill", {"model": "tiny-bert", "input": "a", "tops": 3}) == (400, "tops")
    assert refusal(server, "/v1/classify", {"model": "tiny-bert", "input": []}) == (400, "input")
