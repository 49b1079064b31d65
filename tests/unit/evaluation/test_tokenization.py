"""Scores of text without spaces between words, against sacrebleu called directly and values worked out by hand."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.ter import TER

from commands import run as run_command
from samples import write_lines
from transformer.errors import ConfigError
from transformer.evaluation.breakdown import by_length, most_different_lines
from transformer.evaluation.comparison import EvaluationSet, System, evaluate
from transformer.evaluation.scores import compare_scores, corpus_scores, sentence_scores
from transformer.evaluation.tokenization import fitting_tokenization, ter_note, tokenization_note

CHINESE = ["他今天在学校买一台电脑。", "我每天在商店想要一张票。", "老师想要三只猫。"]
CHINESE_OUTPUT = ["他今天在学校买两台电脑。", "我每天在商店想要一张票", "老师想要三只狗。"]
JAPANESE = ["女性は手紙を読んでいます。", "東京へ行きました。"]
TEXTS = {
    "th": ["ผู้หญิงอ่านจดหมายที่บ้านเก่า"], "km": ["ស្ត្រីអានសំបុត្រ"], "lo": ["ແມ່ຍິງອ່ານຈົດໝາຍ"],
    "my": ["အမျိုးသမီးသည် စာဖတ်နေသည်"], "bo": ["བུད་མེད་ཀྱིས་ཡི་གེ་ཀློག་གི་ཡོད།"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "language", "expected"),
    [
        (CHINESE, None, "zh"), (CHINESE, "zh-TW", "zh"), (JAPANESE, None, "char"), (JAPANESE, "ja", "char"),
        *((text, None, "char") for text in TEXTS.values()), *((text, tag, "char") for tag, text in TEXTS.items()),
        (["The cat sat.", "Она спит.", "그는 잔다.", "هو ينام", "वह सोता है"], None, "13a"),
        (["그는 잔다."], "ko", "13a"),
        (["東京都庁"], "ja", "char"), (["東京都庁"], None, "zh"), (["He said 你好."], "en", "13a"),
        (["Wo xihuan ni"], "zh-Latn", "13a"), (["Hello."], "zh", "13a"), (["The cat sat"], "th", "13a"),
        (CHINESE, "en", "zh"), (TEXTS["th"], "zh", "char"),
        (["123", ""], "ja", "char"), (["123", ""], None, "13a"), ([], None, "13a"),
        (["安装 Docker Desktop for Windows 后重启"], None, "zh"),
    ],
)  # fmt: skip
def test_the_tokenization_follows_language_and_script(lines: list[str], language: str | None, expected: str) -> None:
    """Catches a script that is overlooked, Japanese taken for Chinese, and a wrong language that overrules the text."""
    assert fitting_tokenization(lines, language) == expected


@pytest.mark.parametrize(
    ("references", "outputs", "tokenization"), [(CHINESE, CHINESE_OUTPUT, "zh"), (JAPANESE, JAPANESE[::-1], "char")]
)
def test_scores_equal_those_of_sacrebleu(references: list[str], outputs: list[str], tokenization: str) -> None:
    """Catches a tokenization that is not handed on, TER without its Asian support, and a test with another metric."""
    bleu, ter = BLEU(tokenize=tokenization, force=True), TER(normalized=True, asian_support=True)
    expected = [bleu.corpus_score(outputs, [references]).score, ter.corpus_score(outputs, [references]).score]
    for scores in (
        corpus_scores(outputs, references, metrics=("BLEU", "TER")),
        compare_scores([outputs, references], references, metrics=("BLEU", "TER"), samples=20)[0],
    ):
        assert [score.value for score in scores] == pytest.approx(expected)
        assert f"tok:{tokenization}|" in scores[0].signature
        assert "norm:yes|punct:yes|asian:yes" in scores[1].signature
    assert [score.value for score in corpus_scores(references, references)] == pytest.approx([100, 100])


def test_bleu_and_ter_of_characters_by_hand() -> None:
    """Catches n-grams of other units: one of nine characters differs, so TER is 1/9.

    Of 他今天买两台电脑。 against 他今天买一台电脑。, unigrams match 8/9, bigrams 6/8, trigrams 4/7, 4-grams 2/6.
    """
    scores = corpus_scores(["他今天买两台电脑。"], ["他今天买一台电脑。"], metrics=("BLEU", "TER"))
    assert scores[0].value == pytest.approx(100 * math.exp(sum(map(math.log, (8 / 9, 6 / 8, 4 / 7, 2 / 6))) / 4))
    assert scores[1].value == pytest.approx(100 / 9)


@pytest.mark.parametrize(
    ("tokenization", "lines", "words"),
    [
        ("13a", CHINESE, "finds no words in Chinese text, which has no spaces; zh fits it"),
        ("intl", JAPANESE, "finds no words in Japanese text, which has no spaces; char fits it"),
        ("none", TEXTS["th"], "finds no words in Thai text"), ("zh", TEXTS["km"], "does not split Khmer text"),
        ("zh", JAPANESE, "does not split Japanese text"), ("ja-mecab", CHINESE, "is for Japanese; zh fits Chinese"),
        ("char", ["The cat sat."], "is for text without spaces between words; 13a fits this one"),
        ("zh", CHINESE, None), ("char", CHINESE, None), ("char", TEXTS["th"], None), ("ja-mecab", JAPANESE, None),
        ("13a", ["The cat sat."], None), ("intl", ["Он спит."], None), ("none", ["the cat sat ."], None),
        ("none", ["他 今天 在 学校 买 一 台 电脑 。"], None), ("13a", [], None),
    ],
)  # fmt: skip
def test_a_tokenization_that_does_not_fit_is_noted(tokenization: Any, lines: list[str], words: str | None) -> None:
    """Catches a score of whole lines without a word, and a note on text that was split into words by others."""
    note = tokenization_note(tokenization, lines)
    assert note is None if words is None else (note is not None and words in note and "\n" not in note)
    assert tokenization_note("ja-mecab", ["123"], "ja") is None


def test_ter_of_scripts_that_it_does_not_split_is_noted() -> None:
    """Catches a TER of whole Thai lines that looks like one of words, and a note where TER splits."""
    assert "does not split Thai text" in (ter_note(TEXTS["th"]) or "")
    assert ter_note(CHINESE) is ter_note(["a b c"]) is ter_note(["ผู้หญิง อ่าน จดหมาย"]) is None
    result = evaluate([System("a", TEXTS["th"])], EvaluationSet(None, [TEXTS["th"]]), metrics=("TER",), samples=0)
    assert result.notes == (ter_note(TEXTS["th"]),)


def test_blank_references_are_counted_and_right_blanks_are_not_bad() -> None:
    """Catches chrF 0 of an empty line that is rightly empty, which then is the worst line."""
    references, outputs = ["the cat", "", " ", "a dog"], ["the cat", "", "noise", ""]
    assert sentence_scores(["", " ", "", "x"], ["", "", "x", ""]) == [100, 100, 0, 0]
    result = evaluate([System("a", outputs)], EvaluationSet(None, [references]), samples=0)
    assert (result.blank_references, result.empty) == (2, (1,))
    assert [line.number for line in result.lines] == [3, 4, 1]
    two = evaluate([System("a", outputs)], EvaluationSet(None, [references, ["x", "y", "z", ""]]), samples=0)
    assert (two.blank_references, two.empty) == (3, (0,))
    assert [line.number for line in most_different_lines([["", "b"], ["x", "b"]], [["", "b"]], 2)] == [1]


def test_the_language_of_the_test_set_decides_where_the_text_does_not() -> None:
    """Catches an evaluation that drops the language, and breakdowns by another tokenization than the score's."""
    kanji = EvaluationSet(None, [["東京都庁"]], target_language="ja")
    result = evaluate([System("a", ["東京都庁"])], kanji, samples=0)
    assert (result.tokenization, result.as_json()["tokenization"]) == ("char", "char")
    assert "tok:char" in result.scores[0][0].signature
    buckets = by_length(["我" * 12, "我" * 3], [CHINESE[:2]], [CHINESE[:2]])
    assert [(bucket.name, bucket.lines, bucket.bleu[0]) for bucket in buckets] == [
        ("1-10", 1, pytest.approx(100)), ("11-20", 1, pytest.approx(100)),
    ]  # fmt: skip


