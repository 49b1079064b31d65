"""Choice of models, detection, and joining of the results of units."""

import asyncio
import sys
from collections.abc import Sequence
from subprocess import run
from typing import Any

import pytest

from serving_app import TEST_SECONDS, fake_services
from serving_fakes import MODELS, FakeEngine
from transformer.serving.errors import ServiceError
from transformer.serving.interfaces import Job, ModelInfo
from transformer.serving.pairs import LanguagePairs, Step
from transformer.serving.settings import Limits
from transformer.serving.translation import ZERO_SHOT, TranslatedText, TranslateOptions


def translate(
    texts: Sequence[str], source: str = "en", target: str = "de", engine: FakeEngine | None = None, **options: Any
) -> list[TranslatedText]:
    service = fake_services(engine, limits=Limits(characters=100_000)).translation
    work = service.translate(
        texts, source, target, TranslateOptions(**options), client="a client", deadline=sys.float_info.max
    )
    return asyncio.run(asyncio.wait_for(work, TEST_SECONDS))


def test_first_model_of_a_pair() -> None:
    """Catches a later model for the same languages that replaces the first."""
    second = ModelInfo("second", "encoder-decoder", "en", "de")
    unknown = ModelInfo("unknown", "encoder-decoder")
    engine = FakeEngine((*MODELS, second, unknown))
    assert translate(["a"], engine=engine)[0].models == ("en-de",)
    assert translate(["a"], engine=engine, model="second")[0].models == ("second",)
    assert translate(["a"], "fi", "ja", engine=engine, model="unknown")[0].models == ("unknown",)


def test_same_language_needs_no_model() -> None:
    """Catches a text in the target language that is changed, and a variant of it for which a model is missed."""
    for source, target in (("de", "de"), ("de-AT", "de"), ("ja", "ja")):
        assert translate(["Ein  Hund\n"], source, target)[0].text == "Ein  Hund\n"


def test_model_between_variants_of_a_language() -> None:
    """Catches a model that translates one variant of a language to another and is never used."""
    engine = FakeEngine((ModelInfo("simple", "encoder-decoder", "en", "en-simple"),))
    assert translate(["a dog"], "en", "en-simple", engine)[0].text == "A DOG"


