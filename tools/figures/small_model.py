"""Trains the small model of the tutorial on forward and backward propagation: docs/tutorials/small-model.

It has one layer on each side and vectors of eight numbers, so that every number of a pass can be read on one page.
"""

import contextlib
import itertools
import shutil
import tempfile
from pathlib import Path

from transformer.run.recipe import parse_recipe
from transformer.run.train import train

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "tutorials" / "small-model"
NOUNS = {
    "man": "ein Mann", "woman": "eine Frau", "child": "ein Kind", "dog": "ein Hund", "cat": "eine Katze",
    "girl": "ein Mädchen", "boy": "ein Junge", "king": "ein König",
}  # fmt: skip
VERBS = {
    "sleeps": "schläft", "sings": "singt", "dances": "tanzt", "laughs": "lacht", "swims": "schwimmt",
    "runs": "läuft", "reads": "liest", "waits": "wartet",
}  # fmt: skip
ADVERBS = {"": "", "today": "heute", "here": "hier", "often": "oft", "alone": "allein"}
HELD_OUT = ("woman", "sleeps", "today")


def sentence(*words: str) -> str:
    """Joins words to a sentence with a capital letter and a full stop."""
    text = " ".join(filter(None, words))
    return f"{text[0].upper()}{text[1:]}."


def pairs() -> list[tuple[str, str]]:
    """Returns all sentences that the words make, but those of the held-out combination."""
    sentences: list[tuple[str, str]] = []
    for noun, verb, adverb in itertools.product(NOUNS, VERBS, ADVERBS):
        if (noun, verb, adverb) == HELD_OUT:
            continue
        german = (NOUNS[noun], VERBS[verb], ADVERBS[adverb])
        sentences.append((sentence("a", noun, verb, adverb), sentence(*german)))
        if adverb:  # in front; the German verb stays in second place
            sentences.append((sentence(adverb, "a", noun, verb), sentence(german[2], german[1], german[0])))
    return sentences


def main() -> None:
    """Trains the model and writes its folder."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        sentences = pairs()
        for side, file in enumerate(("corpus.en", "corpus.de")):
            Path(file).write_text("".join(f"{pair[side]}\n" for pair in sentences), encoding="utf-8")
        recipe = parse_recipe({
            "data": {"source": "corpus.en", "target": "corpus.de", "validation_pairs": 40},
            "tokenizer": {"vocab_size": 600},
            "model": {"family": "transformer", "d_model": 8, "N": 1, "h": 2, "d_ff": 16, "dropout": 0.0,
                      "src_seq_len": 16, "tgt_seq_len": 16, "norm_order": "post", "share_embeddings": "all"},
            "training": {"max_steps": 1000, "batch_tokens": 1024, "learning_rate": 0.01, "warmup_steps": 100,
                         "validate_every": 1000, "save_every": 1000, "patience": 0, "threads": 1,
                         "precision": "float32"},
        })  # fmt: skip
        result = train(recipe, Path("run"), quiet=True)
        print(result.progress.validations)
        shutil.rmtree(FOLDER, ignore_errors=True)
        shutil.copytree(result.model, FOLDER)


if __name__ == "__main__":
    main()
