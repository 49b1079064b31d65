"""What the encoder's heads of a translation model attend to, counted over sentences: Figures 3 to 5 of the paper.

There are three studies. Each counts shares of attention, for every head, and names a sentence that is typical: of those
that fit a picture, the one whose share is nearest to the median.

- `neighbours` (Figure 5): the mean share of a word's attention that goes to the previous token, to itself, to the next
  token, to the end of the sentence (the last punctuation mark and the end-of-sentence token), and farther than five
  tokens away. These shares have the same meaning for every sentence, so that a head that looks typical in one picture
  can be told from a head that does the same everywhere.
- `particles` (Figure 3), of German: the share of a separable verb's attention that goes to its particle at the end of
  the sentence, at least four words away. To compare: a word between the two, and the last word of sentences of the same
  form without a particle.
- `pronouns` (Figure 4), of English: the shares of the attention of a pronoun that go to Tom and to Mary, both named
  before it. Each sentence is read in four versions, with both pronouns and with the names exchanged, so that neither
  the order nor the distance of the names matters.

The rows of the tables in `docs/explanation/interpretability.md` are printed at the end.

Where a head is named because it has the largest share, it is chosen on one half of the sentences and measured on the
other.

Usage: python benchmarks/translation/heads.py STUDY MODEL --source FILE --out FILE
"""

import argparse
import json
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from transformer.blocks import MultiHeadAttention, padding_mask
from transformer.bundle import Bundle
from transformer.pipelines.auto import read_model
from transformer.runtime.machine import machine
from transformer.tokenizers.special_tokens import EOS_ID

Facts = dict[str, Any]

FAR: Final = 5
TARGETS: Final = ("previous", "itself", "next", "end", "far")
SHORTEST: Final = 8
"""Fewest tokens of a sentence of `neighbours`, without the end-of-sentence token."""
LONGEST_PICTURE: Final = 12
"""Most tokens of a sentence that is shown."""

SUBJECTS: Final = {"Ich", "Du", "Er", "Sie", "Es", "Wir", "Ihr", "Tom", "Maria"}
PARTICLES: Final = {
    "ab", "an", "auf", "aus", "bei", "durch", "ein", "fest", "heim", "her", "heraus", "herein", "hin", "hinaus", "los",
    "mit", "nach", "statt", "teil", "um", "vor", "vorbei", "weg", "weiter", "wieder", "zu", "zurück", "zusammen",
}  # fmt: skip
AUXILIARIES: Final = {
    "bin", "bist", "darf", "durfte", "dürfen", "habe", "haben", "habt", "hast", "hat", "hatte", "hatten", "ist", "kann",
    "konnte", "können", "könnte", "mag", "muss", "musste", "möchte", "müssen", "seid", "sei", "sind", "soll", "sollen",
    "sollte", "war", "waren", "warst", "wart", "werde", "werden", "will", "wird", "wollen", "wollte", "wurde", "wurden",
    "wäre", "würde",
}  # fmt: skip
"""Second words of sentences whose last word, if it is like a particle, belongs to no separable verb."""
BETWEEN: Final = 3
"""Fewest words between a verb and its particle."""

PRONOUNS: Final = {"he": "Tom", "his": "Tom", "him": "Tom", "she": "Mary", "her": "Mary"}
"""The name that a pronoun stands for."""
OTHERS: Final = {"he": "she", "she": "he", "his": "her", "him": "her", "Tom": "Mary", "Mary": "Tom"}
"""Exchanged words; her has two counterparts and is not exchanged."""


class Measured(NamedTuple):
    """Shares of attention in a sentence, each of the shape (layers, heads)."""

    sentence: str
    shares: dict[str, Tensor]


