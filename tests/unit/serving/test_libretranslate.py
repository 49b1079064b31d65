"""Clients of LibreTranslate against the server with a fake engine."""

from collections.abc import Iterator
from typing import Any

import pytest
import requests
from deep_translator import LibreTranslator
from libretranslatepy import LibreTranslateAPI

from serving_app import TEST_SECONDS, fake_services, running_app
from serving_fakes import FakeEngine
from transformer.serving.errors import ServiceError
from transformer.serving.settings import Limits

DOG = {"q": "A dog", "source": "en", "target": "de"}


@pytest.fixture(scope="module")
def address(engine: FakeEngine) -> Iterator[str]:
    with running_app(fake_services(engine, limits=Limits(characters=5000, alternatives=3))) as url:
        yield url


def post(address: str, path: str, **body: Any) -> requests.Response:
    return requests.post(f"{address}{path}", json=body, timeout=TEST_SECONDS)


def translate(address: str, q: Any, source: str = "en", target: str = "de", **rest: Any) -> dict[str, Any]:
    response = post(address, "/translate", q=q, source=source, target=target, **rest)
    assert response.status_code == 200, response.text
    return response.json()


def test_libretranslatepy(address: str) -> None:
    """Catches forms that are not read, and answers that the client cannot use."""
    client = LibreTranslateAPI(address)
    assert client.translate("A dog & a cat.\n\nHello!", "en", "de", timeout=TEST_SECONDS) == "A DOG & A CAT.\n\nHELLO!"
    detected = client.detect("Der Hund läuft über die Straße.", timeout=TEST_SECONDS)
    assert detected[0]["language"] == "de"
    assert detected[0]["confidence"] > 90
    languages = {one["code"]: one for one in client.languages(timeout=TEST_SECONDS)}
    assert languages["en"] == {"code": "en", "name": "English", "targets": ["de", "fr"]}
    assert languages["fr"]["targets"] == []


def test_deep_translator(address: str) -> None:
    """Catches fields in the query string of a POST that are not read."""
    client = LibreTranslator(source="en", target="de", custom_url=f"{address}/", api_key="any")
    assert client.translate("A dog runs.") == "A DOG RUNS."
    assert client.translate_batch(["A dog", "Two cats"]) == ["A DOG", "TWO CATS"]


def test_weblate(address: str) -> None:
    """Catches a list of texts, as Weblate's machinery sends it, whose translations are lost or in another order."""
    texts = [f"Save {number} <b>files</b>" for number in range(20)]
    body = {"api_key": "", "q": texts, "source": "en", "target": "de", "format": "html"}
    response = requests.post(f"{address}/translate", json=body, timeout=TEST_SECONDS)
    assert response.status_code == 200
    assert response.json() == {"translatedText": [f"SAVE {number} <b>FILES</b>" for number in range(20)]}


@pytest.mark.parametrize(
    "how",
    [{"json": DOG}, {"data": DOG}, {"params": DOG}, {"files": {name: (None, value) for name, value in DOG.items()}}],
    ids=["json", "form", "query", "multipart"],
)
def test_encodings(address: str, how: dict[str, Any]) -> None:
    """Catches an encoding of the request in which the one text comes back as a list, or not at all."""
    response = requests.post(f"{address}/translate", timeout=TEST_SECONDS, **how)
    assert response.json() == {"translatedText": "A DOG"}


def test_detected_language_of_each_text(address: str) -> None:
    """Catches a list of texts of which all are taken to be in the language of the first."""
    texts = ["The black dog runs through the garden.", "Der schwarze Hund läuft durch den Garten.", "12"]
    answer = translate(address, texts, "auto", "de")
    assert answer["translatedText"] == ["THE BLACK DOG RUNS THROUGH THE GARDEN.", texts[1], "12"]
    assert [one["language"] for one in answer["detectedLanguage"]] == ["en", "de", "en"]
    assert answer["detectedLanguage"][2]["confidence"] == 0


def test_alternatives_and_details(address: str) -> None:
    """Catches alternatives that contain the best translation, and details in another form than documented."""
    answer = translate(address, "A dog\nTwo cats", alternatives=2, details=True)
    assert answer["alternatives"] == ["A DOG (2)\nTWO CATS (2)", "A DOG (3)\nTWO CATS (3)"]
    assert answer["details"] == {
        "score": -2.0, "flags": [], "alignment": [[0, 0], [1, 1], [2, 2], [3, 3]], "models": ["en-de"],
        "unsure": [], "source_tokens": 4, "target_tokens": 4,
    }  # fmt: skip
    assert list(translate(address, ["A dog"], alternatives=1)["alternatives"]) == [["A DOG (2)"]]


