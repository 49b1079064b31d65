"""`transformer.ray.Translate` on batches, without a cluster; `tests/interop/test_ray_cluster.py` has one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import transformer
from transformer.errors import ConfigError, DataError
from transformer.options.search import Sampling
from transformer.pipelines.translation.translator import Translator
from transformer.ray import Translate

TEXTS = ["one two", "", "three", "one two three four", "five"]


@pytest.fixture(scope="module")
def translate(tiny_run: Path) -> Translate:
    return Translate(tiny_run)


@pytest.fixture(scope="module")
def expected(tiny_run: Path) -> list[str]:
    """The translations that a translator has for each of `TEXTS` alone."""
    translator = transformer.load(tiny_run, workers=1)
    return [translator(text) for text in TEXTS]


class Frame(dict[str, Any]):
    """What is used of a `pandas.DataFrame`, which the tests do without."""

    def assign(self, **columns: Any) -> "Frame":
        """Returns a frame with further columns."""
        return Frame({**self, **columns})


@pytest.mark.parametrize(
    ("batch_of", "read"),
    [
        (lambda texts: {"id": np.arange(5), "text": np.array(texts, object)}, list),
        (lambda texts: {"id": np.arange(5), "text": np.array(texts)}, list),
        (lambda texts: pa.table({"id": range(5), "text": texts}), pa.ChunkedArray.to_pylist),
        (
            lambda texts: pa.table({"id": range(5), "text": pa.array(texts).dictionary_encode()}),
            pa.ChunkedArray.to_pylist,
        ),
        (lambda texts: Frame(id=range(5), text=texts), list),
    ],
    ids=["objects", "fixed-width", "arrow", "dictionary", "frame"],
)
def test_a_batch_comes_back_with_its_translations(
    translate: Translate, expected: list[str], batch_of: Callable[[list[str]], Any], read: Callable[[Any], list[Any]]
) -> None:
    """Catches a format that is not read, a lost column, another order, and a batch in another format."""
    batch = batch_of(TEXTS)
    result = translate(batch)
    assert type(result) is type(batch)
    assert list(getattr(result, "column_names", result)) == ["id", "text", "translation", "confidence", "error"]
    assert read(result["id"]) == [0, 1, 2, 3, 4]
    assert read(result["text"]) == TEXTS
    assert read(result["translation"]) == expected
    assert read(result["error"]) == [None] * 5


def test_columns_are_named_by_arguments(tiny_run: Path, expected: list[str]) -> None:
    """Catches an argument that is not used, and options that do not reach the translator."""
    names: Any = {"text_column": "t", "translation_column": "u", "confidence_column": "v", "error_column": "w"}
    result = Translate(tiny_run, **names, search=transformer.Search(max_tokens=2))({"t": np.array(TEXTS)})
    assert [*result] == ["t", "u", "v", "w"]
    cut = transformer.load(tiny_run, workers=1, search=transformer.Search(max_tokens=2))
    assert result["u"].tolist() == [result.text for result in cut.translations(TEXTS)]
    assert result["u"].tolist() != expected


BAD = {
    "the text is missing": [None, float("nan"), np.float64("nan")],
    "the text is not UTF-8": ["one \ud800", b"one"],
    "the text is a value of type": [7, np.int64(7), ["one"], 1.5],
}


@pytest.mark.parametrize(("reason", "value"), [(reason, value) for reason, values in BAD.items() for value in values])
def test_what_is_no_text_is_set_apart(translate: Translate, expected: list[str], reason: str, value: object) -> None:
    """Catches a row that ends the job, one that takes the translation of its neighbour, and a number read as text."""
    texts = np.empty(3, object)
    texts[:] = [TEXTS[0], value, TEXTS[2]]
    result = translate({"text": texts})
    assert result["translation"].tolist() == [expected[0], None, expected[2]]
    assert np.isnan(result["confidence"][1])
    assert result["error"][1].startswith(reason)
    assert [result["error"][0], result["error"][2]] == [None, None]


def test_bytes_in_a_column_of_texts_are_set_apart(translate: Translate, expected: list[str]) -> None:
    """Catches an Arrow column whose invalid UTF-8 ends the job; types must not depend on the values."""
    offsets, data = pa.py_buffer(np.array([0, 7, 9], np.int32)), pa.py_buffer(b"one two\xff\xfe")
    column = pa.Array.from_buffers(pa.string(), 2, [None, offsets, data])
    result = translate(pa.table({"text": column}))
    assert result["translation"].to_pylist() == [expected[0], None]
    assert result["error"].to_pylist() == [None, "the text is not UTF-8"]
    nothing = translate(pa.table({"text": pa.array([None, None], pa.string())}))
    assert nothing.schema.types[1:] == translate(pa.table({"text": ["one"]})).schema.types[1:]
    assert translate(pa.table({"text": pa.array([], pa.string())})).num_rows == 0


def test_a_text_of_several_lines_has_as_many(translate: Translate, expected: list[str]) -> None:
    """Catches lines that are translated as one, and results that move to the next row."""
    result = translate({"text": np.array([f"{TEXTS[0]}\n\n{TEXTS[2]}", TEXTS[4]])})
    assert result["translation"].tolist() == [f"{expected[0]}\n\n{expected[2]}", expected[4]]


def test_the_confidence_is_that_of_the_translator(
    translate: Translate, tiny_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a confidence of another row, and one of several lines that is not the lowest."""
    by_line = {"one": 0.5, "two": 0.25, "three": None}

    def finish(self: Translator, pending: Any, done: object = None) -> list[Any]:
        return [type("Result", (), {"text": line, "confidence": by_line[line]})() for line in pending.lines]

    monkeypatch.setattr(Translator, "finish", finish)
    result = translate(pa.table({"text": ["one", "one\ntwo\nthree", "three", None]}))
    assert result["confidence"].to_pylist() == [0.5, 0.25, None, None]


