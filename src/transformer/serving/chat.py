"""Prompts for chats: by the chat template of the model if it has one, else in a plain form.

The plain form has a paragraph for each message, which begins with its role, and ends with "Assistant:":

    System: Answer in one word.

    User: What is the capital of France?

    Assistant:
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NoReturn

from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from transformer.serving.errors import ServiceError

ROLES: Final[Mapping[str, str]] = {"system": "System", "user": "User", "assistant": "Assistant"}
"""Roles of messages, and their names in the plain form."""
PLAIN_STOP: Final = "\n\nUser:"
"""Text that ends an answer in the plain form."""


@dataclass(frozen=True)
class Message:
    """Message of a chat.

    Attributes:
        role: Who wrote it, one of `ROLES`.
        content: Its text.
    """

    role: str
    content: str


@dataclass(frozen=True)
class ChatPrompt:
    """Prompt that an answer continues.

    Attributes:
        text: The prompt.
        stops: Texts that end the answer.
        special_tokens: Whether names of special tokens in the prompt are these tokens.
    """

    text: str
    stops: tuple[str, ...] = ()
    special_tokens: bool = False


def chat_prompt(messages: Sequence[Message], chat: Mapping[str, Any]) -> ChatPrompt:
    """Returns the prompt for the answer to a chat.

    Args:
        messages: Messages, oldest first.
        chat: Template and special tokens of the model, see `transformer.bundle.chat`; empty for the plain form.

    Raises:
        ServiceError: A message contains the name of a special token, or the template refuses the messages.
    """
    if not chat:
        paragraphs = [f"{ROLES[message.role]}: {message.content}" for message in messages]
        return ChatPrompt("\n\n".join([*paragraphs, "Assistant:"]), (PLAIN_STOP,))
    for token in chat.get("special_tokens", ()):
        if any(token in message.content for message in messages):
            raise ServiceError(
                "invalid_request", f"a message contains {token}, a special token; leave it out", param="messages"
            )
    variables = {role: chat.get(role, "") for role in ("bos_token", "eos_token")}
    written = [{"role": message.role, "content": message.content} for message in messages]
    try:
        text = _compile(chat["template"]).render(messages=written, add_generation_prompt=True, **variables)
    except TemplateError as error:
        message = f"the model's chat template refuses the messages: {error}"
        raise ServiceError("invalid_request", message, param="messages") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        message = f"the model's chat template fails with {type(error).__name__}"
        raise ServiceError("invalid_request", message, param="messages") from None
    return ChatPrompt(text, special_tokens=True)


@lru_cache(maxsize=32)
def _compile(source: str) -> Template:
    """Compiles a template; it can read what it is given, and nothing else."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False}
    functions = {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
    return environment.from_string(source, globals=functions)


def _strftime_now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)
