"""Translates 500 sentences with numbers each way, and counts the right, the noted and the silently changed ones.

The sentences have decimals, prices, quantities with units, signs, percentages, times, dates, years, ordinals and names
such as BA17. A translation is right if the number stands in it in one of the forms that its language allows, which come
from templates and Babel and not from the code under test, and if it has no other digits.

python benchmarks/translation/number_sentences.py --output results.json
"""

import argparse
import json
import random
import re
from collections import Counter
from datetime import date, time
from decimal import Decimal
from pathlib import Path

from babel.dates import format_date
from babel.numbers import format_decimal

import transformer
from transformer.runtime.machine import machine

LINES = 500
LOCALES = {"en": "en_US", "de": "de_DE"}
TEMPLATES = {
    "decimal": [
        ("The room is {} metres long.", "Das Zimmer ist {} Meter lang."),
        ("He runs {} miles.", "Er läuft {} Meilen."),
        ("I have a fever of {} degrees.", "Ich habe {} Grad Fieber."),
        ("She weighs {} kilos.", "Sie wiegt {} Kilo."),
        ("Take {} mg in the morning.", "Nehmen Sie morgens {} mg ein."),
        ("Add {} litres of water.", "Gib {} Liter Wasser dazu."),
    ],
    "price": [
        ("The book costs {}.", "Das Buch kostet {}."),
        ("I paid {} for it.", "Ich habe {} dafür bezahlt."),
        ("{} is a lot.", "{} ist viel."),
    ],
    "thousands": [
        ("{} people live here.", "Hier leben {} Menschen."),
        ("We sold {} books.", "Wir haben {} Bücher verkauft."),
        ("He earns {} euros.", "Er verdient {} Euro."),
    ],
    "sign": [
        ("It is {} degrees outside.", "Draußen sind es {} Grad."),
        ("The temperature fell to {} degrees.", "Die Temperatur fiel auf {} Grad."),
    ],
    "percent": [
        ("{} of the students came.", "{} der Schüler kamen."),
        ("Prices rose by {}.", "Die Preise stiegen um {}."),
    ],
    "time": [
        ("The train leaves at {}.", "Der Zug fährt um {} ab."),
        ("We met at {} yesterday.", "Wir haben uns gestern um {} getroffen."),
        ("The shop closes at {}.", "Der Laden schließt um {}."),
    ],
    "date": [
        ("He was born on {}.", "Er wurde am {} geboren."),
        ("The meeting is on {}.", "Das Treffen ist am {}."),
    ],
    "name": [("Flight {} is late.", "Flug {} hat Verspätung."), ("I live in room {}.", "Ich wohne in Zimmer {}.")],
    "small": [
        ("She has {} dogs.", "Sie hat {} Hunde."),
        ("I need {} eggs.", "Ich brauche {} Eier."),
        ("Wait {} minutes.", "Warte {} Minuten."),
    ],
}
ENGLISH = ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
GERMAN = ["zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf"]
WORDS = {language: dict(enumerate(words, 2)) for language, words in (("en", ENGLISH), ("de", GERMAN))}
SPACE = "[ \u00a0\u202f]?"


