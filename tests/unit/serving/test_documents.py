"""Documents that clients of LibreTranslate and DeepL send, with a fake engine that writes capital letters."""

import io
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deepl
import pytest
import requests

from serving_app import TEST_SECONDS, fake_services, running_app
from serving_documents import FORM, PO, TRANSLATED, ask, begin, po_of, send, wait_for_state, wait_until
from serving_fakes import FakeEngine
from transformer.serving.documents import translated_name
from transformer.serving.errors import ServiceError
from transformer.serving.keys import add_key
from transformer.serving.multipart import UploadedFile, parse_multipart
from transformer.serving.settings import Limits


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def address(engine: FakeEngine) -> Iterator[str]:
    limits = Limits(document_bytes=50_000, document_characters=9000, characters=100, documents=3)
    with running_app(fake_services(engine, limits=limits)) as url:
        yield url


@pytest.fixture
def client(address: str) -> Iterator[deepl.DeepLClient]:
    client = deepl.DeepLClient("any-key", server_url=address, send_platform_info=False)
    yield client
    client.close()


def test_file_is_translated_and_downloaded(address: str) -> None:
    """Catches an address that leads nowhere, a file with another name, and one that browsers would show as a page."""
    answer = send(address, details="true")
    assert answer.status_code == 200, answer.text
    url = answer.json()["translatedFileUrl"]
    assert url.startswith(f"{address}/download_file/")
    assert url.endswith(".app_de.po")
    details = answer.json()["details"]
    assert (details["translated"], details["kept"], details["untranslated"]) == (1, 1, 0)
    for _ in range(2):
        file = requests.get(url, timeout=TEST_SECONDS)
        assert file.content == TRANSLATED
    assert file.headers["Content-Disposition"].startswith('attachment; filename="app_de.po"')
    assert "sandbox" in file.headers["Content-Security-Policy"]
    assert file.headers["X-Content-Type-Options"] == "nosniff"


def test_plain_text_is_translated_line_by_line(address: str) -> None:
    """Catches a text file that LibreTranslate takes and that is refused here, or that loses its lines."""
    answer = send(address, b"Hello you\r\n\r\n 12\nBye", "notes.TXT")
    assert answer.status_code == 200, answer.text
    url = answer.json()["translatedFileUrl"]
    assert requests.get(url, timeout=TEST_SECONDS).content == b"HELLO YOU\r\n\r\n 12\nBYE"
    as_content = send(address, PO, "app.txt")
    assert requests.get(as_content.json()["translatedFileUrl"], timeout=TEST_SECONDS).content == TRANSLATED
    refused = send(address, b"\x89PNG\r\n\x1a\n", "picture.txt")
    assert (refused.status_code, "is not UTF-8" in refused.text) == (400, True)


def test_settings_name_the_extensions(address: str) -> None:
    """Catches a page of LibreTranslate that does not offer files."""
    settings = requests.get(f"{address}/frontend/settings", timeout=TEST_SECONDS).json()
    assert settings["filesTranslation"]
    assert {".po", ".txt"} <= set(settings["supportedFilesFormat"])


@pytest.mark.parametrize(
    ("content", "name", "status", "message"),
    [
        (b"\x89PNG\r\n\x1a\n", "a.png", 400, "not translated"),
        (b"MZ", "../../etc/passwd", 400, "not translated"),
        (PO.replace(b'"Zu"', b'"Zu'), "a.po", 400, "a.po"),
        (b"\xff\xfe\xff" + PO, "a.po", 400, "a.po"),
        (PO.replace(b"Language: de", b"Language: fr"), "a.po", 400, "all=true"),
        (b"x" * 50_001, "a.po", 413, "50,000 bytes"),
        (b"x" * 5_000_000, "a.po", 413, "larger than"),
        (po_of(1, "x" * 9001), "a.po", 413, "9,000"),
    ],
)  # fmt: skip
def test_files_are_refused_by_a_line(address: str, content: bytes, name: str, status: int, message: str) -> None:
    """Catches a wrong, large or unknown file that fails the server, or is answered without a reason."""
    answer = send(address, content, name)
    assert answer.status_code == status, answer.text
    assert message in answer.json()["error"]
    assert "\n" not in answer.json()["error"]


@pytest.mark.parametrize("name", ["%2e%2e%2fapp.py", "x.po", "a" * 32, "..%2F..%2Fetc%2Fpasswd", "%00"])
def test_only_translated_files_are_downloaded(address: str, name: str) -> None:
    """Catches a path that leads out of the store."""
    assert requests.get(f"{address}/download_file/{name}", timeout=TEST_SECONDS).status_code == 404