def main() -> None:
    """Counts and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("model", type=Path)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # which is fastest for one sentence at a time
    lines = arguments.source.read_text(encoding="utf-8").splitlines()
    facts = {
        "command": shlex.join(["python", *sys.argv]),
        "machine": machine(),
        **STUDIES[arguments.study](read_model(arguments.model, None), lines),
    }
    arguments.out.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(json.dumps({key: value for key, value in facts.items() if key != "heads"}, indent=1, ensure_ascii=False))
    print("\n".join(table_rows(facts)))


def neighbours(bundle: Bundle, lines: Sequence[str]) -> Facts:
    """Returns the shares of attention that go to near and far tokens, and the layer whose heads differ most."""
    sentences = [line for line in lines if line[-1:] in ".?!"]
    measured = list(islice(filter(None, (neighbour_shares(bundle, line) for line in sentences)), 200))
    counts = (len(encode(bundle, one.sentence)) for one in measured)
    even = torch.stack([shares_of(torch.full((1, 1, count, count), 1 / count)) for count in counts])
    previous, far = mean_of(measured, "previous"), mean_of(measured, "far")
    layer, head = place_of(previous)
    heads = {"previous": (layer, head), "far": (layer, int(far[layer].argmax()))}
    return {
        **size_of(bundle, measured),
        "meaning": f"mean share of a token's attention; far: more than {FAR} tokens away, without the end",
        "even attention": dict(zip(TARGETS, rounded(even.mean(dim=0).flatten()), strict=True)),
        "typical": typical(bundle, measured, heads),
        "heads": head_facts(measured, has_spread=True),
    }


def neighbour_shares(bundle: Bundle, line: str) -> Measured | None:
    """Returns the mean shares of the attention of the words of a sentence; None if it is short."""
    ids = encode(bundle, line)
    if len(ids) <= SHORTEST:
        return None
    shares = shares_of(token_attention(bundle.model, ids))
    return Measured(line, {name: shares[..., index] for index, name in enumerate(TARGETS)})


def particles(bundle: Bundle, lines: Sequence[str]) -> Facts:
    """Returns the shares of attention of German verbs that go to their particles at the end of the sentence."""
    separated = list(islice((line for line in lines if is_separated(line, PARTICLES)), 400))
    ends = list(islice((line for line in lines if is_separated(line, None)), 200))
    measured = [particle_shares(bundle, line) for line in separated]
    chosen, counted = measured[::2], measured[1::2]
    layer, head = place_of(mean_of(chosen, "particle"))
    last = torch.stack([particle_shares(bundle, line).shares["particle"] for line in ends])
    return {
        **size_of(bundle, counted),
        "meaning": "mean share of a verb's attention; between: of one word between verb and particle",
        "last word of other sentences": rounded(last.mean(dim=0)[layer, head]),
        "typical": typical(bundle, counted, {"particle": (layer, head)}),
        "heads": head_facts(counted),
    }


def is_separated(line: str, last: set[str] | None) -> bool:
    """Whether a sentence has a subject, a verb, `BETWEEN` words or more, and one of the last words, or any other."""
    if not re.fullmatch(r"[^\d,;:?!.'\"„“–-]+\.", line):
        return False
    subject, verb, *between, final = line[:-1].split() if line.count(" ") > BETWEEN else ("", "", "")
    is_last = final in last if last else final not in PARTICLES
    return subject in SUBJECTS and verb.islower() and verb not in AUXILIARIES and len(between) >= BETWEEN and is_last


def particle_shares(bundle: Bundle, line: str) -> Measured:
    """Returns the shares of the attention of the second word that go to the last one, and to one between."""
    _, weights = word_attention(bundle, line)
    final = len(line.split()) - 1
    return Measured(line, {"particle": weights[..., 1, final], "between": weights[..., 1, 2:final].mean(dim=-1)})


def pronouns(bundle: Bundle, lines: Sequence[str]) -> Facts:
    """Returns the shares of attention of English pronouns that go to the name they stand for and to another name."""
    measured = list(islice((pronoun_shares(bundle, line) for line in lines if has_pronoun(line)), 400))
    chosen, counted = measured[::2], measured[1::2]
    names = place_of(mean_of(chosen, "names"))
    gender = place_of(mean_of(chosen, "antecedent") - mean_of(chosen, "other name"))
    return {
        **size_of(bundle, counted),
        "meaning": "mean share of a pronoun's attention, over four versions of each sentence; names: of both together",
        "by gender": {"layer": gender[0] + 1, "head": gender[1] + 1},
        "typical": typical(bundle, counted, {"names": names}),
        "heads": head_facts(counted),
    }


def has_pronoun(line: str) -> bool:
    """Whether a sentence has Tom and Mary once each, and then a pronoun that can be exchanged."""
    words = re.findall(r"[\w']+", line)
    pronouns = [index for index, word in enumerate(words) if word.lower() in {*PRONOUNS, "hers", "himself", "herself"}]
    return (
        line[-1:] in ".?!"
        and words.count("Tom") == words.count("Mary") == len(pronouns) == 1
        and words[pronouns[0]] in OTHERS
        and pronouns[0] > max(words.index("Tom"), words.index("Mary"))
    )


def pronoun_shares(bundle: Bundle, line: str) -> Measured:
    """Returns the mean shares of a pronoun's attention that go to both names, over the four versions of a sentence."""
    shares: list[Tensor] = []
    for names in (False, True):
        for pronoun in (False, True):
            version = exchanged(exchanged(line, "Tom|Mary", names), "he|she|his|him", pronoun)
            words, weights = word_attention(bundle, version)
            place = next(index for index, word in enumerate(words) if word in PRONOUNS)
            name = PRONOUNS[words[place]]
            places = words.index(name), words.index(OTHERS[name])
            shares.append(torch.stack([weights[..., place, one] for one in (*places, min(places))]))
    antecedent, other, first = torch.stack(shares).mean(dim=0)
    return Measured(
        line, {"antecedent": antecedent, "other name": other, "names": antecedent + other, "first name": first}
    )


