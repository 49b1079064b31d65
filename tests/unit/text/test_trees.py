"""Bracketed trees and their lines of symbols, compared with nltk's reading of the same trees."""

from pathlib import Path

import pytest
from nltk.tree import Tree

from transformer.demo.grammar import treebank
from transformer.errors import DataError
from transformer.text.trees import bracketed, constituents, is_treebank, read_trees

PENN = """
( (S
    (NP-SBJ-1 (DT The) (NN cat))
    (VP (VBD was)
      (VP (VBN seen) (NP (-NONE- *-1)) (PP=2 (IN by) (NP-LGS (NNP Anna)))))
    (. .)) )
(TOP (INTJ (UH Yes) (. !)))
"""


def test_treebank_files_become_words_and_symbols() -> None:
    """Catches functions, indices, traces or roots that stay, and trees of several lines that are cut."""
    first, second = read_trees(PENN.splitlines(), "x")
    assert first == ("The cat was seen by Anna .", "(S (NP XX XX )NP (VP XX (VP XX (PP XX (NP XX )NP )PP )VP )VP . )S")
    assert second == ("Yes !", "(INTJ XX . )INTJ")


def test_reading_agrees_with_nltk_and_can_be_reversed() -> None:
    """Catches lost words, other constituents than nltk's, and brackets that EVALB could not read."""
    for line in treebank({"test": 50})["test"]:
        ((words, symbols),) = read_trees([line], "x")
        tree = Tree.fromstring(line)[0]
        assert words.split() == tree.leaves()
        spans = [
            (node.label(), start, start + len(node.leaves()))
            for node, start in _nodes(tree, 0)
            if node.height() > 2  # not a tag above its word
        ]
        closed, n_words = constituents(symbols) or ([], 0)
        assert sorted(closed) == sorted(spans)
        assert n_words == len(tree.leaves())
        again = bracketed(words, symbols)
        assert again is not None
        assert list(read_trees([again], "x")) == [(words, symbols)]


def _nodes(tree: Tree, start: int) -> list[tuple[Tree, int]]:
    """Returns the nodes of a tree with their first words."""
    nodes = [(tree, start)]
    for child in tree:
        if isinstance(child, Tree):
            nodes += _nodes(child, start)
            start += len(child.leaves())
        else:
            start += 1
    return nodes


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ("(S (NP (NN cat))", "the last tree lacks closing brackets: 1"),
        ("(S (NN cat)))", r"line 1: \) cannot stand here"),
        ("(S)", r"line 1: \) cannot stand here"),
        ("(NN cat dog)", "line 1: dog cannot stand here"),
        ("(NP (NN cat) dog)", "line 1: dog cannot stand here"),
        ("cat", "line 1: cat cannot stand here"),
    ],
)
def test_what_is_no_tree_is_refused(tree: str, message: str) -> None:
    """Catches a damaged treebank that is trained on."""
    with pytest.raises(DataError, match=f"x: {message}"):
        list(read_trees([tree], "x"))


def test_symbols_that_are_no_tree_have_no_constituents() -> None:
    """Catches an output of a model that is scored although its brackets do not match."""
    assert constituents("(S (NP XX )NP )S") == ([("NP", 0, 1), ("S", 0, 1)], 1)
    for symbols in ("(S XX", "XX )S", "(S (NP XX )S )NP"):
        assert constituents(symbols) is None
    assert bracketed("a b", "(S XX )S") is None


def test_treebanks_are_known_by_their_names() -> None:
    """Catches compressed treebanks that are read as text, and texts read as trees."""
    assert all(is_treebank(Path(name)) for name in ("a.trees", "wsj_0001.mrg", "b.trees.gz"))
    assert not is_treebank(Path("trees.en"))
