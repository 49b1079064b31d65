"""The HTTP side of the server: bodies, keys, limits and errors, over real connections."""

import gzip
import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from serving_http import RunningServer, running_server
from transformer.errors import ConfigError
from transformer.serving.interfaces import EngineStatus, ModelStatus
from transformer.serving.keys import Keys, add_key


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server(limits={"body_bytes": 10_000, "texts": 20, "glossary_terms": 30}) as running:
        yield running


MULTIPART = (
    b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\na b\r\n'
    b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\nc \xc3\xa4\r\n--x--\r\n'
)


@pytest.mark.parametrize(
    ("path", "content_type", "body", "expected"),
    [
        ("/echo", "application/json", b'{"q": "ab"}', ["AB"]),
        ("/echo", "application/json; charset=UTF-8", b'{"q": ["a", "b"]}', ["A", "B"]),
        ("/echo", None, b'{"q": "\xc3\xa4"}', ["Ä"]),
        ("/echo", "application/x-www-form-urlencoded", b"q=a+b&n=2", ["A B"]),
        ("/echo", "application/x-www-form-urlencoded", b"q=a&q=%C3%A4&pairs=%7B%22a%22%3A%22b%22%7D", ["A", "Ä"]),
        ("/echo", "multipart/form-data; boundary=x", MULTIPART, ["A B", "C Ä"]),
        ("/echo", "application/json", b'\xef\xbb\xbf{"q": "ab", "n": null, "api_key": null}', ["AB"]),
        ("/echo?q=ab", None, None, ["AB"]),
        ("/echo?q=ab&n=2", "application/json", b'{"q": "cd"}', ["CD"]),
    ],
)
def test_bodies_of_all_encodings(
    server: RunningServer, path: str, content_type: str | None, body: bytes | None, expected: list[str]
) -> None:
    """Catches an encoding of LibreTranslate's clients that is read wrongly."""
    headers = {} if content_type is None else {"Content-Type": content_type}
    status, _, answer = server.request("POST", path, body, headers)
    assert (status, answer.get("texts")) == (200, expected)


@pytest.mark.parametrize(
    ("content_type", "body", "status"),
    [
        ("application/json", b"[" * 5000, 400),
        ("application/json", b'{"a":' * 1500, 400),
        ("application/json", b'{"q": "\xff"}', 400),
        ("application/json", b'{"q": "\\ud800"}', 400),
        ("application/json", b'{"q": "a", "n": NaN}', 400),
        ("application/json", b'{"q": "a", "n": 1e999}', 400),
        ("application/json", b'{"q": "a", "n": ' + b"9" * 5000 + b"}", 400),
        ("application/json", b'{"q": "a", "n": ' + b"9" * 100 + b".5}", 400),
        ("application/json", b'["a"]', 400),
        ("application/json", b'{"q": [' + b"[]," * 100 + b"[]]}", 413),
        ("application/json", b'{"q": [[' + b"0," * 60 + b"0],[" + b"0," * 60 + b"0]]}", 413),
        ("application/json", b"", 200),
        ("application/json", b'{"q": 5}', 400),
        ("application/x-www-form-urlencoded", b"q=%FF", 400),
        ("application/x-www-form-urlencoded", b"\xff=1", 400),
        ("application/x-www-form-urlencoded", b"q=a&" * 200, 400),
        ("multipart/form-data; boundary=x", MULTIPART.replace(b"\xc3", b""), 400),
        ("multipart/form-data; boundary=y", MULTIPART, 400),
        ("multipart/form-data", MULTIPART, 400),
        ("multipart/form-data; boundary=x", MULTIPART.removesuffix(b"--x--\r\n") * 70 + b"--x--\r\n", 400),
        ("text/xml", b"<a/>", 415),
        ("application/json; charset=latin-1", b'{"q": "a"}', 415),
        ("application/json", b'{"q": "' + b"a" * 10_000 + b'"}', 413),
    ],
)
def test_wrong_bodies_are_refused(server: RunningServer, content_type: str, body: bytes, status: int) -> None:
    """Catches a body that makes the server fail, or that is believed where it is wrong."""
    status_received, _, answer = server.request("POST", "/echo", body, {"Content-Type": content_type})
    assert status_received == status, answer
    assert status == 200 or isinstance(answer["error"], str)
    assert server.request("GET", "/live")[0] == 200


SHORT, LONG = b'{"q": "a"}', b'{"q": "' + b"a" * 3_000_000 + b'"}'


compress = partial(gzip.compress, mtime=0)
"""Compression without the time, which would give tests other names in each process."""


