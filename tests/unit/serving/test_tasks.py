"""The work of the server's workers, beside the same pipelines called directly."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from serving_engines import write_random_model
from transformer.decoding import Sampling, Search
from transformer.pipelines.auto import load
from transformer.pipelines.classification import TextEncoder
from transformer.pipelines.text_generation import Generator
from transformer.pipelines.translation.scoring import score_pairs
from transformer.pipelines.translation.translator import Translator
from transformer.serving.engine.stop_sequences import StopSequences, cut_at_stop
from transformer.serving.engine.tasks import run_task, stream_task
from transformer.serving.errors import ServiceError
from transformer.serving.interfaces import Item, Task
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair, train_tokenizer
from transformer.transformer import build_transformer

SIZES: dict[str, dict[str, Any]] = {"gpt": {"seq_len": 32}, "bert": {"labels": ("cold", "hot", "warm")}}
LINES = ["one two three", "seven", "", "nine nine"]


def make_model(name: str, folder: Path) -> Any:
    """Loads a random model with peaked distributions."""
    return load(write_random_model(name, folder, **SIZES[name]), precision="float32")


@pytest.fixture(scope="module")
def generator(tmp_path_factory: pytest.TempPathFactory) -> Generator:
    return make_model("gpt", tmp_path_factory.mktemp("models") / "gpt")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> TextEncoder:
    return make_model("bert", tmp_path_factory.mktemp("models") / "bert")


@pytest.fixture(scope="module")
def translator(tiny_run: Path) -> Translator:
    return load(tiny_run, workers=1, precision="float32")


@pytest.fixture(scope="module")
def several_languages() -> Translator:
    """Returns the translator of a random model of three languages."""
    lines = ["one two three", "Zwei Hunde."]
    tokenizers = TokenizerPair.joint(train_tokenizer(lines * 3, TokenizerConfig(vocab_size=270)))
    tokenizers = tokenizers.with_tags(["de", "en", "fr"])
    torch.manual_seed(1)
    size = tokenizers.source.vocab_size
    model = build_transformer(size, size, 32, 32, d_model=16, N=1, h=2, d_ff=16)
    return Translator(model, tokenizers, directions=(("en", "de"), ("de", "en"), ("en", "fr")), workers=1)


def run(pipeline: Any, task: Task, texts: list[str], **options: Any) -> list[dict[str, Any]]:
    """Runs a task, and checks that its results survive JSON."""
    results = run_task(pipeline, task, [Item(text) for text in texts], options)
    assert json.loads(json.dumps(results, allow_nan=False)) == results
    return results


def refused(pipeline: Any, task: Task, text: str = "a", **options: Any) -> tuple[str, str | None]:
    """Returns code and field of the error with which options are refused."""
    with pytest.raises(ServiceError) as caught:
        run_task(pipeline, task, [Item(text)], options)
    return caught.value.code, caught.value.param


def test_translations_are_those_of_the_translator(translator: Translator) -> None:
    """Catches lost options, mixed-up lines, and scores or alternatives that belong to other translations."""
    expected = translator.translations(LINES, search=Search(beam=3, n_best=2))
    results = run(translator, "translate", LINES, beam=3, n_best=2, alignment=True)
    assert [result["text"] for result in results] == [one.text for one in expected]
    for result, one in zip(results, expected, strict=True):
        assert [other["text"] for other in result["alternatives"]] == [other.text for other in one.alternatives]
        assert result["score"] == pytest.approx(one.score, abs=1e-4)
        assert result["flags"] == list(one.flags)
        assert result["target_tokens"] == sum(len(tokens) for tokens in one.alternatives[0].tokens)
    n_source, n_target = len(LINES[0].split()), len(results[0]["text"].split())
    assert results[0]["alignment"]
    assert all(0 <= source < n_source and 0 <= target < n_target for source, target in results[0]["alignment"])
    assert results[2]["alignment"] == []
    assert run(translator, "translate", LINES[:1])[0]["alignment"] is None


def test_results_are_reported_before_a_second_search(translator: Translator) -> None:
    """Catches results that are reported for another line, and an answer that lacks or changes them."""
    lines, ready = ["one two three", "one 512", "seven"], dict[int, Any]()  # the model changes the number
    results = run_task(translator, "translate", [Item(line) for line in lines], {}, ready.update)
    assert results == run(translator, "translate", lines)
    assert ready == {0: results[0], 2: results[2]}


def test_terms_of_a_glossary_are_required(translator: Translator) -> None:
    """Catches a glossary or banned phrases that are dropped."""
    (result,) = run(translator, "translate", ["seven"], glossary=[["seven", "two two"]])
    assert "two two" in result["text"]
    best = run(translator, "translate", ["seven"])[0]["text"]
    assert best not in run(translator, "translate", ["seven"], banned=[best])[0]["text"].split()


def test_a_required_beginning_begins_a_translation(translator: Translator) -> None:
    """Catches prefixes that are dropped, or given to another line."""
    items = [Item("one two"), Item("one two", prefix="nine")]
    free, begun = run_task(translator, "translate", items, {})
    assert begun["text"].startswith("nine")
    assert not free["text"].startswith("nine")


def test_a_seed_decides_alone_about_a_sample(translator: Translator, generator: Generator) -> None:
    """Catches samples that depend on the other texts of a batch."""
    options = {"temperature": 2.0, "seed": 7}
    alone = run(translator, "translate", [LINES[1]], **options)[0]
    assert run(translator, "translate", LINES, **options)[1]["text"] == alone["text"]
    sampled = run(generator, "generate", ["abc"], max_tokens=12, **options)[0]
    assert run(generator, "generate", ["a", "abc", "h"], max_tokens=12, **options)[1] == sampled
    expected = Generator(generator.model, generator.tokenizer, search=Search(sampling=Sampling(2.0, seed=7)))
    assert sampled["alternatives"][0]["text"] == expected("abc", max_tokens=12)
    others = {run(generator, "generate", ["abc"], max_tokens=12, temperature=2.0)[0]["alternatives"][0]["text"]
              for _ in range(5)}  # fmt: skip
    assert len(others) > 1


def test_continuations_are_those_of_the_generator(generator: Generator) -> None:
    """Catches a continuation with the prompt in it, wrong counts of tokens, and limits beyond the positions."""
    prompts = ["abc", "", "hgf" * 9]
    results = run(generator, "generate", prompts, max_tokens=10)
    for prompt, result in zip(prompts, results, strict=True):
        n_prompt = len(generator.encode_prompt(prompt))
        limit = min(10, generator.model.seq_len - n_prompt + 1)
        ((expected,),) = generator.generate([prompt], max_tokens=limit)
        (one,) = result["alternatives"]
        assert (one["text"], one["tokens"], one["finished"]) == (expected.text, len(expected.tokens), expected.finished)
        assert one["score"] == pytest.approx(expected.score, abs=1e-4)
        assert result["prompt_tokens"] == n_prompt
    whole = run(generator, "generate", ["abc"])[0]
    assert whole["alternatives"][0]["tokens"] <= generator.model.seq_len - 2
    several = run(generator, "generate", ["abc"], max_tokens=5, n_best=3, temperature=1.5)[0]["alternatives"]
    assert len(several) == 3


def test_streams_have_the_text_of_the_whole(generator: Generator) -> None:
    """Catches lost or repeated text in streams, wrong counts, and an end that says the wrong reason."""
    options = {"max_tokens": 12, "temperature": 2.0, "seed": 3}
    (whole,) = run(generator, "generate", ["abc"], **options)
    *parts, last = stream_task(generator, Item("abc"), options)
    (one,) = whole["alternatives"]
    assert "".join(part["text"] for part in parts) == one["text"]
    assert sum(part["tokens"] for part in parts) == last["tokens"] == one["tokens"]
    assert (last["finished"], last["prompt_tokens"]) == (one["finished"], whole["prompt_tokens"])


def test_a_stop_text_ends_a_continuation(generator: Generator) -> None:
    """Catches a stop text that is shown, found too late, or found only within a token."""
    sampled = {"max_tokens": 20, "temperature": 3.0, "seed": 5}
    text = run(generator, "generate", ["abc"], **sampled)[0]["alternatives"][0]["text"]
    stop = text[6:9]
    expected = text[: text.index(stop)]
    for options in (sampled | {"stop": [stop]}, sampled | {"stop": ["not there", stop]}):
        (one,) = run(generator, "generate", ["abc"], **options)[0]["alternatives"]
        assert (one["text"], one["finished"]) == (expected, True)
        assert one["tokens"] == text.index(stop) + len(stop)
        *parts, last = stream_task(generator, Item("abc"), options)
        assert "".join(part["text"] for part in parts) == expected
        assert last["finished"]
    several = run(generator, "generate", ["abc"], n_best=2, stop=[stop], **sampled)[0]["alternatives"]
    assert all(stop not in one["text"] for one in several)


@pytest.mark.parametrize("stops", [["cd"], ["abcd", "bc"], ["ddd", "dd"], ["x"], ["abcabcabd"]])
def test_stop_texts_do_not_depend_on_pieces(stops: list[str]) -> None:
    """Catches a stop text across pieces that is missed, or text that is shown although it begins one."""
    text = "abcabcabdddcd"
    expected = cut_at_stop(text, stops)
    for size in range(1, len(text)):
        cutter, shown = StopSequences(stops), ""
        for start in range(0, len(text), size):
            shown += cutter.add(text[start : start + size])
            if cutter.found:
                break
        assert (shown + cutter.rest(), cutter.found) == expected
    first_end = min((text.find(stop) + len(stop) for stop in stops if stop in text), default=None)
    assert expected[1] is (first_end is not None)
    if first_end is not None:
        assert any(expected[0] + stop == text[:first_end] for stop in stops)


def test_encoders_give_vectors_labels_and_words(encoder: TextEncoder) -> None:
    """Catches vectors, labels or guesses in another order than the texts, and numbers that JSON cannot write."""
    texts = ["abc", "h", "fed cba"]
    vectors = run(encoder, "embed", texts, dimensions=encoder.config.d_model)
    for result, expected in zip(vectors, encoder.embed(texts).tolist(), strict=True):
        assert result["vector"] == pytest.approx(expected, abs=1e-6)
        assert math.hypot(*result["vector"]) == pytest.approx(1, abs=1e-5)
    n_special = sum(map(len, encoder.tokenizer.boundary_tokens))
    assert [result["tokens"] - n_special for result in vectors] == [len(text) for text in texts]
    labelled = run(encoder, "classify", texts, top=2)
    for result, expected in zip(labelled, encoder.classify(texts), strict=True):
        assert [one["label"] for one in result["labels"]] == sorted(
            expected.probabilities, key=lambda name: -expected.probabilities[name]
        )[:2]
        assert result["labels"][0]["probability"] == pytest.approx(expected.probability, abs=1e-6)
    filled = run(encoder, "fill", ["a[MASK]c[MASK]"], top=3)[0]["masks"]
    expected = encoder.fill("a[MASK]c[MASK]", 3)
    assert [[guess["text"] for guess in mask] for mask in filled] == [[guess.text for guess in m] for m in expected]


def test_texts_that_are_too_long_are_refused_or_truncated(encoder: TextEncoder) -> None:
    """Catches a vector or label of the beginning of a text that passes for that of the whole."""
    limit = encoder.config.max_text_tokens
    n_special = sum(map(len, encoder.tokenizer.boundary_tokens))
    fits, long = "a" * (limit - n_special), "a" * (limit - n_special + 1)
    for task in ("embed", "classify"):
        first, refusal, last = run(encoder, task, [fits, long, "b"])
        assert (first["tokens"], last["tokens"]) == (limit, n_special + 1)
        assert refusal["error"]["param"] == "input"
        assert f"maximum context length is {limit} tokens, and the text has {limit + 1}" in refusal["error"]["message"]
        assert run(encoder, task, [long], truncate=True) == run(encoder, task, [fits])
        assert "error" in run(encoder, task, [long])[0]


def test_scores_are_those_of_the_pairs(translator: Translator) -> None:
    """Catches scores of other pairs, and NaN for a translation that is too long."""
    pairs = [("one two", "one two"), ("one", "nine " * 1000), ("seven", "seven")]
    results = run_task(translator, "score", [Item(source, second=target) for source, target in pairs], {})
    json.dumps(results, allow_nan=False)
    for index in (0, 2):
        expected = score_pairs(translator, [pairs[index]])[0]
        assert results[index]["score"] == pytest.approx(expected.score, abs=1e-4)
        assert results[index]["per_token"] == pytest.approx(expected.per_token, abs=1e-4)
    assert results[1]["error"]["code"] == "invalid_request"


def test_scores_are_those_of_the_target_language(several_languages: Translator) -> None:
    """Catches scores of a source without the tag of the request, or with that of the request before."""
    item = Item("one two", second="two one")
    scores = {}
    for tag in ("de", "fr", "de"):
        (result,) = run_task(several_languages, "score", [item], {"target_language": tag})
        expected = score_pairs(several_languages, [("one two", "two one")], target_language=tag)[0].score
        assert result["score"] == pytest.approx(expected, abs=1e-4)
        scores[tag] = result["score"]
    assert scores["de"] != scores["fr"]
    for options in ({}, {"target_language": "es"}):
        assert refused(several_languages, "score", **options) == ("invalid_request", "target_language")


def test_one_bad_text_fails_alone(generator: Generator, encoder: TextEncoder) -> None:
    """Catches a batch in which the texts of others fail too."""
    good, bad = run(generator, "generate", ["abc", "a" * 100], max_tokens=3)
    assert good == run(generator, "generate", ["abc"], max_tokens=3)[0]
    assert bad["error"]["code"] == "invalid_request"
    assert "100 tokens" in bad["error"]["message"]
    without, with_mask = run(encoder, "fill", ["abc", "a[MASK]"])
    assert "no [MASK]" in without["error"]["message"]
    assert with_mask["masks"]


def test_a_fault_tells_no_text(
    encoder: TextEncoder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Catches an unforeseen error whose message, with a client's text in it, is logged or sent."""

    def fail(texts: object) -> None:
        raise RuntimeError(texts)

    monkeypatch.setattr(encoder, "embed", fail)
    (result,) = run(encoder, "embed", ["very secret"])
    assert result["error"]["code"] == "internal"
    assert "secret" not in f"{result}{caplog.text}"
    assert "in fail" in caplog.text