def test_fields_are_needed_and_languages_checked(address: str) -> None:
    """Catches a missing file that is an internal error, and a pair without a model that is found out in the end."""
    for form in ({"files": {"q": (None, "x")}}, {"files": {"file": (None, "text")}}):
        answer = requests.post(f"{address}/translate_file", data=FORM, timeout=TEST_SECONDS, **form)
        assert (answer.status_code, answer.json()["error"][:5]) == (400, "file:")
    assert "no model translates" in send(address, target="ja").json()["error"]
    assert "protected" in send(address, protected="nothing").json()["error"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("app.po", "app_de.po"),
        ("Übersicht 1.po", "Übersicht 1_de.po"),
        ('a"\r\nX: y;.po', "a_X_ y__de.po"),
        ("po", "po_de"),
        (".po", "po_de"),
        ("", "document_de"),
        (f"{'x' * 500}.po", f"{'x' * 144}_de.po"),
    ],
)
def test_names_of_translated_files(name: str, expected: str) -> None:
    """Catches a name that splits a header, hides a file, or is longer than file systems allow."""
    assert translated_name(name, "DE") == expected


@pytest.fixture
def fast_client(client: deepl.DeepLClient, monkeypatch: pytest.MonkeyPatch) -> deepl.DeepLClient:
    """DeepL's client, which otherwise waits five seconds between two questions."""
    sleep = time.sleep
    monkeypatch.setattr("deepl.translator.time.sleep", lambda seconds: sleep(min(seconds, 0.02)))
    return client


@pytest.mark.parametrize(
    ("parameter", "name"),
    [
        (b'filename="../../a.po"', "a.po"),
        (b'filename="C:\\\\temp\\\\a.po"', "a.po"),
        ('filename="ü.po"'.encode(), "ü.po"),
        ('filename="ü.po"'.encode("latin-1"), "\ufffd.po"),
        (b"filename*=UTF-8''%C3%BC.po", "ü.po"),
        (b"filename*=utf-8''%2e%2e%2Fa.po", "a.po"),
    ],
)
def test_names_of_uploaded_files(parameter: bytes, name: str) -> None:
    """Catches a name with folders, and one in another encoding, which some clients send."""
    head = b'--B\r\nContent-Disposition: form-data; name="file"; ' + parameter
    form = head + b"\r\n\r\n\xff\r\n--B--\r\n"
    pairs = parse_multipart(form, "multipart/form-data; boundary=B", 1, {"file"})
    assert pairs == [("file", UploadedFile(name, b"\xff"))]


def test_deepl_client(fast_client: deepl.DeepLClient, tmp_path: Path) -> None:
    """Catches states and results that DeepL's client cannot use."""
    client = fast_client
    (tmp_path / "app.po").write_bytes(PO)
    status = client.translate_document_from_filepath(
        tmp_path / "app.po", tmp_path / "out.po", source_lang="EN", target_lang="DE"
    )
    assert (status.done, status.billed_characters) == (True, len("Open %1$s now"))
    assert (tmp_path / "out.po").read_bytes() == TRANSLATED
    with pytest.raises(deepl.DocumentTranslationException, match=r"bad\.po"):
        _translate_bytes(client, b'msgid "x', "bad.po")
    with pytest.raises(deepl.DeepLException, match="output_format"):
        _translate_bytes(client, PO, "app.po", output_format="docx")


def _translate_bytes(client: deepl.DeepLClient, content: bytes, name: str, **options: Any) -> bytes:
    output = io.BytesIO()
    client.translate_document(content, output, source_lang="EN", target_lang="DE", filename=name, **options)
    return output.getvalue()


def test_document_is_downloaded_once(address: str) -> None:
    """Catches a document that stays after its download, or that another key gives away."""
    handle = begin(address)
    details = wait_for_state(address, handle, "done")["details"]
    assert (details["lines"], details["lines_done"], details["name"]) == (1, 1, "app_de.po")
    wrong = handle | {"document_key": "0" * 64}
    assert ask(address, wrong, "/result").status_code == 404
    assert ask(address, handle, "/result").content == TRANSLATED
    assert ask(address, handle, "/result").status_code == 404
    assert ask(address, handle).status_code == 404