def test_mecab_is_used_on_request_or_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a traceback, or a library's own words, where the packages of a tokenization are missing."""
    import sacrebleu.tokenizers.tokenizer_ja_mecab as module

    monkeypatch.setattr(module, "MeCab", None)
    with pytest.raises(ConfigError, match=r"the packages mecab-python3 and ipadic; pip install 'sacrebleu\[ja\]'"):
        corpus_scores(JAPANESE, JAPANESE, "ja-mecab")


@pytest.mark.slow
def test_the_command_chooses_or_warns(tmp_path: Path) -> None:
    """Catches BLEU 0.00 of identical files without a word, and a forced tokenization that is not noted."""
    reference = write_lines(tmp_path / "ref", [*CHINESE, ""])
    output = write_lines(tmp_path / "out\u202e", [*CHINESE_OUTPUT[:2], "老师\x9b31m\u202e。", ""])
    same = run_command("evaluate", "--translations", reference, "--reference", reference, "--bootstrap", 0)
    assert same.stdout.startswith("BLEU   100.00   nrefs:1|case:mixed|eff:no|tok:zh|")
    assert (same.stderr, "1 line with a blank reference" in same.stdout) == ("", True)
    call = ("evaluate", "--translations", output, "--reference", reference, "--bootstrap", 0)
    forced = run_command(*call, "--tokenize", "13a", "--json")
    assert forced.stderr.startswith("note: BLEU tokenized by 13a finds no words in Chinese text")
    assert forced.stderr.count("\n") == 1
    assert json.loads(forced.stdout)["tokenization"] == "13a"
    details = run_command(*call, "--details").stdout
    assert r"老师\x9b31m\u202e。" in details
    assert "\u202e" not in details
    wrong = run_command(*call, "--target-language", "jp")
    assert (wrong.returncode, "--target-language='jp' is not a language tag" in wrong.stderr) == (2, True)
    assert "tok:char" in run_command(*call, "--target-language", "ja").stdout


def test_standard_error_cannot_command_the_terminal() -> None:
    """Catches a message that quotes a C1 control or a direction mark as it is; colours of progress bars stay."""
    code = "from transformer.cli.streams import open_streams; import sys; open_streams(); print(TEXT, file=sys.stderr)"
    text = "a\x9b31m\u202eb \x1b[1mé\u00a0"
    call = [sys.executable, "-c", f"TEXT = {text!r}; {code}"]
    result = subprocess.run(call, capture_output=True, check=True)
    assert result.stderr.decode() == "a\\x9b31m\\u202eb \x1b[1mé\u00a0\n"