def exchanged(line: str, words: str, is_exchanged: bool) -> str:
    """Returns a sentence with words exchanged for their counterparts, or as it is."""
    return re.sub(rf"\b({words})\b", lambda match: OTHERS[match[0]], line) if is_exchanged else line


STUDIES: Final[dict[str, Callable[[Bundle, Sequence[str]], Facts]]] = {
    "neighbours": neighbours, "particles": particles, "pronouns": pronouns,
}  # fmt: skip


def table_rows(facts: Facts) -> list[str]:
    """Returns rows for the page: for each kind of share, the head with the largest one, and all shares of that head."""
    kinds = [kind for kind in facts["heads"][0] if kind not in ("layer", "head", "standard deviation")]
    largest = {kind: max(facts["heads"], key=lambda one: one[kind]) for kind in kinds}
    rows = [
        f"| {one['layer']}, {one['head']} | "
        + " | ".join(f"**{one[other]:.2f}**" if other == kind else f"{one[other]:.2f}" for other in kinds)
        + " |"
        for kind, one in largest.items()
    ]
    even = facts.get("even attention", {})
    shares = " | ".join(f"{even[kind]:.2f}" for kind in kinds if even)
    return [
        f"| layer, head | {' | '.join(kinds)} |",
        *rows,
        *([f"| the same weight for all | {shares} |"] if even else []),
    ]


def typical(bundle: Bundle, measured: Sequence[Measured], heads: dict[str, tuple[int, int]]) -> Facts:
    """Returns the distribution of the shares of the named heads, and the sentence that is nearest to their medians.

    Its words are one token each, so that the picture has a row and a column for each word.
    """
    values = {name: torch.stack([one.shares[name][place] for one in measured]) for name, place in heads.items()}
    distances = sum(((value - value.median()).abs() for value in values.values()), torch.zeros(len(measured)))
    fits = torch.tensor([fits_picture(bundle, one.sentence) for one in measured])
    nearest = int(distances.masked_fill(~fits, torch.inf).argmin())
    return {
        "sentence": measured[nearest].sentence,
        "shares": {
            name: {
                "layer": layer + 1,
                "head": head + 1,
                "of the sentence": rounded(values[name][nearest]),
                "quartiles": rounded(values[name].quantile(torch.tensor([0.25, 0.5, 0.75]))),
            }
            for name, (layer, head) in heads.items()
        },
    }


def size_of(bundle: Bundle, measured: Sequence[Measured]) -> Facts:
    """Returns the numbers of sentences and of tokens."""
    return {"sentences": len(measured), "tokens": sum(len(encode(bundle, one.sentence)) for one in measured)}


