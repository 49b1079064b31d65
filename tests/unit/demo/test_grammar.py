"""The grammar of the demo of parsing: nltk's parser finds exactly one tree of each sentence, the one generated."""

from nltk.grammar import CFG
from nltk.parse import ChartParser
from nltk.tree import Tree

from transformer.demo.grammar import GRAMMAR, MAX_WORDS, WORDS, is_alias, treebank
from transformer.text.trees import read_trees


def nltk_grammar() -> CFG:
    """Returns the grammar in nltk's notation, where slashes stand for categories of features."""
    rules = [(symbol, parts) for symbol, (alternatives, _) in GRAMMAR.items() for parts in alternatives]
    lines = [f"{_name(symbol)} -> {' '.join(map(_name, parts))}" for symbol, parts in rules]
    lines += [f"{_name(tag)} -> {' | '.join(repr(word) for word in words.split())}" for tag, words in WORDS.items()]
    return CFG.fromstring(lines)


def _name(symbol: str) -> str:
    return symbol.replace(",", "COMMA").replace(".", "STOP").replace("/", "-")


def _labels(tree: Tree) -> str:
    """Returns a tree of `nltk_grammar` with the labels of the treebank."""
    names = {_name(symbol): symbol.partition("/")[0] for symbol in (*GRAMMAR, *WORDS)}
    if isinstance(tree[0], str):
        return f"({names[tree.label()]} {tree[0]})"
    children = " ".join(_labels(child) for child in tree)
    label = names[tree.label()]
    return children if is_alias(label, [names[child.label()] for child in tree]) else f"({label} {children})"


def test_each_sentence_has_one_tree() -> None:
    """Catches an ambiguous rule, which no parser can learn, and a tree that is not of the grammar."""
    parser = ChartParser(nltk_grammar())
    for line in treebank({"test": 40}, seed=3)["test"]:
        words = Tree.fromstring(line).leaves()
        assert [_labels(tree) for tree in parser.parse(words)] == [line]


def test_treebanks_are_repeatable_and_disjoint() -> None:
    """Catches test sentences that were trained on, and another treebank for the same seed."""
    sizes = {"train": 300, "test": 100}
    parts = treebank(sizes)
    assert parts == treebank(sizes)
    assert parts != treebank(sizes, seed=2)
    sentences = [words for trees in parts.values() for words, _ in read_trees(trees, "x")]
    assert len(set(sentences)) == len(sentences) == 400
    assert max(len(sentence.split()) for sentence in sentences) <= MAX_WORDS
    assert parts["test"][-1].startswith("(TOP (S (NP (NP (DT the) (NN writer)) (PP (IN of) (NP (NNP Ben))))")
