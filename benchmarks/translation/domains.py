"""Scores a bundled model on texts of several domains, translated greedily: BLEU with its 95 % interval, and chrF.

The software texts are messages of packages that are held out; `models/build_corpora.py` writes them. Multi30k and the
news are never trained on. Tatoeba is translated with a beam of 4, too.

    python benchmarks/translation/domains.py en-de --data ../shared/data --output results.json
"""

import argparse
import json
import warnings
from pathlib import Path

import transformer
from transformer.evaluation.scores import corpus_scores
from transformer.runtime.machine import machine

CORPORA = Path(__file__).parents[2] / "models" / "corpus"
SAMPLES = 1000
"""Bootstrap samples of the intervals."""


def test_sets(data: Path) -> dict[str, tuple[Path, int]]:
    """Returns the path of each test set, without the language at its end, and the beam it is translated with."""
    tatoeba = data / "tatoeba-en-de" / "test"
    return {
        "Tatoeba": (tatoeba, 1),
        "Tatoeba, beam of 4": (tatoeba, 4),
        "Multi30k test_2016_flickr": (data / "multi30k" / "test_2016_flickr", 1),
        "newstest2014": (data / "wmt" / "newstest2014", 1),
        "software": (CORPORA / "software-test", 1),
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
    results, signatures = {}, {}
    for name, (path, beam) in test_sets(arguments.data).items():
        lines, references = (
            Path(f"{path}.{language}").read_text(encoding="utf-8").splitlines() for language in (source, target)
        )
        bleu, chrf = corpus_scores(translator.translate(lines, beam=beam), references, samples=SAMPLES)
        signatures = {score.name: score.signature for score in (bleu, chrf)}
        results[name] = {
            "sentences": len(lines),
            "BLEU": round(bleu.value, 2),
            "interval": round(bleu.interval or 0, 2),
            "chrF": round(chrf.value, 2),
        }
        print(f"{name:28}", results[name], flush=True)
    if arguments.output:
        facts = {"model": arguments.model, "machine": machine(), "signatures": signatures, "scores": results}
        arguments.output.write_text(json.dumps(facts, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