def fits_picture(bundle: Bundle, line: str) -> bool:
    """Whether a sentence is short, and each of its words one token."""
    tokens = encode(bundle, line)
    return len(tokens) <= LONGEST_PICTURE and len(tokens) == len(re.findall(r"[\w']+|[.?!]", line)) + 1


def head_facts(measured: Sequence[Measured], *, has_spread: bool = False) -> list[Facts]:
    """Returns the mean shares of every head, and their standard deviations if those are wanted."""
    shares = {name: torch.stack([one.shares[name] for one in measured]) for name in measured[0].shares}
    layers, heads = next(iter(shares.values())).shape[1:]
    return [
        {
            "layer": layer + 1,
            "head": head + 1,
            **{name: rounded(values[:, layer, head].mean()) for name, values in shares.items()},
            **(
                {"standard deviation": {name: rounded(values[:, layer, head].std()) for name, values in shares.items()}}
                if has_spread
                else {}
            ),
        }
        for layer in range(layers)
        for head in range(heads)
    ]


def mean_of(measured: Sequence[Measured], name: str) -> Tensor:
    """Returns the mean share of every head: (layers, heads)."""
    return torch.stack([one.shares[name] for one in measured]).mean(dim=0)


def place_of(shares: Tensor) -> tuple[int, int]:
    """Returns layer and head of the largest share, counted from 0."""
    layer, head = divmod(int(shares.argmax()), shares.size(1))
    return layer, head


def rounded(values: Tensor) -> Any:
    """Returns numbers with three decimals."""
    return torch.round(values.double(), decimals=3).tolist()


def encode(bundle: Bundle, line: str) -> list[int]:
    """Returns the tokens of a sentence as the encoder reads them."""
    return [*bundle.tokenizers.source.encode(line), EOS_ID]


def word_attention(bundle: Bundle, line: str) -> tuple[list[str], Tensor]:
    """Returns the words of a sentence, and their attention in every head: (layers, heads, words, words).

    Punctuation marks and the end-of-sentence token are words of their own. The attention between two words is the sum
    over the tokens of the one that is attended to, and the mean over those of the one that attends.
    """
    ids = encode(bundle, line)
    pieces = bundle.tokenizers.source.pieces(ids)
    words: list[str] = []
    word_of: list[int] = []
    for piece in pieces:
        is_inside = bool(words) and re.match(r"\w", piece) is not None and re.search(r"[\w']$", words[-1]) is not None
        if is_inside:
            words[-1] += piece
        else:
            words.append(piece.removeprefix("▁"))
        word_of.append(len(words) - 1)
    member = torch.eye(len(words))[word_of]  # token, word
    weights = token_attention(bundle.model, ids) @ member
    return words, (member / member.sum(dim=0)).T @ weights


@torch.no_grad()
def token_attention(model: nn.Module, ids: list[int]) -> Tensor:
    """Returns the weights of every head of the encoder: (layers, heads, tokens, tokens)."""
    src = torch.tensor([ids])
    weights: list[Tensor] = []

    def record(block: MultiHeadAttention, inputs: tuple[Tensor, ...]) -> None:
        query, key, _, mask, *_ = inputs
        weights.append(block.attention_weights(query, key, mask)[0])

    hooks = [layer.self_attention_block.register_forward_pre_hook(record) for layer in model.eval().encoder.layers]
    model.encode(src, padding_mask(src))
    for hook in hooks:
        hook.remove()
    return torch.stack(weights)


def shares_of(weights: Tensor) -> Tensor:
    """Returns the mean shares of attention weights of the shape (layers, heads, tokens, tokens)."""
    tokens = weights.size(-1)
    words = tokens - 2  # without the last punctuation mark and the end token
    offsets = torch.arange(tokens) - torch.arange(tokens)[:, None]
    inside = (torch.arange(tokens) < words).expand(tokens, -1)
    targets = (offsets == -1, offsets == 0, offsets == 1, ~inside, (offsets.abs() > FAR) & inside)
    masks = torch.stack(targets)[:, :words].float()
    return torch.einsum("lhts,nts->lhn", weights[:, :, :words], masks) / words


if __name__ == "__main__":
    main()