def test_surrogates_are_replaced(translator: Translator, generator: Generator, encoder: TextEncoder) -> None:
    """Catches half a character, which JSON can express, that makes a tokenizer fail."""
    for pipeline, task in ((translator, "translate"), (generator, "generate"), (encoder, "embed")):
        (result,) = run(pipeline, task, ["a\ud800b"])
        assert "error" not in result
    assert run(translator, "translate", ["one"], banned=["\udfff"])[0]["text"]
    assert list(stream_task(generator, Item("\udfff"), {"max_tokens": 2, "stop": ["\ud800"]}))[-1]["tokens"] <= 2


def test_wrong_options_are_named(translator: Translator, generator: Generator, encoder: TextEncoder) -> None:
    """Catches a wrong option that fails as an internal error, is ignored, or is not named."""
    wrong: list[tuple[Any, Task, str, Any]] = [
        (translator, "translate", "beam", 0), (translator, "translate", "beam", "4"),
        (translator, "translate", "beam", True), (translator, "translate", "length_penalty", math.nan),
        (translator, "translate", "glossary", [["a"]]), (translator, "translate", "protected", ["names"]),
        (translator, "translate", "banned", "a"), (translator, "translate", "alignment", 1),
        (translator, "translate", "max_tokens", 3), (translator, "translate", "seed", 2**64),
        (generator, "generate", "top_p", 1.5), (generator, "generate", "stop", [""]),
        (generator, "generate", "max_tokens", 0), (generator, "generate", "temperature", -1),
        (encoder, "embed", "normalize", False), (encoder, "embed", "dimensions", 2),
        (encoder, "fill", "truncate", True), (encoder, "classify", "top", 0), (encoder, "fill", "top", 1.5),
    ]  # fmt: skip
    for pipeline, task, name, value in wrong:
        given = {"temperature": 1.0, name: value} if name == "top_p" else {name: value}
        assert refused(pipeline, task, **given) == ("invalid_request", name), (name, value)
    assert refused(translator, "translate", beam=2, n_best=3) == ("invalid_request", "n_best")
    assert refused(translator, "translate", glossary=[["", "a"]])[0] == "invalid_request"
    assert refused(translator, "generate") == refused(generator, "embed") == ("invalid_request", "model")
    for pipeline, options in ((encoder, {}), (generator, {"n_best": 2}), (generator, {"max_tokens": -1})):
        with pytest.raises(ServiceError):
            list(stream_task(pipeline, Item("a"), options))
