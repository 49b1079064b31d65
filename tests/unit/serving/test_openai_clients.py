"""Clients of OpenAI's interface against the server: the libraries openai and langchain-openai."""

import asyncio
import base64
import struct
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

from serving_app import fake_services
from serving_fakes import CONTINUATION, MODELS, FakeEngine, vector
from serving_http import SECONDS, RunningServer, running_server
from transformer.serving.errors import ServiceError

TEXT = " ".join(CONTINUATION)
USER = {"role": "user", "content": "Tell me."}


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    engine = FakeEngine()
    with running_server(engine=engine, operations=None, services=fake_services(engine)) as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[openai.OpenAI]:
    url = f"http://127.0.0.1:{server.port}/v1"
    with openai.OpenAI(base_url=url, api_key="any", timeout=SECONDS, max_retries=0) as made:
        yield made


def chat(client: Any, **options: Any) -> Any:
    """Asks the fake language model."""
    fields = {"model": "tiny-gpt", "messages": [USER], **options}
    return client.chat.completions.create(**fields)


def test_models(client: openai.OpenAI) -> None:
    """Catches a list of models that the library cannot read, or that lacks one."""
    assert [model.id for model in client.models.list()] == [info.name for info in MODELS]
    assert client.models.retrieve("tiny-gpt").created == MODELS[3].created
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_completions(client: openai.OpenAI, server: RunningServer) -> None:
    """Catches choices in another order than prompts, wrong usage, and options that do not arrive."""
    answer = client.completions.create(
        model="tiny-gpt", prompt=["one two", "three"], n=2, max_tokens=3, temperature=0.5, top_p=0.9, seed=7, stop=["x"]
    )
    assert [(choice.index, choice.text, choice.finish_reason) for choice in answer.choices] == [
        (index, " once upon a", "length") for index in range(4)
    ]
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (3, 12, 15)
    options = {"max_tokens": 3, "temperature": 0.5, "top_p": 0.9, "n_best": 2, "seed": 7, "stop": ["x"]}
    assert server.engine.jobs[-1].options == options
    echoed = client.completions.create(model="tiny-gpt", prompt="one", echo=True)
    assert echoed.choices[0].text == f"one {TEXT}"
    assert (echoed.choices[0].finish_reason, server.engine.jobs[-1].options["max_tokens"]) == ("stop", 16)


def test_streamed_completions(client: openai.OpenAI) -> None:
    """Catches a stream whose texts are not those of the whole answer, and a lost end or usage."""
    options = {"include_usage": True}
    chunks = [
        *client.completions.create(model="tiny-gpt", prompt="a", max_tokens=2, stream=True, stream_options=options)
    ]
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == " once upon"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices] == [None, None, "length"]
    assert (chunks[-1].choices, chunks[-1].usage.completion_tokens) == ([], 2)
    echoed = [*client.completions.create(model="tiny-gpt", prompt="a", max_tokens=1, stream=True, echo=True)]
    assert "".join(chunk.choices[0].text for chunk in echoed) == "a once"


def test_chats(client: openai.OpenAI, server: RunningServer) -> None:
    """Catches an answer that the library cannot read, and messages or parts that are lost."""
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
    ]
    answer = chat(client, messages=messages, max_completion_tokens=8)
    assert (answer.choices[0].message.role, answer.choices[0].message.content) == ("assistant", TEXT)
    assert answer.choices[0].finish_reason == "stop"
    assert answer.object == "chat.completion"
    (item,) = server.engine.jobs[-1].items
    assert item.text == "System: Be brief.\n\nUser: one\ntwo\n\nAssistant:"
    assert len(chat(client, n=3).choices) == 3


def test_streamed_chats(client: openai.OpenAI) -> None:
    """Catches chunks in another order than role, contents, reason and usage."""
    chunks = [*chat(client, stream=True, stream_options={"include_usage": True})]
    first, *contents, finish, usage = chunks
    assert (first.choices[0].delta.role, first.choices[0].delta.content) == ("assistant", "")
    assert "".join(chunk.choices[0].delta.content for chunk in contents) == TEXT
    assert (finish.choices[0].delta.content, finish.choices[0].finish_reason) == (None, "stop")
    assert (usage.choices, usage.usage.completion_tokens) == ([], len(CONTINUATION))
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk.id for chunk in chunks}) == 1
    assert all(chunk.usage is None for chunk in [*chat(client, stream=True)])


def test_translators_answer_chats(client: openai.OpenAI, server: RunningServer) -> None:
    """Catches a translator that a client of chats cannot use, and a stream without its text, end or usage."""
    answer = chat(client, model="en-de", temperature=0.7, seed=1, max_tokens=2)
    (choice,) = answer.choices
    assert (choice.message.content, choice.finish_reason) == ("TELL ME.", "stop")
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (2, 2)
    assert [one.message.content for one in chat(client, model="en-de", n=2).choices] == ["TELL ME.", "TELL ME. (2)"]
    first, content, finish, usage = chat(client, model="en-de", stream=True, stream_options={"include_usage": True})
    assert first.choices[0].delta.role == "assistant"
    assert content.choices[0].delta.content == "TELL ME."
    assert (finish.choices[0].finish_reason, usage.usage.total_tokens) == ("stop", 4)
    server.engine.failures["Tell me."] = ServiceError("queue_full", "too many texts are waiting", retry_after=1.0)
    try:
        for stream in (False, True):
            with pytest.raises(openai.RateLimitError):
                chat(client, model="en-de", stream=stream)
    finally:
        server.engine.failures.clear()


