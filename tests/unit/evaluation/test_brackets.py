"""F1 of labelled brackets by EVALB's rules, by hand and compared with the constituents that nltk finds."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from nltk.tree import Tree

from samples import write_lines
from transformer.data.readers import read_pairs, read_side
from transformer.demo.grammar import treebank
from transformer.evaluation.scores import TREE_METRICS, compare_scores, corpus_scores, parse_metrics
from transformer.text.trees import read_trees

GOLD = "(S (NP XX )NP (VP XX (NP XX XX )NP )VP . )S"
CASES = {
    GOLD: (4, 4),
    "(S (NP XX )NP (VP XX (PP XX XX )PP )VP . )S": (3, 4),
    "(S (NP XX XX )NP (NP XX XX )NP . )S": (2, 3),
    "(S XX XX XX XX . )S": (1, 1),
    "(S (NP XX )NP (VP XX (NP (NP XX XX )NP )NP )VP . )S": (4, 5),
    "(TOP (S (NP XX )NP (VP XX (NP XX XX )NP )VP . )S )TOP": (4, 4),
    "(S (NP XX )NP (VP XX (NP XX XX )NP . )VP )S": (4, 4),
    "(S (NP XX )NP , (VP XX (NP XX XX )NP )VP )S": (4, 4),
    "(S (NP XX )NP (VP XX (NP XX XX )NP )VP (FRAG . )FRAG )S": (4, 4),
    "(S (NP XX )NP (VP XX (NP XX )NP )VP . )S": (0, 0),
    "(S (NP XX )NP (VP XX (NP XX XX )NP )VP .": (0, 0),
    "": (0, 0),
}
"""Parses of the sentence of `GOLD`, with the number of brackets that are right and that count, of 4 in `GOLD`."""


@pytest.mark.parametrize("parse", CASES)
def test_brackets_by_hand(parse: str) -> None:
    """Catches punctuation, the root or empty constituents that count, and malformed trees that score."""
    right, n_parsed = CASES[parse]
    brackets, complete = corpus_scores([parse], [GOLD], metrics=TREE_METRICS)
    assert brackets.value == pytest.approx(200 * right / (n_parsed + 4))
    assert complete.value == (100 if right == n_parsed == 4 else 0)
    assert "evalb:COLLINS" in brackets.signature


def test_particles_and_adverbs_are_the_same_label() -> None:
    """Catches a missing `EQ_LABEL ADVP PRT`."""
    gold, parse = "(VP XX (PRT XX )PRT )VP", "(VP XX (ADVP XX )ADVP )VP"
    assert [score.value for score in corpus_scores([parse], [gold], metrics=TREE_METRICS)] == [100, 100]


def test_f1_is_of_the_whole_test_set_and_agrees_with_nltk() -> None:
    """Catches a mean over sentences, and constituents that match more or less often than they occur."""
    random = Random(1)
    gold = [_spoiled(tree, random) for tree in treebank({"test": 60})["test"]]
    parses = [_spoiled(tree, random) for tree in gold]
    right = n_parsed = expected = 0
    for tree, parse in zip(gold, parses, strict=True):
        wanted, had = Counter(_spans(Tree.fromstring(tree))), Counter(_spans(Tree.fromstring(parse)))
        right, n_parsed, expected = right + (wanted & had).total(), n_parsed + had.total(), expected + wanted.total()
    symbols = [[line for _, line in read_trees(trees, "x")] for trees in (parses, gold)]
    (score,) = corpus_scores(symbols[0], symbols[1], metrics=("brackets",))
    assert 0 < right < n_parsed
    assert n_parsed != expected
    assert score.value == pytest.approx(100 * 2 * right / (n_parsed + expected))


def _spoiled(line: str, random: Random) -> str:
    """Renames some constituents of a tree, and doubles others."""
    tree = Tree.fromstring(line)
    for node in [*tree[0].subtrees(lambda node: node.height() > 2)]:
        if random.random() < 0.2:
            node.set_label(random.choice(["NP", "VP", "PP"]))
        if random.random() < 0.2:
            node[:] = [Tree(node.label(), [*node])]
    return tree.pformat(margin=10**6)


def _spans(tree: Tree) -> Iterator[tuple[str, int, int]]:
    """Yields the labels of the constituents of a tree with their first and last words, punctuation left out."""
    tags = [tag for _, tag in tree.pos()]
    words = [place for place, tag in zip(tree.treepositions("leaves"), tags, strict=True) if tag not in {",", "."}]
    for place in tree.treepositions():
        node: Any = tree[place]
        inside = [number for number, word in enumerate(words) if word[: len(place)] == place]
        if isinstance(node, Tree) and node.height() > 2 and node.label() != "TOP" and inside:
            yield "ADVP" if node.label() == "PRT" else node.label(), inside[0], inside[-1]


def test_parsers_are_compared_like_other_systems() -> None:
    """Catches tree metrics without intervals or p-values, and tree metrics among those of texts."""
    worse = GOLD.replace("VP", "PP")
    first, second = compare_scores([[GOLD] * 9, [worse] * 9], [GOLD] * 9, metrics=TREE_METRICS, samples=50)
    assert [score.value for score in first] == [100, 100]
    assert second[0].value == pytest.approx(75)
    assert second[0].p_value is not None
    assert parse_metrics("Brackets,complete") == ("brackets", "complete")
    assert not set(TREE_METRICS) & set(parse_metrics("all"))


def test_a_file_of_trees_is_source_and_target(tmp_path: Path) -> None:
    """Catches trees that are translated, or scored, as lines of brackets."""
    path = write_lines(tmp_path / "a.trees", ["(S (NP (NN dogs))", "(VP (VBP bark)))"])
    pair = ("dogs bark", "(S (NP XX )NP (VP XX )VP )S")
    assert list(read_pairs(path, path)) == [pair]
    assert (read_side(path, 0), read_side(path, 1)) == ([pair[0]], [pair[1]])