def test_a_full_queue_refuses_before_texts_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches refusals that take as long as splitting all their texts, for which all other clients wait."""
    split: list[str] = []
    monkeypatch.setattr("transformer.serving.translation._template", lambda text, *_: split.append(text))
    with pytest.raises(ServiceError, match="the queue is full"):
        translate(["One. Two."] * 20, engine=FakeEngine(is_full=True))
    assert split == []


def test_a_model_of_several_languages_serves_all_its_pairs() -> None:
    """Catches one pair alone, a request without its languages, and a pivot that loses to a pair never learned."""
    directions = (("en", "de"), ("de", "en"), ("en", "fr"), ("fr", "en"))
    several = ModelInfo("several", "encoder-decoder", directions=directions)
    pairs = LanguagePairs({"several": several, "en-it": ModelInfo("en-it", "encoder-decoder", "en", "it")})
    assert pairs.targets() == {"en": ["de", "fr", "it"], "de": ["en"], "fr": ["en"]}
    for model in ("", "several"):
        assert pairs.route("en", "de-AT", model, may_pivot=False).steps == (Step("several", ("en", "de")),)
        assert pairs.route("fr", "de", model, may_pivot=False).steps == (Step("several", ("fr", "de"), False),)
    assert [step.languages for step in pairs.route("fr", "de", "", may_pivot=True).steps] == [
        ("fr", "en"),
        ("en", "de"),
    ]
    assert pairs.route("fr", "it", "", may_pivot=True).steps == (Step("several", ("fr", "en")), Step("en-it"))
    assert pairs.sources("de", "several", may_pivot=False) == ["en", "de", "fr"]
    with pytest.raises(ServiceError, match="model 'several' translates en-de, de-en, en-fr, fr-en"):
        pairs.route("en", "it", "several", may_pivot=False)
    engine = FakeEngine((several,))
    assert translate(["a"], "en", "fr", engine)[0].flags == ()
    assert translate(["a"], "fr", "de", engine)[0].flags == (ZERO_SHOT,)


def test_pivot_through_the_first_language_that_joins() -> None:
    """Catches a pair that is translated through the target or source itself, or through a language without a way on."""
    names = ["fr-it", "fr-en", "en-fr", "en-de"]
    models = {name: ModelInfo(name, "encoder-decoder", *name.split("-")) for name in names}
    pairs = LanguagePairs(models)
    assert pairs.route("fr", "de", "", may_pivot=True).models == ("fr-en", "en-de")
    with pytest.raises(ServiceError, match="no model translates from fr to es"):
        pairs.route("fr", "es", "", may_pivot=True)


def test_pivot_joins_scores_and_alignments() -> None:
    """Catches results of a translation through a third language that describe its second half alone."""
    (text,) = translate(["Ein Hund\nzwei"], "de", "fr", may_pivot=True, alignment=True, n_best=2)
    assert text.text == "nie dnuh\niewz"
    assert text.alternatives == ("nie dnuh (2)\niewz (2)",)
    assert (text.score, text.source_tokens, text.target_tokens) == (-3.0, 3, 3)
    assert text.alignment == ((0, 0), (1, 1), (2, 2))
    with pytest.raises(ServiceError, match="glossary"):
        translate(["Ein Hund"], "de", "fr", may_pivot=True, glossary=(("Hund", "chien"),))


def test_requests_share_batches() -> None:
    """Catches options at their defaults that keep jobs from sharing batches, and a client that is not passed on."""
    engine = FakeEngine()
    translate(["a", "b\nc"], engine=engine)
    (job,) = engine.jobs
    assert (job.options, job.client, job.deadline) == ({"beam": 1}, "a client", sys.float_info.max)
    assert [item.text for item in job.items] == ["a", "b", "c"]


def test_text_without_words() -> None:
    """Catches a job without items, which an engine may not expect."""
    engine = FakeEngine()
    assert [text.text for text in translate(["", "\n", "--"], engine=engine, alignment=True)] == ["", "\n", "--"]
    assert engine.jobs == []


def test_long_text_is_split_and_aligned() -> None:
    """Catches words of a long line whose alignments are those of its pieces."""
    line = " ".join(f"Sentence number {number} is in this line." for number in range(1000))
    engine = FakeEngine()
    (text,) = translate([f"First line\n{line}"], engine=engine, alignment=True)
    assert text.text == f"FIRST LINE\n{line.upper()}"
    assert len(engine.jobs[0].items) > 50
    assert text.alignment == tuple((word, word) for word in range(7002))


def test_alternatives_of_pieces_that_have_fewer() -> None:
    """Catches a piece with one translation that ends the list of alternatives of the text."""

    class Single(FakeEngine):
        def _result(self, job: Job, item: Any) -> Any:
            result = dict(super()._result(job, item))
            return (
                {**result, "alternatives": result["alternatives"][:1], "copied": True} if item.text == "b" else result
            )

    (text,) = translate(["a\nb"], engine=Single(), n_best=3)
    assert text.alternatives == ("A (2)\nB", "A (3)\nB")
    assert text.flags == ("copied",)


def test_cancellation_reaches_the_engine() -> None:
    """Catches work that goes on after the client of a request has left."""

    async def leave() -> FakeEngine:
        engine = FakeEngine()
        engine.gate.clear()
        service = fake_services(engine).translation
        texts = ["A black dog runs through the garden.", "Ein schwarzer Hund läuft durch den Garten."]
        options = TranslateOptions(may_pivot=True)
        task = asyncio.create_task(service.translate(texts, "auto", "fr", options, client="", deadline=None))
        while engine.n_running < 2:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return engine

    assert asyncio.run(asyncio.wait_for(leave(), TEST_SECONDS)).n_cancelled == 2


@pytest.mark.parametrize(("text", "source"), [("A dog runs.", "en"), ("Hello", "de"), ("Ein Hund", "de"), ("5", "de")])
def test_text_in_the_target_language(text: str, source: str) -> None:
    """Catches a short text in the target language that is translated, and one in a source language that is not."""
    engine = FakeEngine()
    (translated,) = translate([text], "auto", "en", engine)
    assert translated.source == source
    assert len(engine.jobs) == (source == "de")


def test_no_torch_in_the_server() -> None:
    """Catches an import that makes the process of the event loop load PyTorch, which takes seconds and memory."""
    modules = "transformer.serving.routes.deepl, transformer.serving.routes.libretranslate"
    code = f"import sys, {modules}; print('torch' in sys.modules)"
    done = run([sys.executable, "-c", code], capture_output=True, text=True, timeout=TEST_SECONDS, check=True)
    assert done.stdout == "False\n"