def test_confidence(address: str) -> None:
    """Catches an unsure line that is not named or placed, and a list of which one text has no confidence."""
    answer = translate(address, "A dog\nan unclear word\nTwo cats", details=True)
    assert answer["confidence"] == 0.21
    assert answer["details"]["flags"] == ["unsure in 1 of 3 parts (lowest confidence 0.21)"]
    assert answer["details"]["unsure"] == [[2, 4]]
    assert translate(address, ["unclear", ""], details=True)["confidence"] == [0.21, None]
    assert translate(address, "unclear", details=True)["details"]["flags"] == ["unsure (confidence 0.21)"]


def test_own_options(address: str, engine: FakeEngine) -> None:
    """Catches an option that does not reach the engine."""
    options = {
        "beam": 4,
        "length_penalty": 0.5,
        "banned": ["katze"],
        "protected": ["urls"],
        "glossary": {"dog": "Hund"},
    }
    answer = translate(address, "A dog at http://a.b", **options)
    assert answer["translatedText"] == "A Hund AT http://a.b"
    assert engine.jobs[-1].options == {**options, "glossary": [["dog", "Hund"]]}


def test_pivot_only_when_asked(address: str) -> None:
    """Catches a translation through a third language that nobody asked for, or that is refused although asked for."""
    assert post(address, "/translate", q="Ein Hund", source="de", target="fr").status_code == 400
    answer = translate(address, "Ein Hund", "de", "fr", pivot=True, details=True)
    assert answer["translatedText"] == "nie dnuh"
    assert answer["details"]["models"] == ["de-en", "en-fr"]


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"q": None}, 400, "q"),
        ({"target": "ja"}, 400, "no model translates from en to ja"),
        ({"source": "English!"}, 400, "source"),
        ({"q": "x" * 5001}, 413, "5,001"),
        ({"alternatives": 4}, 400, "alternatives"),
        ({"beam": 11}, 400, "beam"),
        ({"protected": ["names"]}, 400, "protected"),
        ({"glossary": {"": "x"}}, 400, "glossary"),
        ({"glossary": "unknown"}, 404, "glossary"),
        ({"model": "unknown"}, 400, "no translation model"),
        ({"model": "tiny-gpt"}, 400, "no translation model"),
        ({"model": "de-en"}, 400, "translates from de to en"),
        ({"format": "pdf"}, 400, "format"),
    ],
)
def test_refusals(address: str, change: dict[str, Any], status: int, words: str) -> None:
    """Catches an invalid request that is answered, or refused without saying which field is wrong."""
    response = post(address, "/translate", **{"q": "A dog", "source": "en", "target": "de", **change})
    assert response.status_code == status
    assert list(response.json()) == ["error"]
    assert words in response.json()["error"]


def test_failures_of_the_engine(address: str, engine: FakeEngine) -> None:
    """Catches an error of the engine in a list of texts of two languages that becomes an internal error."""
    texts = ["The black dog runs through the garden.", "Der schwarze Hund läuft durch den Garten."]
    engine.failures.update(dict.fromkeys(texts, ServiceError("unavailable", "the model cannot be loaded")))
    response = post(address, "/translate", q=texts, source="auto", target="fr", pivot=True)
    engine.failures.clear()
    assert (response.status_code, response.json()) == (503, {"error": "the model cannot be loaded"})
    engine.is_full = True
    response = post(address, "/translate", q="A dog", source="en", target="de")
    engine.is_full = False
    assert response.status_code == 429
    assert response.headers["Retry-After"] == "1"


def test_refused_routes_and_settings(address: str) -> None:
    """Catches a client that cannot tell that suggestions are not supported."""
    assert post(address, "/suggest", q="a", s="b", source="en", target="de").status_code == 501
    settings = requests.get(f"{address}/frontend/settings", timeout=TEST_SECONDS).json()
    assert (settings["charLimit"], settings["filesTranslation"], settings["keyRequired"]) == (5000, True, False)
    assert settings["language"]["target"] == {"code": "de", "name": "German"}
