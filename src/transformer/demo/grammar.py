"""Trees of English sentences that a small grammar generates, as a treebank for the demo of parsing.

The grammar is written so that a sentence has exactly one tree: prepositions tell what they belong to, and recursion
goes one way. It has the labels of the Penn Treebank, among them particles, relative clauses, infinitives and
coordination. Names of symbols may go on after a slash, which the trees leave out.
"""

from random import Random
from typing import Final

RULES: Final = {
    "TOP": "5 S | 2 S/opened | 2 S/joined",
    "S": "1 NP VP .",
    "S/opened": "2 ADVP/first , NP VP . | 3 PP/first , NP VP .",
    "S/joined": "1 S/inner , CC/but S/inner .",
    "S/inner": "1 NP VP",
    "NP": "8 NP/base | 2 NP/of | 1 NP/who | 1 NP/and",
    "NP/of": "1 NP/base PP/of",
    "NP/who": "1 NP/base SBAR/who",
    "NP/and": "1 NP/base CC/and NP/base",
    "NP/base": "5 DT NN | 3 DT JJ NN | 1 DT JJ JJ NN | 3 NNP",
    "PP/of": "1 IN/of NP",
    "SBAR/who": "1 WHNP S/who",
    "WHNP": "1 WP",
    "S/who": "1 VP/short",
    "VP": "6 VP/plain | 2 VP/that | 2 VP/to | 1 VP/and",
    "VP/short": "2 VBZ/i | 3 VBZ/t NP/base",
    "VP/plain": "2 VBZ/i | 1 ADVP/often VBZ/i | 3 VBZ/t NP | 3 VBZ/t NP PP/with "
    "| 2 VBZ/i PP/with | 1 VBZ/d NP/base NP | 1 VBZ/p PRT | 2 VBZ/is ADJP",
    "VP/that": "1 VBZ/says SBAR/that",
    "SBAR/that": "1 IN/that S/inner",
    "VP/to": "1 VBZ/wants S/to",
    "S/to": "1 VP/marked",
    "VP/marked": "1 TO VP/bare",
    "VP/bare": "2 VB/t NP | 1 VB/t NP PP/with | 1 VB/i",
    "VP/and": "1 VP/plain CC/and VP/plain",
    "PP/with": "1 IN/with NP",
    "PP/first": "1 IN/with NP/base",
    "ADVP/first": "1 RB/today",
    "ADVP/often": "1 RB/often",
    "ADJP": "2 JJ | 1 RB/very JJ",
    "PRT": "1 RP",
}
"""The alternatives of each symbol: weight, then parts."""
WORDS: Final = {
    "DT": "the a this every",
    "NN": "cat dog child teacher doctor farmer baker neighbour writer singer house garden tree river bridge letter "
    "book picture song window door table chair boat train horse apple cake lamp coat",
    "JJ": "old young small tall red green quiet happy tired clever heavy bright broken famous wooden strange",
    "NNP": "Anna Ben Clara David Emma Felix Greta Henry Ida Jonas",
    "WP": "who",
    "VBZ/i": "sleeps waits laughs sings arrives works smiles dances",
    "VBZ/t": "sees finds paints carries buys likes draws watches repairs opens",
    "VBZ/d": "gives sends shows lends",
    "VBZ/p": "wakes gets stands sits",
    "VBZ/is": "is seems looks",
    "VBZ/says": "says thinks knows hopes",
    "VBZ/wants": "wants tries hopes",
    "VB/t": "see find paint carry buy like draw watch repair open",
    "VB/i": "sleep wait laugh sing arrive work smile dance",
    "TO": "to",
    "IN/of": "of",
    "IN/with": "with near behind without during",
    "IN/that": "that",
    "CC/and": "and",
    "CC/but": "but",
    "RB/today": "today often suddenly later",
    "RB/often": "often rarely always",
    "RB/very": "very quite too",
    "RP": "up down",
    ",": ",",
    ".": ".",
}
MAX_WORDS: Final = 25


def treebank(sizes: dict[str, int], seed: int = 1) -> dict[str, list[str]]:
    """Returns bracketed trees by the name of their part; no sentence occurs twice.

    Args:
        sizes: Number of trees of each part.
        seed: Seed of the random numbers.
    """
    random = Random(seed)
    known: set[str] = set()
    parts: dict[str, list[str]] = {name: [] for name in sizes}
    for name, size in sizes.items():
        while len(parts[name]) < size:
            words: list[str] = []
            tree = _derive("TOP", random, words)
            sentence = " ".join(words)
            if len(words) <= MAX_WORDS and sentence not in known:
                known.add(sentence)
                parts[name].append(tree)
    return parts


def _derive(symbol: str, random: Random, words: list[str]) -> str:
    """Returns a random tree of a symbol, and adds its words to those of the sentence."""
    label = symbol.partition("/")[0]
    if symbol in WORDS:
        words.append(random.choice(WORDS[symbol].split()))
        return f"({label} {words[-1]})"
    alternatives, weights = GRAMMAR[symbol]
    (parts,) = random.choices(alternatives, weights)
    children = " ".join(_derive(part, random, words) for part in parts)
    return children if is_alias(label, parts) else f"({label} {children})"


def is_alias(label: str, parts: list[str]) -> bool:
    """Whether an alternative only chooses among the symbols of one label, such as `NP/base` for `NP`."""
    return [part.partition("/")[0] for part in parts] == [label]


def _alternatives(rule: str) -> tuple[list[list[str]], list[int]]:
    """Returns the parts and the weights of the alternatives of a rule."""
    split = [alternative.split() for alternative in rule.split("|")]
    return [parts for _, *parts in split], [int(weight) for weight, *_ in split]


GRAMMAR: Final = {symbol: _alternatives(rule) for symbol, rule in RULES.items()}
"""Alternatives and weights of each symbol of `RULES`."""
