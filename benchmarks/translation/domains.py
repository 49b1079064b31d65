"""Scores a bundled model on texts of several domains, translated greedily: BLEU and chrF.

The software texts are messages of packages that are held out; `models/build_corpora.py` writes them. Multi30k and the
news are never trained on.

    python benchmarks/translation/domains.py en-de --data ../shared/data --output results.json
"""

import argparse
import json
import warnings
from pathlib import Path

from sacrebleu import corpus_bleu, corpus_chrf

import transformer
from transformer.runtime.machine import machine

CORPORA = Path(__file__).parents[2] / "models" / "corpus"


def test_sets(data: Path) -> dict[str, Path]:
    """Returns the path of each test set, without the language at its end."""
    return {
        "Tatoeba": data / "tatoeba-en-de" / "test",
        "Multi30k test_2016_flickr": data / "multi30k" / "test_2016_flickr",
        "newstest2014": data / "wmt" / "newstest2014",
        "software": CORPORA / "software-test",
    }


def main() -> None:
    """Translates and scores each test set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="en-de, de-en, or the path of a model between these languages")
    parser.add_argument("--direction", choices=["en-de", "de-en"], help="direction of a model given by its path")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    source, target = (arguments.direction or arguments.model).split("-")
    translator = transformer.load(arguments.model)
    warnings.simplefilter("ignore")
    results = {}
    for name, path in test_sets(arguments.data).items():
        lines, references = (
            Path(f"{path}.{language}").read_text(encoding="utf-8").splitlines() for language in (source, target)
        )
        translations = translator.translate(lines)
        bleu, chrf = corpus_bleu(translations, [references]), corpus_chrf(translations, [references])
        results[name] = {"sentences": len(lines), "BLEU": round(bleu.score, 2), "chrF": round(chrf.score, 2)}
        print(f"{name:28}", results[name], flush=True)
    if arguments.output:
        facts = {"model": arguments.model, "machine": machine(), "scores": results}
        arguments.output.write_text(json.dumps(facts, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
