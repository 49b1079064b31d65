"""Arguments before they are parsed, and errors in them: old spellings, and messages in the words of this program."""

import re
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Final

from transformer.errors import printable

OLD_SPELLINGS: Final[Mapping[str, Mapping[str, str]]] = {
    command: {"--out": "--output"}
    for command in ("prepare", "check", "average", "quantize", "shortlist", "import", "export")
}
"""For each command, options that have another name today. The old ones work, but are not shown in `--help`."""

PROGRAM: Final = "transformer"

RULES: Final = (
    (r"Invalid value for (.+?): (.*)", ""),
    (r"No such option: (\S+?)\.?(?: .*)?", r"\1 is not an option of {called}"),
    (r"No such command '(.*?)'.*", r"\1 is not a command of {called}"),
    (r"Missing (?:option|argument) '\[?(.+?)\]?(?:\.\.\.)?'.*", r"\1 is missing; give it"),
    (
        r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)\.?",
        r"\1: more arguments than {called} takes; leave them out",
    ),
    (r"Option '(.+?)' requires .*", r"\1 needs a value; give one after it"),
    (r"Option '(.+?)' does not take a value\.?", r"\1 takes no value; leave out what stands after the ="),
)
"""Patterns of the messages of the library that parses arguments, and the messages of this program instead."""

VALUES: Final = (
    (r"(?:Value error, )?'(.*)' is not one of (.*?)\.?", "={0!r} is unknown; choose one of {1}"),
    (r"[Pp]ath '(.*)' is not readable\.?", "={0!r} cannot be read; change its permissions, or take another file"),
    (r"'(.*)' is not a valid int(?:eger)?\.?", "={0!r} is not a whole number; give e.g. 4"),
    (r"'(.*)' is not a valid float\.?", "={0!r} is not a number; give e.g. 0.5"),
    (r"(.*) is not in the range x>=(.*?)\.", "={0} is too small; give at least {1}"),
    (r"(.*) is not in the range (.*?)<=x<=(.*?)\.", "={0} is out of range; give a value between {1} and {2}"),
    (r"Input should be a valid integer.*", "={value} is not a whole number; give e.g. 4"),
    (r"Input should be a valid number.*", "={value} is not a number; give e.g. 0.5"),
    (r"Input should be greater than or equal to (.*)", "={value} is too small; give at least {0}"),
    (r"Input should be less than or equal to (.*)", "={value} is too large; give at most {0}"),
)
"""The same for messages about the value of an option."""


def with_current_spellings(arguments: Sequence[str], command: str) -> list[str]:
    """Returns the arguments with today's names of their options, after a note on each old one.

    Args:
        arguments: Arguments of the program.
        command: Command among them.
    """
    renamed = OLD_SPELLINGS.get(command, {})
    result: list[str] = []
    for position, argument in enumerate(arguments):
        if argument == "--":
            return [*result, *arguments[position:]]
        option, equals, value = argument.partition("=")
        if option in renamed:
            print(f"note: {option} is now called {renamed[option]}", file=sys.stderr)
        result.append(f"{renamed.get(option, option)}{equals}{value}")
    return result


def usage_error(message: str, command: str, names: Sequence[str], value: str = "") -> str:
    """Returns a message about a mistake in the arguments, which points to the help of the command.

    Args:
        message: Message of the library that parses the arguments.
        command: Name of the command; empty if none was given.
        names: Names that could have been meant: commands, or the options of the command.
        value: Value that was given for an option.
    """
    is_known = command and not message.startswith("No such command")
    called = f"{PROGRAM} {command}" if is_known else PROGRAM
    text = _rewritten(message, called, value)
    wrong = re.match(r"No such (?:option: (\S+?)\.?(?: .*)?|command '(.*?)'.*)$", message)
    if wrong:
        similar = get_close_matches(wrong[1] or wrong[2], names, n=1, cutoff=0.5)
        text += f"; did you mean {similar[0]}?" if similar else "; leave it out" if wrong[1] else "; choose another one"
    return f"{text.rstrip('.')}{' See' if text.endswith('?') else ', see'} {called} --help"


def _rewritten(message: str, called: str, value: str) -> str:
    for pattern, replacement in RULES:
        if not (match := re.fullmatch(pattern, message, re.DOTALL)):
            continue
        if replacement:
            return match.expand(replacement.replace("{called}", called))
        name, rest = re.sub(r"['\[\]]|\.\.\.", "", match[1]), match[2]
        for value_pattern, text in VALUES:
            if words := re.fullmatch(value_pattern, rest, re.DOTALL):
                return name + text.format(*map(printable, words.groups()), value=printable(value))
        return f"{name}: {rest.removeprefix('Value error, ')}"
    return message