def forms(kind: str, rng: random.Random) -> dict[str, tuple[str, list[str]]]:
    """Returns how each language writes a random number, and regular expressions of all forms that are right."""
    result: dict[str, tuple[str, list[str]]] = {}
    value = Decimal(rng.randint(11, 9999)) / rng.choice([10, 100])
    number, hour, minute = rng.randint(1_000, 99_999), rng.randint(1, 23), rng.choice([0, 5, 15, 20, 30, 45, 50])
    day = date(rng.randint(1900, 2030), rng.randint(1, 12), rng.randint(1, 28))
    small, name = rng.randint(2, 40), f"{rng.choice(['BA', 'LH', 'A', 'B'])}{rng.randint(10, 999)}"
    for language, locale in LOCALES.items():
        decimals = [
            format_decimal(value, locale=locale, decimal_quantization=False),
            str(value).rstrip("0").rstrip("."),
        ]
        grouped = [format_decimal(number, locale=locale), str(number)]
        if kind == "decimal":
            result[language] = decimals[0], [*map(re.escape, decimals)]
        elif kind == "price":
            written = format_decimal(value, "#,##0.00", locale=locale)
            amounts = "|".join(map(re.escape, [written, *decimals]))
            shown = f"€{written}" if language == "en" else f"{written} €"
            result[language] = shown, [rf"€{SPACE}(?:{amounts})", rf"(?:{amounts}){SPACE}(?:€|[Ee]uros?)"]
        elif kind == "thousands":
            result[language] = grouped[0], [*map(re.escape, grouped)]
        elif kind == "sign":
            result[language] = f"-{small}", [rf"[-−]{small}", rf"minus {small}"]
        elif kind == "percent":
            percent = decimals[0]
            shown = f"{percent}%" if language == "en" else f"{percent} %"
            result[language] = shown, [rf"(?:{'|'.join(map(re.escape, decimals))}){SPACE}(?:%|per ?cent|Prozent)"]
        elif kind == "time":
            clock = time(hour, minute)
            twelve = f"{hour % 12 or 12}{SPACE}:?{minute:02}{SPACE}{'p' if hour >= 12 else 'a'}\\.?m"
            right = [rf"0?{hour}[:.]{minute:02}", twelve] + ([rf"{hour} Uhr"] if not minute else [])
            right += [rf"{hour % 12 or 12}{SPACE}{'p' if hour >= 12 else 'a'}\.?m"] if not minute else []
            shown = clock.strftime("%I:%M %p").lstrip("0").lower() if language == "en" else f"{hour}:{minute:02} Uhr"
            result[language] = shown, right
        elif kind == "date":
            shown = format_date(day, "long", locale=locale)
            months = "|".join(format_date(day, pattern, locale=locale) for pattern in ("MMMM", "MMM"))
            result[language] = (
                shown,
                [
                    rf"(?:{months})\.? {day.day}(?:st|nd|rd|th)?,? {day.year}",
                    rf"{day.day}(?:st|nd|rd|th|\.)? (?:of )?(?:{months})\.?,? {day.year}",
                ],
            )
        elif kind == "name":
            result[language] = name, [re.escape(name)]
        else:
            result[language] = str(small), [str(small), *([WORDS[language][small]] if small in WORDS[language] else [])]
    return result


def make_lines(source: str, target: str) -> list[tuple[str, str, list[str]]]:
    """Returns lines, each with its kind and the regular expressions of its number in the target language."""
    rng = random.Random(7)
    lines: list[tuple[str, str, list[str]]] = []
    for i in range(LINES):
        kind = list(TEMPLATES)[i % len(TEMPLATES)]
        written = forms(kind, rng)
        template = rng.choice(TEMPLATES[kind])[list(LOCALES).index(source)]
        lines.append((kind, template.format(written[source][0]), written[target][1]))
    return lines


def is_right(text: str, right: list[str]) -> bool:
    """Whether a translation has the number once, in a form that is right, and no other digits."""
    number = re.search("|".join(rf"(?<![\d.,]){form}(?![.,]?\d)" for form in right), text)
    return number is not None and not re.search(r"\d", text[: number.start()] + text[number.end() :])


def main() -> None:
    """Translates the lines of both directions and writes what became of their numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["en-de", "de-en"], help="bundled models, or DIRECTION=MODEL")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--show", choices=["silent", "noted"], help="print these lines")
    arguments = parser.parse_args()
    results: dict[str, object] = {"machine": machine(), "lines": LINES}
    for name in arguments.models:
        direction, _, model = name.partition("=")
        source, target = direction.split("-")
        lines = make_lines(source, target)
        translations = transformer.load(model or direction).translations([line for _, line, _ in lines])
        counts: Counter[str] = Counter()
        wrong: list[dict[str, object]] = []
        for (kind, line, right), translation in zip(lines, translations, strict=True):
            outcome = "right" if is_right(translation.text, right) else "noted" if translation.flags else "silent"
            counts[outcome] += 1
            counts["right, with a note"] += outcome == "right" and bool(translation.flags)
            if outcome != "right":
                wrong.append({"outcome": outcome, "kind": kind, "line": line, "translation": translation.text})
            if outcome == arguments.show:
                print(f"{kind}: {line} -> {translation.text} {translation.flags}")
        print(f"{direction}: {dict(counts)}")
        results[direction] = {"counts": counts, "wrong": wrong}
    if arguments.output:
        arguments.output.write_text(json.dumps(results, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