def test_states_of_a_document(address: str, engine: FakeEngine) -> None:
    """Catches a result before the translation is done, and documents of one client that go side by side."""
    engine.gate.clear()
    first, second = begin(address, po_of(200)), begin(address)
    state = wait_for_state(address, first, "translating")
    assert state["seconds_remaining"] >= 1
    assert ask(address, second).json()["status"] == "queued"
    assert ask(address, first, "/result").status_code == 503
    engine.gate.set()
    assert wait_for_state(address, first, "done")["details"]["translated"] == 201
    assert wait_for_state(address, second, "done")["details"]["translated"] == 1


def test_error_of_the_engine_is_the_state_of_the_document(address: str, engine: FakeEngine) -> None:
    """Catches a document that stays untranslated without a reason."""
    engine.failures["Line number 3"] = ServiceError("unavailable", "the model cannot be loaded")
    handle = begin(address, po_of(200))
    assert wait_for_state(address, handle, "error")["error_message"] == "the model cannot be loaded"
    assert ask(address, handle, "/result").json() == {"message": "the model cannot be loaded"}


def test_lines_go_in_parts(address: str, engine: FakeEngine) -> None:
    """Catches a document that fills the queue at once."""
    send(address, po_of(500))
    sizes = [len(job.items) for job in engine.jobs]
    assert sum(sizes) == 501
    assert max(sizes) <= 64


def test_full_queue_delays_a_document(address: str, engine: FakeEngine) -> None:
    """Catches a document that fails in the middle because others have filled the queue."""
    engine.is_full = True
    handle = begin(address)
    wait_for_state(address, handle, "translating")
    engine.is_full = False
    assert wait_for_state(address, handle, "done", "error")["status"] == "done"


def test_deleted_document_is_cancelled(address: str, engine: FakeEngine) -> None:
    """Catches a document that goes on although nobody wants it."""
    engine.gate.clear()
    handle = begin(address, po_of(200))
    wait_for_jobs(engine, 2)
    url = f"{address}/v2/document/{handle['document_id']}?document_key={handle['document_key']}"
    assert requests.delete(url, timeout=TEST_SECONDS).status_code == 204
    wait_until_cancelled(engine, 2)
    assert ask(address, handle).status_code == 404


def test_client_that_leaves_cancels_its_file(address: str, engine: FakeEngine) -> None:
    """Catches a file that is translated for nobody."""
    engine.gate.clear()
    files = {"file": ("app.po", po_of(200))}
    with pytest.raises(requests.ReadTimeout):
        requests.post(f"{address}/translate_file", data=FORM, files=files, timeout=0.5)
    wait_until_cancelled(engine, 2)


def wait_for_jobs(engine: FakeEngine, n: int) -> None:
    wait_until(lambda: engine.n_running >= n)


def wait_until_cancelled(engine: FakeEngine, n: int) -> None:
    wait_until(lambda: engine.n_cancelled == n and not engine.n_running)


def test_number_of_documents_is_limited(address: str, engine: FakeEngine) -> None:
    """Catches memory that one client can fill, and translated documents that block new ones."""
    handles = [begin(address) for _ in range(3)]
    for handle in handles:
        wait_for_state(address, handle, "done")
    engine.gate.clear()
    waiting = [begin(address) for _ in range(3)]
    assert ask(address, handles[0]).status_code == 404
    files = {"file": ("app.po", PO)}
    answer = requests.post(
        f"{address}/v2/document", data={"target_lang": "DE", "source_lang": "EN"}, files=files, timeout=TEST_SECONDS
    )
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "60")
    engine.gate.set()
    wait_for_state(address, waiting[-1], "done")


def test_documents_are_deleted_after_a_time(engine: FakeEngine) -> None:
    """Catches translated files that are kept for ever, and memory of all clients without a bound."""
    limits = Limits(kept_seconds=0.05, all_documents_bytes=len(PO) + 50)
    with running_app(fake_services(engine, limits=limits)) as address:
        url = send(address).json()["translatedFileUrl"]
        wait_until(lambda: requests.get(url, timeout=TEST_SECONDS).status_code == 404)
        engine.gate.clear()
        begin(address)
        answer = send(address)
        assert (answer.status_code, "keeps too many" in answer.json()["error"]) == (429, True)
        engine.gate.set()


def test_documents_can_be_switched_off(engine: FakeEngine) -> None:
    """Catches a page that offers files which the server refuses."""
    with running_app(fake_services(engine, limits=Limits(documents=0))) as address:
        settings = requests.get(f"{address}/frontend/settings", timeout=TEST_SECONDS).json()
        assert (settings["filesTranslation"], settings["supportedFilesFormat"]) == (False, [])
        assert send(address).status_code == 400


