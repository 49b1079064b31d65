"""Translates 280 lines with placeholders, tags, addresses and marks each way, and counts what became of them.

A line is kept if its translation has each span once and as it was, noted if a note names one that it has not, and
silent otherwise. It is stray if, beside its spans, its translation has a sign or a digit of such spans, or a name that
stood for one, that neither the line nor the reference has. The times are compared with those of the same lines with
words instead of spans.

python benchmarks/translation/placeholders.py --output results.json
"""

import argparse
import json
import random
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sacrebleu import corpus_chrf

import transformer
from transformer.pipelines.translation.translator import Translator
from transformer.runtime.machine import machine
from transformer.text.substitution import NAMES

LINES = 280
ROUNDS = 3
LANGUAGES = ("en", "de")
Pair = tuple[str, str]
SENTENCES = [
    ("The file {0} was not found.", "Die Datei {0} wurde nicht gefunden."),
    ("Hello {0}, how are you?", "Hallo {0}, wie geht es dir?"),
    ("Welcome back, {0}!", "Willkommen zurück, {0}!"),
    ("Do you really want to delete {0}?", "Möchten Sie {0} wirklich löschen?"),
    ("I sent a letter to {0} yesterday.", "Ich habe gestern einen Brief an {0} geschickt."),
    ("{0} is not here today.", "{0} ist heute nicht hier."),
    ("The price of {0} has changed.", "Der Preis von {0} hat sich geändert."),
    ("Write to {0} if you need help.", "Schreiben Sie an {0}, wenn Sie Hilfe brauchen."),
    ("The book {0} belongs to {1}.", "Das Buch {0} gehört {1}."),
    ("{0} gave {1} a present.", "{0} gab {1} ein Geschenk."),
    ("Click on {0} to open the window.", "Klicken Sie auf {0}, um das Fenster zu öffnen."),
    ("The computer ({0}) does not work.", "Der Computer ({0}) funktioniert nicht."),
    ("I cannot read the page {0}.", "Ich kann die Seite {0} nicht lesen."),
    ("Have you seen '{0}'?", "Haben Sie '{0}' gesehen?"),
    ("Thank you for your help, {0}.", "Danke für Ihre Hilfe, {0}."),
    ("She bought {0} for {1}.", "Sie kaufte {0} für {1}."),
    ("Error: {0}", "Fehler: {0}"),
    ("{0}: You are not allowed to do this.", "{0}: Das dürfen Sie nicht tun."),
]
COUNTS = [
    ("You have {0} new messages.", "Sie haben {0} neue Nachrichten."),
    ("Please wait {0} seconds.", "Bitte warten Sie {0} Sekunden."),
    ("{0} people like this picture.", "{0} Leuten gefällt dieses Bild."),
    ("This costs {0} euros.", "Das kostet {0} Euro."),
]
MARKED = [
    ("Click {0}Save{1} to keep your work.", "Klicken Sie auf {0}Speichern{1}, um Ihre Arbeit zu behalten."),
    ("This is a {0}very important{1} question.", "Das ist eine {0}sehr wichtige{1} Frage."),
    ("I have {0}three dogs{1}.", "Ich habe {0}drei Hunde{1}."),
]
KEYS = [
    ("{0}Save the picture", "{0}Speichere das Bild"),
    ("Click {0}Open and wait.", "Klicken Sie auf {0}Öffnen und warten Sie."),
    ("{0}Help", "{0}Hilfe"),
]
BETWEEN = [
    ("I am here.{0}Where are you?", "Ich bin hier.{0}Wo bist du?"),
    ("Come in!{0}It is raining.", "Komm herein!{0}Es regnet."),
]
JOINED = [("Bread {0} butter", "Brot {0} Butter"), ("Ken {0} Jane are here.", "Ken {0} Jane sind hier.")]
BEFORE = [
    ("{0}I have a dog.", "{0}Ich habe einen Hund."),
    ("{0}Where are you going?", "{0}Wohin gehst du?"),
    ("{0}Bread and milk", "{0}Brot und Milch"),
]
AFTER = [("I love you{0}", "Ich liebe dich{0}"), ("Good night!{0}", "Gute Nacht!{0}")]
KINDS: dict[str, tuple[list[Pair], list[str]]] = {
    "printf": (SENTENCES, ["%s", "%1$s", "%(name)s", "%1"]),
    "braces": (SENTENCES, ["{name}", "{{user}}", "${path}", "{0}"]),
    "addresses": (SENTENCES, ["https://example.com/a?b=1", "me@example.org", "/etc/hosts", "C:\\Temp\\a.txt"]),
    "files": (SENTENCES, ["report_2024.pdf", "src/main.py", "README.md", "photo.jpg"]),
    "identifiers": (SENTENCES, ["max_length", "DEBUG_MODE", "get_name()", "--no-edit"]),
    "names": (SENTENCES, ["@anna", "#summer", "@the_cat", "#Paris2024"]),
    "counts": (COUNTS, ["%d", "%(count)d", "{n}", "%1$d"]),
    "tags": (MARKED, ["<b>|</b>", '<a href="%s">|</a>', '<g id="1">|</g>']),
    "accelerators": (KEYS, ["&", "_"]),
    "escapes": (BETWEEN, ["\\n", "\\n\\n"]),
    "entities": (JOINED, ["&amp;"]),
    "bullets": (BEFORE, ["- ", "• ", "* ", "1) ", "> ", "— ", '"']),
    "emoji": (BEFORE, ["😀 ", "👍🏽 ", "🇩🇪 "]),
    "emoji behind": (AFTER, [" ❤️", " 👨‍👩‍👧", "😀"]),
}
WORDS = {"tags": ("", ""), "accelerators": ("",), "escapes": (" ",), "entities": ("and",), "counts": ("seven",)}
SIGNS = re.compile(r"[%{}$\\<>@#&_|*•\d]")


