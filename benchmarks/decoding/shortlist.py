"""Speedup by a shortlist: base size, V 32,000, real sentences, compared with the whole vocabulary and with CTranslate2.

The weights of the model are random; its tokenizer and shortlist are learned from a corpus. Sources are the first 27
tokens of the long lines of a text, so that the lists of a batch overlap as they do for real text. Every engine
translates to exactly 32 tokens, with its best numbers of workers and threads. Tokens differ from those without the
shortlist. Lists of 16 tokens ("shortest") give an upper bound for any shortlist, since all other work takes the rest of
the time.

Usage: python benchmarks/decoding/shortlist.py --peers FOLDER --corpus SOURCE TARGET [--corpus ...] --text FILE
       [--out FILE]
"""

import argparse
import json
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from transformer.decoding import Shortlist
from transformer.decoding.shortlist_training import coverage, learn_shortlist, save_shortlist
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair
from transformer.tokenizers.special_tokens import EOS_ID

sys.path.insert(1, str(Path(__file__).parents[1] / "training"))
from report import command_line, hardware
from throughput import BASE, BATCHES, SOURCE_TOKENS, TARGET_TOKENS, Runner, base_weights, compare, read

ENGINES = ["shortlisted-int8", "ours-int8", "shortest-int8", "ctranslate2-int8"]
RIVALS = {"shortlisted-int8": ("ours-int8", "ctranslate2-int8"), "shortest-int8": ("ours-int8",)}
SHORTEST = 16
"""Size of a list whose products take almost no time; a beam of four compares eight tokens."""
ALONE = 32
"""Number of sentences that are translated one at a time."""


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, default=Path(".peers"), help="the folder that setup.sh made")
    parser.add_argument("--corpus", type=Path, nargs=2, action="append", required=True, metavar=("SOURCE", "TARGET"))
    parser.add_argument("--text", type=Path, required=True, help="whose lines are translated")
    parser.add_argument("--batches", default="1,64")
    parser.add_argument("--settings", default="1x1,1x2,2x1", help="workers x threads of each, with commas")
    parser.add_argument("--best", type=int, default=30)
    parser.add_argument("--frequent", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def cases_of(sources: list[list[int]], path: Path, batches: list[int]) -> list[dict[str, Any]]:
    """Same cases as in the fixed part of `throughput.py`, but with real sources."""
    most = max(BATCHES.values())
    path.write_text(json.dumps([sources[place % len(sources)] for place in range(most)]))
    return [
        {
            "name": f"beam {beam}, batch {batch}", "beam": beam, "batch": batch,
            "sentences": ALONE if batch == 1 else BATCHES[batch],
            "one_worker": batch == 1, "sources": str(path), "fixed": True, "limit": TARGET_TOKENS, "by_tokens": False,
        }
        for beam in (1, 4)
        for batch in batches
    ]  # fmt: skip


def main() -> None:
    """Learns, translates, prints the figures."""
    arguments = parse()
    torch.set_num_threads(2)
    sides = [[line for pair in arguments.corpus for line in read(pair[side])] for side in (0, 1)]
    settings = TokenizerConfig(vocab_size=BASE["vocabulary"], joint=True, min_frequency=1)
    tokenizers = TokenizerPair.train(lambda: sides[0], lambda: sides[1], settings)
    if tokenizers.source.vocab_size != BASE["vocabulary"]:
        raise SystemExit(f"the corpus gives {tokenizers.source.vocab_size} tokens; give a larger one")
    pairs = list(zip(*(tokenizers.source.encode_batch(side) for side in sides), strict=True))
    shortlist = learn_shortlist(
        [pair for pair in pairs if all(pair)], (BASE["vocabulary"],) * 2, best=arguments.best,
        frequent=arguments.frequent,
    )  # fmt: skip
    tokens = tokenizers.source.encode_batch(read(arguments.text))
    sources = [[*line[: SOURCE_TOKENS - 1], 2] for line in tokens if len(line) >= SOURCE_TOKENS - 1]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_shortlist(folder / "shortlist.safetensors", shortlist, tokenizers)
        sizes = base_weights(folder / "weights.safetensors")
        runner = Runner(folder, arguments.peers, folder / "weights.safetensors", sizes)
        none = torch.full_like(shortlist.by_token[:, :1], EOS_ID)
        shortest = Shortlist(torch.arange(EOS_ID, EOS_ID + SHORTEST), none, shortlist.vocab_size)
        save_shortlist(folder / "shortest.safetensors", shortest, tokenizers)
        names = {"shortlisted": "shortlist.safetensors", "shortest": "shortest.safetensors"}
        runner.order = {"lists": {engine: str(folder / name) for engine, name in names.items()}}
        batches = [int(size) for size in arguments.batches.split(",")]
        cases = cases_of(sources, folder / "sources.json", batches)
        outcome = compare(ENGINES, cases, runner, arguments.rounds, arguments.settings)
    for figures in outcome["points"].values():
        medians = {engine: figure["sentences_per_second"]["median"] for engine, figure in figures.items()}
        for engine, rivals in RIVALS.items():
            if engine in figures:
                figures[engine]["over"] = {
                    rival: medians[engine] / medians[rival] for rival in rivals if rival in medians
                }
    in_batch = {
        str(batch): sum(
            int(shortlist.mask(torch.tensor(sources[start : start + batch])).any(dim=0).sum())
            for start in range(0, 512, batch)
        ) / len(range(0, 512, batch))
        for batch in batches
    }  # fmt: skip
    result = {
        "command": command_line(),
        "hardware": hardware(torch.device("cpu")) | {"threads": 2},
        "versions": {"python": platform.python_version(), "torch": torch.__version__} | runner.versions,
        "corpus_pairs": len(pairs), "listed_tokens_of_a_sentence": coverage(shortlist, pairs[:1000])[1],
        "listed_tokens_of_a_batch": in_batch,
        "sweep_sentences_per_second": outcome["sweep_sentences_per_second"], "points": outcome["points"],
    }  # fmt: skip
    for point, figures in outcome["points"].items():
        for engine, figure in figures.items():
            print(f"{point}  {engine:<20}{figure['sentences_per_second']['median']:8.1f}/s  {figure.get('over', '')}")
    print(f"listed tokens of a batch: {in_batch}")
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