def test_asynchronous_streams(server: RunningServer) -> None:
    """Catches streams of several requests at a time that block or mix each other."""

    async def ask() -> list[str]:
        url = f"http://127.0.0.1:{server.port}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="any", timeout=SECONDS, max_retries=0) as client:

            async def one(n_tokens: int) -> str:
                stream = await chat(client, stream=True, max_tokens=n_tokens)
                return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

            return await asyncio.gather(*(one(n_tokens) for n_tokens in range(1, 9)))

    assert asyncio.run(ask()) == [" ".join(CONTINUATION[:n]) for n in range(1, 9)]


@pytest.mark.parametrize("encoding", [{}, {"encoding_format": "float"}, {"encoding_format": "base64"}])
def test_embeddings(client: openai.OpenAI, server: RunningServer, encoding: dict[str, str]) -> None:
    """Catches vectors in another order, byte order or precision than the library expects; it asks for base64 itself."""
    options = {"truncate": True}
    answer = client.embeddings.create(
        model="tiny-bert", input=["one two", "three"], dimensions=8, extra_body=options, **encoding
    )
    assert server.engine.jobs[-1].options == {"dimensions": 8, "truncate": True}
    assert [one.index for one in answer.data] == [0, 1]
    assert answer.usage.total_tokens == 3
    for one, text in zip(answer.data, ["one two", "three"], strict=True):
        values = one.embedding
        if isinstance(values, str):
            values = struct.unpack("<8f", base64.b64decode(values))
        assert values == pytest.approx(vector(text), abs=1e-7)


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"logprobs": True}, "logprobs"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"n": 11}, "n"),
        ({"n": 2, "stream": True}, "n"),
        ({"max_tokens": 5000}, "max_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"stop": [""]}, "stop"),
        ({"model": "en-de", "n": 11}, "n"),
        ({"model": "en-de", "n": 2, "stream": True}, "n"),
        ({"model": "en-de", "stop": ["x"]}, "stop"),
        ({"model": "en-de", "max_tokens": 1}, "max_tokens"),
        ({"model": "en-de", "max_tokens": 1, "stream": True}, "max_tokens"),
        ({"model": "en-de", "messages": [{"role": "system", "content": "a"}, USER]}, "messages"),
        ({"model": "en-de", "messages": [USER] * 2}, "messages"),
        ({"model": "tiny-bert"}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": "a", "tool_call_id": "1"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "messages"),
    ],
)
def test_what_is_not_supported_is_named(client: openai.OpenAI, options: dict[str, Any], param: str) -> None:
    """Catches a field that is ignored although it changes the answer, and an error that does not name it."""
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, **options)
    assert (caught.value.param, caught.value.code, caught.value.type) == (
        param, "invalid_request", "invalid_request_error",
    )  # fmt: skip


def test_fields_that_ask_for_nothing_are_accepted(client: openai.OpenAI) -> None:
    """Catches a client that is refused because it writes defaults, or a field that does not matter."""
    assert chat(
        client, tools=[], logit_bias={}, presence_penalty=0, response_format={"type": "text"}, user="me", store=False
    )  # fmt: skip


def test_errors_are_those_of_the_library(client: openai.OpenAI, server: RunningServer) -> None:
    """Catches errors that the library does not raise as what they are."""
    with pytest.raises(openai.NotFoundError) as caught:
        chat(client, model="other")
    assert (caught.value.param, caught.value.code) == ("model", "not_found")
    with pytest.raises(openai.BadRequestError, match="translate with POST /translate"):
        client.completions.create(model="en-de", prompt="a")
    with pytest.raises(openai.BadRequestError, match=r"token ids.*check_embedding_ctx_length"):
        client.embeddings.create(model="tiny-bert", input=[[1, 2]])
    with pytest.raises(openai.BadRequestError, match="token ids"):
        client.completions.create(model="tiny-gpt", prompt=[1, 2])
    with pytest.raises(openai.BadRequestError, match="logprobs"):
        client.completions.create(model="tiny-gpt", prompt="a", logprobs=0)
    server.engine.is_full = True
    try:
        for stream in (False, True):
            with pytest.raises(openai.RateLimitError) as caught:
                chat(client, stream=stream)
            assert caught.value.response.headers["retry-after"] == "1"
    finally:
        server.engine.is_full = False


def test_langchain(server: RunningServer) -> None:
    """Catches what the widely used library sends or reads differently from OpenAI's own."""
    access: dict[str, Any] = {"base_url": f"http://127.0.0.1:{server.port}/v1", "api_key": "any", "timeout": SECONDS}
    model = ChatOpenAI(model="tiny-gpt", max_retries=0, **access)
    answer = model.invoke([("system", "Be brief."), ("human", "Tell me.")])
    assert answer.content == TEXT
    assert answer.usage_metadata["output_tokens"] == len(CONTINUATION)
    chunks = [*model.stream("Tell me.", stream_usage=True)]
    assert "".join(str(chunk.content) for chunk in chunks) == TEXT
    embeddings = OpenAIEmbeddings(model="tiny-bert", check_embedding_ctx_length=False, max_retries=0, **access)
    assert embeddings.embed_query("one") == pytest.approx(vector("one"), abs=1e-7)
    for values, text in zip(embeddings.embed_documents(["one", "two"]), ("one", "two"), strict=True):
        assert values == pytest.approx(vector(text), abs=1e-7)