@dataclass(frozen=True)
class Line:
    """A line, its reference, and the same line with words, by language, and its spans."""

    kind: str
    texts: tuple[str, str]
    plain: tuple[str, str]
    spans: tuple[str, ...]


def make_lines() -> list[Line]:
    """Returns the lines, in turn of each kind."""
    rng = random.Random(7)
    lines: list[Line] = []
    for i in range(LINES):
        kind = list(KINDS)[i % len(KINDS)]
        templates, spans = KINDS[kind]
        template = rng.choice(templates)
        chosen = rng.choice(spans).split("|") if kind == "tags" else rng.sample(spans, min(2, len(spans)))
        used = chosen if "{1}" in template[0] else chosen[:1]
        words = WORDS.get(kind, ("", "") if kind[:2] in ("bu", "em") else ("Ken", "Jane"))
        lines.append(Line(kind, fill(template, chosen), fill(template, words), tuple(span.strip() for span in used)))
    return lines


def fill(template: Pair, spans: Sequence[str]) -> Pair:
    """Returns a template in both languages with spans instead of its numbers."""
    english, german = (re.sub(r"\{([01])\}", lambda match: spans[int(match[1])], text) for text in template)
    return english, german


def is_kept(line: Line, text: str) -> bool:
    """Whether a translation has each span of a line once."""
    counts = Counter(line.spans)
    return all(text.count(span) - sum(o.count(span) for o in counts if o != span) == n for span, n in counts.items())


def is_stray(line: Line, source: str, reference: str, text: str) -> bool:
    """Whether a translation has signs of spans, or names that stood for one, beside its spans."""
    for span in sorted(line.spans, key=len, reverse=True):
        source, reference, text = (side.replace(span, " ", 1) for side in (source, reference, text))
    names = [name for name in NAMES if re.search(rf"\b{name}", text) and name not in source + reference]
    return bool(names or Counter(SIGNS.findall(text)) - Counter(SIGNS.findall(source + reference)))


def seconds(translator: Translator, lines: list[str]) -> float:
    """Returns the time of a translation of lines."""
    start = time.perf_counter()
    translator.translations(lines)
    return time.perf_counter() - start


def main() -> None:
    """Translates the lines of both directions, and writes what became of their spans."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--show", choices=["kept", "silent", "noted", "stray", "all"], help="print these lines")
    arguments = parser.parse_args()
    results: dict[str, object] = {"machine": machine(), "lines": LINES}
    lines = make_lines()
    for side, (source, target) in enumerate((LANGUAGES, LANGUAGES[::-1])):
        translator = transformer.load(f"{source}-{target}")
        inputs, plain = [line.texts[side] for line in lines], [line.plain[side] for line in lines]
        references = [line.texts[1 - side] for line in lines]
        translations = translator.translations(inputs)
        counts: Counter[str] = Counter()
        wrong: list[dict[str, object]] = []
        for line, text, reference, translation in zip(lines, inputs, references, translations, strict=True):
            spans_flagged = any(f"{span[:9]!r}"[1:-1] in flag for span in line.spans for flag in translation.flags)
            outcomes = ["kept" if is_kept(line, translation.text) else "noted" if spans_flagged else "silent"]
            if is_stray(line, text, reference, translation.text):
                outcomes.append("stray")
            counts.update(outcomes)
            if outcomes != ["kept"]:
                wrong.append({"outcomes": outcomes, "kind": line.kind, "line": text, "translation": translation.text})
            if arguments.show == "all" or arguments.show in outcomes:
                print(f"{line.kind}: {text} -> {translation.text} {translation.flags}")
        times = [(seconds(translator, inputs), seconds(translator, plain)) for _ in range(ROUNDS)]
        with_spans, with_words = map(min, zip(*times, strict=True))
        chrf = corpus_chrf([translation.text for translation in translations], [references]).score
        result = {**counts, "chrf": round(chrf, 1), "seconds": with_spans, "time_ratio": with_spans / with_words}
        print(f"{source}-{target}: {result}")
        results[f"{source}-{target}"] = {**result, "wrong": wrong}
        translator.close()
    if arguments.output:
        arguments.output.write_text(json.dumps(results, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
