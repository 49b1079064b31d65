"""DeepL's client and command line against the server with a fake engine."""

import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deepl
import pytest
import requests
from deepl.api_data import MultilingualGlossaryDictionaryEntries

from serving_app import TEST_SECONDS, fake_services, running_app
from serving_fakes import FakeEngine
from transformer.serving.settings import Limits


@pytest.fixture(scope="module")
def address(engine: FakeEngine) -> Iterator[str]:
    with running_app(fake_services(engine, limits=Limits(glossaries=5, glossary_terms=20))) as url:
        yield url


@pytest.fixture
def client(address: str) -> Iterator[deepl.DeepLClient]:
    client = deepl.DeepLClient("any-key", server_url=address, send_platform_info=False)
    yield client
    for glossary in client.list_multilingual_glossaries():
        client.delete_multilingual_glossary(glossary)
    client.close()


def command(address: str, *arguments: str) -> str:
    """Runs the command line of the package deepl."""
    run = [sys.executable, "-m", "deepl", "--auth-key", "any-key", "--server-url", address, *arguments]
    done = subprocess.run(run, capture_output=True, text=True, timeout=TEST_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_texts(client: deepl.DeepLClient) -> None:
    """Catches answers that DeepL's client cannot use, and languages with regions that have no model."""
    one = client.translate_text("A dog", source_lang="EN", target_lang="DE")
    assert (one.text, one.detected_source_lang, one.billed_characters) == ("A DOG", "EN", 5)
    several = client.translate_text(["Der Hund läuft durch den Garten.", "EIN HAUS"], target_lang="EN-GB", context="x")
    assert [result.text for result in several] == ["der hund läuft durch den garten.", "ein haus"]
    assert several[0].detected_source_lang == "DE"


def test_model_type(client: deepl.DeepLClient, engine: FakeEngine) -> None:
    """Catches a model type that is not reported, or has no effect."""
    fast = client.translate_text("A dog", source_lang="EN", target_lang="DE", model_type="latency_optimized")
    assert fast.model_type_used == "latency_optimized"
    assert engine.jobs[-1].options["beam"] == 1


def test_own_options(client: deepl.DeepLClient, engine: FakeEngine) -> None:
    """Catches an option beyond DeepL's that does not reach the engine."""
    more = {"beam": 3, "banned": ["x"], "pivot": True}
    result = client.translate_text("Ein Hund", source_lang="DE", target_lang="FR", extra_body_parameters=more)
    assert result.text == "nie dnuh"
    assert engine.jobs[-1].options == {"beam": 3, "banned": ["x"]}


def test_split_sentences(client: deepl.DeepLClient) -> None:
    """Catches line ends that become spaces unless asked for, or paragraphs that are joined."""
    text = "one\ntwo\n\nthree"
    lines = client.translate_text(text, source_lang="EN", target_lang="DE", split_sentences="1")
    assert lines.text == "ONE\nTWO\n\nTHREE"
    joined = client.translate_text(text, source_lang="EN", target_lang="DE", split_sentences="nonewlines")
    assert joined.text == "ONE TWO\n\nTHREE"


def test_tags(client: deepl.DeepLClient) -> None:
    """Catches tags of HTML and XML that are translated, and options for tags that have no effect."""

    def translate(text: str, **options: Any) -> str:
        return client.translate_text(text, source_lang="EN", target_lang="DE", **options).text

    assert translate("<p>A <b>dog</b> &amp; <code>x</code></p>", tag_handling="html") == (
        "<p>A <b>DOG</b> &amp; <code>x</code></p>"
    )
    xml = '<doc id="a"><t>Title</t><p>Keep <k>this</k> word</p></doc>'
    assert (
        translate(xml, tag_handling="xml", ignore_tags="k")
        == '<doc id="a"><t>TITLE</t><p>KEEP <k>this</k> WORD</p></doc>'
    )
    options = {"tag_handling": "xml", "outline_detection": False, "splitting_tags": ["t", "p"], "ignore_tags": ["k,z"]}
    assert translate(xml, **options).endswith("<p>KEEP <k>this</k> WORD</p></doc>")


def test_languages_and_usage(client: deepl.DeepLClient) -> None:
    """Catches lists without the variants that DeepL's clients require, and characters that are not counted."""
    assert [language.code for language in client.get_source_languages()] == ["EN", "DE"]
    targets = {language.code: language for language in client.get_target_languages()}
    assert list(targets) == ["DE", "FR", "EN-GB", "EN-US"]
    assert targets["EN-GB"].supports_formality is False
    before = client.get_usage().character.count
    client.translate_text("12345", source_lang="EN", target_lang="DE")
    usage = client.get_usage()
    assert usage.character.count == before + 5
    assert not usage.any_limit_reached


def test_glossary(client: deepl.DeepLClient) -> None:
    """Catches a stored glossary that is not applied, changed, or still applied after its deletion."""
    made = client.create_glossary("animals", "EN", "DE", {"dog": "Hund", "big cat": "Löwe"})
    assert (made.ready, made.source_lang, made.target_lang, made.entry_count) == (True, "EN", "DE", 2)
    assert client.get_glossary(made.glossary_id).name == "animals"
    assert [one.glossary_id for one in client.list_glossaries()] == [made.glossary_id]
    assert client.get_glossary_entries(made) == {"dog": "Hund", "big cat": "Löwe"}
    result = client.translate_text_with_glossary("A dog, a big cat", made)
    assert result.text == "A Hund, A Löwe"
    client.delete_glossary(made)
    with pytest.raises(deepl.DeepLException, match="no glossary"):
        client.translate_text("A dog", source_lang="EN", target_lang="DE", glossary=made)
    with pytest.raises(deepl.GlossaryNotFoundException):
        client.get_glossary(made.glossary_id)


def test_glossary_of_csv(client: deepl.DeepLClient) -> None:
    """Catches quotes and further columns of CSV that become part of terms."""
    made = client.create_glossary_from_csv("csv", "EN", "DE", '"dog","Hund",en,de\n"a, b","c ""d"""\n')
    assert client.get_glossary_entries(made) == {"dog": "Hund", "a, b": 'c "d"'}


def test_multilingual_glossary(client: deepl.DeepLClient) -> None:
    """Catches changes of one pair of languages of a glossary that touch the others."""
    entries = MultilingualGlossaryDictionaryEntries
    made = client.create_multilingual_glossary(
        "both", [entries("EN", "DE", {"dog": "Hund"}), entries("DE", "EN", {"Hund": "dog"})]
    )
    assert [(one.source_lang, one.target_lang, one.entry_count) for one in made.dictionaries] == [
        ("EN", "DE", 1), ("DE", "EN", 1),
    ]  # fmt: skip
    result = client.translate_text("EIN Hund", source_lang="DE", target_lang="EN-US", glossary=made)
    assert result.text == "ein dog"
    client.update_multilingual_glossary_name(made, "renamed")
    client.update_multilingual_glossary_dictionary(made, entries("EN", "DE", {"cat": "Katze"}))
    client.replace_multilingual_glossary_dictionary(made, entries("DE", "EN", {"Katze": "cat"}))
    changed = client.get_multilingual_glossary(made.glossary_id)
    assert changed.name == "renamed"
    forth = client.get_multilingual_glossary_entries(made, "EN", "DE").dictionaries[0]
    back = client.get_multilingual_glossary_entries(made, "DE", "EN").dictionaries[0]
    assert "cat\tKatze" in str(forth.entries)
    assert "dog\tHund" in str(forth.entries)
    assert str(back.entries) == "Katze\tcat"
    client.delete_multilingual_glossary_dictionary(made, source_lang="EN", target_lang="DE")
    assert len(client.get_multilingual_glossary(made.glossary_id).dictionaries) == 1


def test_limits_of_glossaries(client: deepl.DeepLClient) -> None:
    """Catches glossaries without bounds, and invalid ones that are stored."""
    with pytest.raises(deepl.DeepLException, match="limit of 20"):
        client.create_glossary("many", "EN", "DE", {f"a{number}": "b" for number in range(21)})
    for number in range(5):
        client.create_glossary(str(number), "EN", "DE", {"a": "b"})
    with pytest.raises(deepl.DeepLException, match="delete one"):
        client.create_glossary("sixth", "EN", "DE", {"a": "b"})


def test_refusals(client: deepl.DeepLClient, address: str) -> None:
    """Catches what is not supported and ignored, or refused such that the client tries again for half a minute."""
    with pytest.raises(deepl.DeepLException, match="formality"):
        client.translate_text("A dog", source_lang="EN", target_lang="DE", formality="more")
    preferred = client.translate_text("A dog", source_lang="EN", target_lang="DE", formality="prefer_more")
    assert preferred.text == "A DOG"
    with pytest.raises(deepl.DeepLException, match="custom_instructions"):
        client.translate_text("A dog", source_lang="EN", target_lang="DE", custom_instructions=["be kind"])
    with pytest.raises(deepl.DeepLException, match="of this format are not translated"):
        client.translate_document(b"x", io.BytesIO(), target_lang="DE", filename="a.exe")
    response = requests.post(f"{address}/v2/translate", json={"text": ["A"], "target_lang": "JA"}, timeout=TEST_SECONDS)
    assert response.status_code == 400
    assert "no model translates to JA" in response.json()["message"]


def test_form(address: str) -> None:
    """Catches a form with repeated texts, as curl sends it, of which one is translated."""
    fields = [
        ("text", "A dog"),
        ("text", "Two cats"),
        ("target_lang", "DE"),
        ("source_lang", "EN"),
        ("split_sentences", "0"),
    ]
    response = requests.post(f"{address}/v2/translate", data=fields, timeout=TEST_SECONDS)
    assert response.json() == {
        "translations": [
            {"detected_source_language": "EN", "text": "A DOG"}, {"detected_source_language": "EN", "text": "TWO CATS"},
        ]
    }  # fmt: skip


def test_command_line(address: str, client: deepl.DeepLClient, tmp_path: Path) -> None:
    """Catches a request of DeepL's command line that its library does not send in this form."""
    assert command(address, "text", "--from", "EN", "--to", "DE", "A dog", "Two cats") == "A DOG\nTWO CATS\n"
    assert "EN-GB" in command(address, "languages")
    assert "Characters" in command(address, "usage")
    terms = tmp_path / "terms.tsv"
    terms.write_text("dog\tHund\n", encoding="utf-8")
    made = command(address, "glossary", "create", "--name", "cli", "--from", "EN", "--to", "DE", "--file", str(terms))
    identifier = client.list_glossaries()[0].glossary_id
    assert identifier in made
    translated = command(address, "text", "--from", "EN", "--to", "DE", "--glossary-id", identifier, "A dog")
    assert translated == "A Hund\n"
    command(address, "glossary", "delete", identifier)
    assert client.list_glossaries() == []