def test_keys(engine: FakeEngine, tmp_path: Path) -> None:
    """Catches documents that need no key, or that the owner of another key gets."""
    mine, other = add_key(tmp_path / "keys", "mine"), add_key(tmp_path / "keys", "other")
    with running_app(fake_services(engine, keys=tmp_path / "keys")) as address:
        assert send(address).status_code == 401
        assert requests.get(send(address, api_key=mine).json()["translatedFileUrl"], timeout=TEST_SECONDS).ok
        client = deepl.DeepLClient(mine, server_url=address, send_platform_info=False)
        handle = client.translate_document_upload(PO, source_lang="EN", target_lang="DE", filename="a.po")
        with pytest.raises(deepl.DeepLException):
            deepl.DeepLClient(other, server_url=address).translate_document_get_status(handle)
        wait_until(lambda: client.translate_document_get_status(handle).done)
        assert client.get_usage().character.count == 2 * len("Open %1$s now")


def test_source_language_is_detected(address: str) -> None:
    """Catches a document whose lines are each taken for another language."""
    content = po_of(3, "The black dog runs through the green garden {}")
    handle = begin(address, content, source_lang="")
    assert wait_for_state(address, handle, "done")["details"]["translated"] == 4


def test_stopping_server_drops_documents_that_nobody_awaits(engine: FakeEngine) -> None:
    """Catches a server that goes on with documents which no client can fetch any more."""
    services = fake_services(engine)
    engine.gate.clear()
    with running_app(services) as address:
        handle = begin(address, po_of(200))
        wait_for_jobs(engine, 2)
        _stop(services)
        wait_until_cancelled(engine, 2)
        assert ask(address, handle).status_code == 404


def _stop(services: Any) -> None:
    task = next(iter(services.documents._stored.values())).task
    task.get_loop().call_soon_threadsafe(services.documents.stop)


def test_options_reach_the_documents(address: str) -> None:
    """Catches translations that are marked or replaced although the client says otherwise."""
    plain = wait_and_get(address, begin(address, mark="none"))
    assert plain == TRANSLATED.replace(b"fuzzy, ", b"")
    assert b'msgstr "CLOSE"' in wait_and_get(address, begin(address, all="true"))
    terms = wait_and_get(address, begin(address, glossary='{"now": "jetzt"}'))
    assert b"jetzt" in terms


def wait_and_get(address: str, handle: dict[str, str]) -> bytes:
    wait_for_state(address, handle, "done")
    return ask(address, handle, "/result").content


CSV = b"id,title,text\n1,Dog,Hello you there\n2,Cat,See you later\n"


def test_columns_of_tables_are_chosen(address: str) -> None:
    """Catches tables whose columns clients of LibreTranslate or DeepL cannot choose, and a choice that is ignored."""
    every = CSV.replace(b"Hello you there", b"HELLO YOU THERE").replace(b"See you later", b"SEE YOU LATER")
    titles = CSV.replace(b"Dog", b"DOG").replace(b"Cat", b"CAT")
    answer = send(address, CSV, "a.csv", details="true").json()
    assert requests.get(answer["translatedFileUrl"], timeout=TEST_SECONDS).content == every
    assert "see columns" in answer["details"]["notes"][0]
    for columns in ("title", "2"):
        answer = send(address, CSV, "a.csv", columns=columns).json()
        assert requests.get(answer["translatedFileUrl"], timeout=TEST_SECONDS).content == titles
    assert wait_and_get(address, begin(address, CSV, "a.csv", columns="title")) == titles
    for name, content, columns, message in (
        ("a.csv", CSV, "other", "no column is named 'other'"), ("a.csv", CSV, "7", "columns names column 7"),
        ("a.po", PO, "1", "columns are those of tables"),
    ):  # fmt: skip
        refused = send(address, content, name, columns=columns)
        assert (refused.status_code, message in refused.json()["error"]) == (400, True), refused.text


def test_problems_are_told_with_their_texts(address: str) -> None:
    """Catches a summary that counts what was left, in a format without comments, and does not say what it was."""
    content = b'{"a": "Say unclear", "b": "12", "c": "{x, plural, one {a}"}'
    details = send(address, content, "a.json", details="true").json()["details"]
    unsure, left = details["problems"]
    assert (unsure["source"], unsure["translation"], unsure["reason"][:6]) == ("Say unclear", "SAY UNCLEAR", "unsure")
    assert (left["place"], left["source"], left["translation"]) == ("a.json:1", "{x, plural, one {a}", None)
