"""Checks translations of 500 lines that are not sentences: words, names, numbers, addresses, emoji, empty lines.

Counted are lines that grow beyond 2 n + 3 tokens (n: tokens of the source), that repeat themselves, or that change a
number or an address. The words are those of the test set of Tatoeba.

python benchmarks/translation/odd_lines.py en-de --data ../shared/data --output results.json
"""

import argparse
import json
import random
import re
from collections import Counter
from pathlib import Path

import transformer
from transformer import Translator
from transformer.runtime.machine import machine

LINES = 500
ADDRESS = re.compile(r"(?:https?://\S+|www\.\S+|\S+@\S+\.\w+)(?<![.,!?])")
DIGITS = re.compile(r"\d+")
NAMES = [
    "Anna Schmidt", "Nguyễn Thị Minh", "Łukasz Żak", "José García", "O'Brien", "Jean-Luc Picard", "Ahmed Al-Sayed",
    "Xi", "Müller", "McDonald's", "Volkswagen AG", "São Paulo", "Reykjavík", "Tokyo", "NASA", "iPhone 15 Pro",
]  # fmt: skip
SENTENCES = ["{} is here.", "Call {}!", "Do you know {}?", "I paid {} for it.", "See {} for more.", "{}"]
SENTENCES_DE = ["{} ist hier.", "Ruf {} an!", "Kennst du {}?", "Ich habe {} dafür bezahlt.", "Siehe {}.", "{}"]
EMOJI = ["😀", "👍🏽", "❤️", "👨‍👩‍👧‍👦", "🇩🇪", "😂😂😂😂😂", ":-)", "🎉 🎉", "✅", "🤷‍♀️"]


def number(rng: random.Random) -> str:
    """Returns a number, a time, a date, a price or a telephone number."""
    kinds = [rng.randint(0, 9), rng.randint(10, 10**6), f"{rng.randint(1, 23)}:{rng.randint(10, 59)}",
             f"{rng.randint(1, 999)},{rng.randint(100, 999)}", f"{rng.randint(0, 99)}.{rng.randint(0, 99)}",
             f"{rng.randint(1, 28)}.{rng.randint(1, 12)}.20{rng.randint(10, 30)}", f"${rng.randint(2, 900)}",
             f"+49 30 {rng.randint(10**6, 10**8)}", f"{rng.randint(1, 99)}%", f"3x{rng.randint(2, 9)}"]  # fmt: skip
    return str(rng.choice(kinds))


def address(rng: random.Random) -> str:
    """Returns a web or mail address."""
    host = rng.choice(["example.com", "tatoeba.org", "my-shop.co.uk", "uni-münchen.de", "localhost:8080"])
    path = rng.choice(["", "/", "/a/b.html", "/q?x=1&y=2", "/index.php#top", "/~anna/2024-05-06"])
    mail = f"{rng.choice(['anna', 'j.smith', 'info+news'])}@{rng.choice(['example.com', 'mail.de'])}"
    return rng.choice([f"https://{host}{path}", f"http://{host}{path}", f"www.tatoeba.org{path}", mail])


def make_lines(words: list[str], templates: list[str]) -> list[str]:
    """Returns the lines; equal arguments give equal lines."""
    rng = random.Random(5)
    kinds = [
        lambda: rng.choice(words), lambda: rng.choice(words), lambda: rng.choice(NAMES), lambda: number(rng),
        lambda: address(rng), lambda: rng.choice(EMOJI), lambda: "", lambda: rng.choice(["...", "?", "-", " ", "a"]),
        lambda: rng.choice(templates).format(rng.choice([rng.choice(NAMES), number(rng), address(rng)])),
        lambda: f"{rng.choice(words)} {rng.choice(EMOJI)}",
    ]  # fmt: skip
    return [rng.choice(kinds)() for _ in range(LINES)]


def repeats(text: str) -> bool:
    """Whether a word or a group of words stands three times in a row."""
    words = text.split()
    return any(
        words[i : i + n] == words[i + n : i + 2 * n] == words[i + 2 * n : i + 3 * n]
        for n in range(1, 6) for i in range(len(words) - 3 * n + 1)
    )  # fmt: skip


def faults(line: str, text: str, translator: Translator) -> list[str]:
    """Returns what is wrong with a translation."""
    wrong: list[str] = []
    source, target = translator.tokenizers.source, translator.tokenizers.target
    if len(target.encode(text)) > 2 * len(source.encode(line)) + 3:
        wrong.append("too long")
    if repeats(text) and not repeats(line):
        wrong.append("repeats itself")
    if Counter(ADDRESS.findall(line)) != Counter(ADDRESS.findall(text)):
        wrong.append("changed an address")
    plain = ADDRESS.sub("", line), ADDRESS.sub("", text)
    if sorted("".join(DIGITS.findall(plain[0]))) != sorted("".join(DIGITS.findall(plain[1]))):
        wrong.append("changed a number")
    if bool(line.strip()) != bool(text.strip()):
        wrong.append("lost or invented")
    return wrong


def main() -> None:
    """Translates the lines and writes what went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--language", choices=["en", "de"], default="en", help="language of the source")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    test = (arguments.data / "tatoeba-en-de" / f"test.{arguments.language}").read_text(encoding="utf-8")
    words = sorted(set(re.findall(r"[^\W\d_]{2,}", test)))
    lines = make_lines(words, SENTENCES if arguments.language == "en" else SENTENCES_DE)
    translator = transformer.load(arguments.model)
    texts = translator.translate(lines)
    all_faults = [(line, text, faults(line, text, translator)) for line, text in zip(lines, texts, strict=True)]
    counts = Counter(fault for *_, of_line in all_faults for fault in of_line)
    for line, text, of_line in all_faults:
        if of_line:
            print(f"{', '.join(of_line)}: {line!r} -> {text!r}")
    print(dict(counts) or "no faults")
    if arguments.output:
        results = {"machine": machine(), "lines": len(lines), "faults": counts,
                   "examples": [entry for entry in all_faults if entry[2]]}  # fmt: skip
        arguments.output.write_text(json.dumps(results, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
