"""Checks the English of docstrings, comments, messages and names.

Usage: python tools/check_english.py [FILE_OR_FOLDER ...]        (default: src tools)

Reported are docstrings that open with a word that cannot begin a verb or a noun phrase, sentences without a verb,
sentences of more than 35 words, phrases that read like a word-for-word translation, private metaphors, and names of
variables that give neither a type nor a role. Exits with 1 if there are any.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

MOST_WORDS = 35
NOT_PROSE = {"check_english.py", "words.py"}
"""Files of `tools` that are not checked: this one quotes what it forbids, and the other is a vocabulary."""

OPENERS = re.compile(
    r"(?:as|at|beside|but|by|for|from|here|how|in|into|likewise|of|on|out|so|than|that|then|there|"
    r"these|this|those|to|under|until|upon|what|when|where|which|while|who|why|with|within|"
    r"without)$"
)
"""Words that do not open a docstring: it begins with a verb in the third person or a noun phrase."""

PHRASES = {
    r"in place of": "instead of",
    r"\b(?:is|are|was|were) no (?!longer|more|later|less|fewer|larger|smaller|match)": "is not a ...",
    r"\bis what\b|\bare what\b|\bwhat is .{1,40} is\b": "name the thing",
    r"\b(?:is|are|was|were|be) told\b|\btells? (?:of|that|which|how|where|why)\b": "reports, logs, warns",
    r"\bmend(?:s|ed|ing)?\b": "fix, repair",
    r"\bby and by\b": "gradually",
    r"\bkeeps? (?:the )?books\b|\bbooks of\b": "tracks",
    r"\bholes?\b": "fragmentation, gap, free pages",
    r"\b(?:gives?|given|giving) back\b|\bhands? .{1,20}back\b|\bgo(?:es)? back to the\b": "returns, frees",
    r"\bheeds?\b": "checks, obeys",
    r"\btherefrom\b|\bthereof\b|\bthereupon\b|\bwhereupon\b|\bwherefrom\b": "plain words",
    r"\bof its own accord\b|\bof themselves\b": "plain words",
    r"\bas large as they may be\b|\bas it may\b": "plain words",
    r"\b(?:goes|go|went|going) on (?:with|from|in|at|where|as|if|until|exactly)\b": "continues, resumes",
    r"\bis put together\b|\bputs? together\b": "combines, joins, assembles",
    r"\btaken off\b|\btakes? off\b": "removes, strips",
    r"\blooks? into\b": "inspects",
    r"\bsays? so\b|\bdoes so\b|\bdo so\b": "say what happens",
    r"\bthe house\b|\brooms?\b": "package, project, capacity",
    r"\bhas to do\b|\bhave to do\b": "name the work",
    r"\bevery one of\b": "each",
    r"\bon its way\b|\bunder way\b": "plain words",
}
"""What is not written, as regular expressions, and what is written instead."""

NAMES = frozenset({"each", "found", "own", "given"})
"""Names of variables that say neither type nor role."""

VERBS = frozenset(Path(__file__).with_name("english_verbs.txt").read_text(encoding="utf-8").split())
"""Base forms and irregular forms of verbs; regular inflections are derived."""


def is_verb(word: str) -> bool:
    """Whether a word may be a verb, by its form."""
    word = word.lower()
    stems = {word, word.removesuffix("s"), word.removesuffix("es"), word.removesuffix("ed"), word.removesuffix("d")}
    stems |= {word.removesuffix("ing"), word.removesuffix("ing") + "e", word.removesuffix("ies") + "y"}
    stems |= {word.removesuffix("ied") + "y", re.sub(r"(.)\1(?:ed|ing)$", r"\1", word)}
    return not stems.isdisjoint(VERBS)


def sentences(text: str) -> Iterator[str]:
    """The sentences of running text; code, lists of arguments and tables are left out."""
    text = re.sub(r"`[^`]*`", "X", text)
    text = re.sub(r"\b(e\.g|i\.e|cf|etc|Sec|Eq|Fig|vs|al|No|approx)\.", r"\1", text)
    for sentence in re.split(r"(?<=[.!?:;])\s+", " ".join(text.split())):
        if sentence:
            yield sentence


def prose(docstring: str) -> Iterator[str]:
    """The paragraphs of a docstring after its summary that are neither sections nor indented blocks."""
    for paragraph in re.split(r"\n\s*\n", docstring)[1:]:
        lines = paragraph.splitlines()
        if not re.match(
            r"\s*(?:Args|Attributes|Raises|Returns|Yields|Source|Example|Usage)\b.*:", lines[0]
        ) and not any(line.startswith(("    ", "|", "-", "*")) for line in lines):
            yield paragraph


def phrases(text: str) -> Iterator[str]:
    """Yields the faults of a text of any kind."""
    flat = " ".join(re.sub(r"`[^`]*`", "X", text).split())
    for pattern, instead in PHRASES.items():
        if hit := re.search(pattern, flat, re.IGNORECASE):
            yield f'"{hit[0]}": write {instead}'
    for sentence in sentences(text):
        is_list = sentence.count(",") > MOST_WORDS // 3 or not re.search(r"[.!?:;]$", sentence)
        if len(words := re.findall(r"[\w'-]+", sentence)) > MOST_WORDS and not is_list:
            yield f'{len(words)} words in one sentence: "{sentence[:50]}..."'


def docstring_faults(docstring: str) -> Iterator[str]:
    """Yields the faults of a docstring."""
    first = re.match(r"\W*(\w+)", docstring)
    if first and OPENERS.match(first[1].lower()):
        yield f'opens with "{first[1]}": begin with a verb in the third person or a noun phrase'
    sections = re.sub(r"\n\s*(?:Args|Attributes|Raises|Returns|Yields):\n", "\n\n", docstring)
    yield from phrases(re.sub(r"\n\s*(?=\w+(?: \([^)]*\))?: )", ". ", sections))
    for paragraph in prose(docstring):
        for sentence in sentences(paragraph):
            words = re.findall(r"[A-Za-z']+", sentence)
            if len(words) > 3 and sentence.endswith((".", "!", "?")) and not any(map(is_verb, words)):
                yield f'no verb in "{sentence[:60]}"'


def faults(path: Path) -> Iterator[tuple[int, str]]:
    """The line numbers and descriptions of everything that is wrong in a file."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if (docstring := ast.get_docstring(node)) is not None:
                docstrings.add(node.body[0].lineno)
                for fault in docstring_faults(docstring):
                    yield node.body[0].lineno, fault
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.lineno not in docstrings:
            if " " in node.value:
                for fault in phrases(node.value):
                    yield node.lineno, fault
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in NAMES:
            yield node.lineno, f'the variable "{node.id}" says neither type nor role'
        elif isinstance(node, ast.arg) and node.arg in NAMES:
            yield node.lineno, f'the parameter "{node.arg}" says neither type nor role'
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            for fault in phrases(token.string.lstrip("# ")):
                yield token.start[0], fault


def main(paths: list[str]) -> int:
    """Prints the faults of files and folders; returns the exit code."""
    count = 0
    for name in paths or ["src", "tools"]:
        path = Path(name)
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            if file.parts[0] == "tools" and file.name in NOT_PROSE:
                continue
            for line, fault in sorted(set(faults(file))):
                print(f"{file}:{line}: {fault}")
                count += 1
    if count:
        print(f"{count} faults of English")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