@pytest.mark.parametrize("error", [DataError("bad\nword"), ValueError("bad word")])
def test_a_text_that_is_refused_is_found(
    translate: Translate, expected: list[str], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Catches one text that takes all others of its batch with it, or ends the job."""
    begin = Translator.begin

    def begin_or_refuse(self: Translator, lines: list[str], *arguments: Any) -> Any:
        if "poison" in lines:
            raise error
        return begin(self, lines, *arguments)

    monkeypatch.setattr(Translator, "begin", begin_or_refuse)
    result = translate({"text": np.array([*TEXTS[:3], "poison", *TEXTS[3:]])})
    assert result["translation"].tolist() == [*expected[:3], None, *expected[3:]]
    assert result["error"].tolist() == [None] * 3 + ["the text cannot be translated: bad word"] + [None] * 2


@pytest.mark.parametrize("error", [MemoryError(), ConfigError("two settings")])
def test_what_is_not_the_fault_of_a_text_ends_the_batch(
    translate: Translate, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Catches a job that goes on without memory, or with wrong settings, and writes nothing but reasons."""

    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(Translator, "begin", fail)
    with pytest.raises(type(error)):
        translate({"text": np.array(["one"])})


def test_wrong_columns_are_named(translate: Translate, tiny_run: Path) -> None:
    """Catches a KeyError, and a column of the user that is overwritten."""
    with pytest.raises(DataError, match=r"no column 'text'; choose another text_column from id, words"):
        translate({"id": np.arange(2), "words": np.array(["one", "two"])})
    with pytest.raises(DataError, match="there is a column 'error' already"):
        translate(pa.table({"text": ["one"], "error": [None]}))
    with pytest.raises(ConfigError, match="two columns have one name"):
        Translate(tiny_run, translation_column="text")


def test_samples_are_refused(tiny_run: Path) -> None:
    """Catches samples that depend on how Ray makes batches."""
    search = transformer.Search(sampling=Sampling(seed=1))
    with pytest.raises(ConfigError, match="samples depend on the number of each line"):
        Translate(tiny_run, search=search)