@pytest.mark.parametrize(
    ("encoding", "content", "status"),
    [
        ("gzip", compress(SHORT), 200),
        ("X-GZip", compress(SHORT[:5]) + compress(SHORT[5:]), 200),
        ("identity", SHORT, 200),
        ("gzip", b"", 200),
        ("gzip", compress(LONG), 413),
        ("gzip", compress(b" " * 9_000) + compress(b" " * 2_000), 413),
        ("gzip", compress(SHORT) + 99 * compress(b""), 400),
        ("gzip", compress(SHORT)[:-9], 400),
        ("gzip", compress(SHORT) + b"rest", 400),
        ("gzip", SHORT, 400),
        ("gzip, gzip", compress(compress(SHORT)), 415),
        ("br", SHORT, 415),
    ],
)
def test_compressed_bodies(server: RunningServer, encoding: str, content: bytes, status: int) -> None:
    """Catches a compressed body that is read as it is, and 3 kB that fill the memory with megabytes."""
    assert server.request("POST", "/echo", content, {"Content-Encoding": encoding})[0] == status


def test_a_chunked_body_is_not_kept_beyond_the_limit(server: RunningServer) -> None:
    """Catches a limit that trusts Content-Length, which a chunked body has none of."""
    with server.connect() as connection:
        connection.sendall(b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.sendall((b"400\r\n" + b"a" * 1024 + b"\r\n") * 20)
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


def test_errors_have_the_form_of_their_interface(server: RunningServer) -> None:
    """Catches an error that clients of OpenAI or LibreTranslate cannot read."""
    assert server.request("GET", "/nothing")[::2] == (404, {"error": "the path does not exist"})
    assert server.request("GET", "/v1/nothing")[::2] == (404, {"error": {"message": "the path does not exist"}})
    status, headers, answer = server.request("DELETE", "/v1/echo")
    assert (status, headers["Allow"]) == (405, "OPTIONS, POST")
    assert answer == {"error": {"message": "the path has no such method"}}
    status, headers, _ = server.request("OPTIONS", "/v1/echo")
    assert (status, headers["Allow"]) == (204, "OPTIONS, POST")


def test_a_failure_tells_nothing(server: RunningServer) -> None:
    """Catches the words of an exception, which may hold a client's text, in an answer or the log."""
    status, _, answer = server.request("GET", "/fail")
    assert (status, answer) == (500, {"error": "the server failed"})
    server.wait_until(lambda: '"route": "/fail", "status": 500' in server.log.getvalue())
    assert "secret" not in server.log.getvalue()
    assert '"error": "RuntimeError"' in server.log.getvalue()


def test_metrics_and_log_hold_no_texts_and_no_unknown_paths(server: RunningServer) -> None:
    """Catches texts, query strings, addresses or made-up paths in the log or in labels."""
    server.request("POST", "/echo?q=hidden%0Atext&n=1")
    server.request("GET", "/hidden/path?hidden")
    server.request("HIDDEN", "/live")
    server.wait_until(lambda: server.log.getvalue().count('"route": "unknown"') >= 1)
    metrics = server.request("GET", "/metrics")[2].decode()
    for text in (metrics, server.log.getvalue()):
        assert "hidden" not in text
        assert "127.0.0.1" not in text.split("started")[-1].split("\n", 1)[1]
    assert 'transformer_requests_total{method="POST",route="/echo",status="200"}' in metrics
    assert 'route="unknown",status="404"' in metrics
    assert "transformer_queued_tokens 0.0" in metrics
    lines = [json.loads(line) for line in server.log.getvalue().splitlines()]
    (line,) = [line for line in lines if line.get("items") and line["tokens"] == 4][-1:]
    assert (line["method"], line["route"], line["status"], line["items"]) == ("POST", "/echo", 200, 1)


def test_keys(tmp_path: Path) -> None:
    """Catches a wrong or missing key that is let in, and a right one that is not, wherever clients put it."""
    path = tmp_path / "keys"
    key, other = add_key(path, "team"), add_key(path, "other")
    assert path.stat().st_mode & 0o777 == 0o600
    assert key not in path.read_text()
    with running_server(keys=path) as server:
        for headers in (
            {"Authorization": f"Bearer {key}"},
            {"Authorization": f"DeepL-Auth-Key {key}"},
            {"X-API-Key": key},
        ):
            status, _, answer = server.request("POST", "/v1/echo", {"q": "a"}, headers)
            assert (status, answer.get("owner")) == (200, "team")
        assert server.request("POST", f"/echo?api_key={other}", {"q": "a"})[2]["owner"] == "other"
        assert server.request("POST", "/echo", {"q": "a", "api_key": key})[2]["owner"] == "team"
        assert (
            server.request(
                "POST", "/echo", f"q=a&api_key={key}", {"Content-Type": "application/x-www-form-urlencoded"}
            )[0]
            == 200
        )
        status, headers, _ = server.request("POST", "/v1/echo", {"q": "a"})
        assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
        assert server.request("POST", "/echo", {"q": "a"})[0] == 401
        assert server.request("POST", "/echo", {"q": "a", "api_key": "é" + key})[0] == 403
        assert server.request("POST", "/v1/echo", {"q": "a"}, {"X-API-Key": key[:-1]})[0] == 401
        assert server.request("GET", "/ready")[0] == 200
        path.write_text(path.read_text().splitlines()[1] + "\n")
        server.call(server.access.reload)
        server.wait_until(lambda: server.request("POST", "/v1/echo", {"q": "a"}, {"X-API-Key": key})[0] == 401)
        path.write_text("# nobody\n")
        server.call(server.server._begin_reload)
        server.wait_until(lambda: "the file of keys is empty" in server.log.getvalue())
    with pytest.raises(ConfigError, match="has no key"), running_server(keys=path):
        pass


def test_files_of_keys(tmp_path: Path) -> None:
    """Catches a damaged line that silently lets nobody, or everybody, in."""
    path = tmp_path / "keys"
    key = add_key(path, "a")
    assert Keys.read(path).find(key) == "a"
    assert Keys.read(path).find("") is None
    with pytest.raises(ConfigError, match="has a key named 'a'"):
        add_key(path, "a")
    with pytest.raises(ConfigError, match="cannot name a key"):
        add_key(path, "a b")
    for damaged in ("a\n", f"a sha256:{'0' * 63}\n", path.read_text() * 2):
        path.write_text(f"# comment\n\n{damaged}")
        with pytest.raises(ConfigError, match=re.escape(f"{path}, line ")):
            Keys.read(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        Keys.read(tmp_path / "none")


def test_the_rate_of_a_client_is_limited() -> None:
    """Catches a client that takes more than its share, and one that cannot tell when to come again."""
    with running_server(limits={"per_minute": 6}) as server:
        assert server.request("POST", "/echo", {"q": "a"})[0] == 200
        status, headers, answer = server.request("POST", "/echo", {"q": "a"})
        assert (status, int(headers["Retry-After"]) in range(1, 11)) == (429, True)
        assert "too many requests" in answer["error"]
        assert server.request("GET", "/live")[0] == 200


def test_cors_is_off_unless_asked_for() -> None:
    """Catches pages of strangers that may use the server, and pages that may not although they should."""
    with running_server() as server:
        assert "access-control-allow-origin" not in server.request("GET", "/live", headers={"Origin": "https://a.b"})[1]
    with running_server(cors=("https://a.b",)) as server:
        headers = {"Origin": "https://a.b", "Access-Control-Request-Method": "POST"}
        status, response_headers, _ = server.request("OPTIONS", "/echo", headers=headers)
        assert (status, response_headers["access-control-allow-origin"]) == (200, "https://a.b")
        response_headers = server.request("GET", "/nothing", headers={"Origin": "https://a.b"})[1]
        assert response_headers["access-control-allow-origin"] == "https://a.b"
        assert "access-control-allow-origin" not in server.request("GET", "/live", headers={"Origin": "https://c.d"})[1]


def test_a_path_of_a_proxy_is_removed() -> None:
    """Catches a server below a path that answers 404 to a proxy that passes the path on."""
    with running_server(root_path="/translate") as server:
        assert server.request("GET", "/translate/live")[0] == 200
        assert server.request("GET", "/live")[0] == 200
        assert server.request("GET", "/openapi.json")[2]["servers"] == [{"url": "/translate"}]


def test_a_full_queue() -> None:
    """Catches a full server that lets clients wait, or whose probes do not tell."""
    with running_server() as server:
        server.engine.is_full = True
        status, headers, _ = server.request("POST", "/echo", {"q": "a"})
        assert (status, headers["Retry-After"]) == (429, "1")
        assert server.request("GET", "/ready")[0] == 503
        assert server.request("GET", "/health")[0] == 503
        assert server.request("GET", "/live")[0] == 200


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (EngineStatus(True, 0, 0, {"b": ModelStatus("failed", problem="it is cut")}), "model b failed: it is cut"),
        (EngineStatus(True, 0, 0, {"b": ModelStatus("stalled", problem="why")}), "model b stalled: why"),
        (EngineStatus(True, 600_000, 9, {}), "the queue is full"),
        (EngineStatus(False, 0, 0, {}), "the engine is not ready"),
    ],
)
def test_probes_tell_what_is_wrong(status: EngineStatus, message: str) -> None:
    """Catches a server that calls itself healthy although it is not, as LibreTranslate does."""
    with running_server() as server:
        server.engine.status = lambda: status  # type: ignore[method-assign]
        for path in ("/ready", "/health"):
            assert server.request("GET", path)[::2] == (503, {"status": message})
        assert server.request("GET", "/live")[::2] == (200, {"status": "ok"})


def test_openapi_describes_every_route(server: RunningServer) -> None:
    """Catches a route or a type that is missing in the description."""
    document = server.request("GET", "/openapi.json")[2]
    paths = {"/live", "/ready", "/health", "/metrics", "/openapi.json", "/echo", "/v1/echo", "/v1/stream", "/fail"}
    assert set(document["paths"]) == paths
    content = document["paths"]["/echo"]["post"]["requestBody"]["content"]
    assert set(content) == {"application/json", "application/x-www-form-urlencoded", "multipart/form-data"}
    assert "#/components/schemas/Echo" in json.dumps(content)
    assert "q" in document["components"]["schemas"]["Echo"]["properties"]
