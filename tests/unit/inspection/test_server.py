import json
import re
import socket
import struct
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

from transformer.bundle import load_bundle
from transformer.inspection.server import KEPT_PASSES, Inspector, InspectorServer


@pytest.fixture(scope="module")
def server(tiny_run: Path) -> Iterator[InspectorServer]:
    with InspectorServer(Inspector(load_bundle(tiny_run), "one two three")) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def ask(
    server: InspectorServer,
    path: str,
    body: object = None,
    host: str = "",
    origin: str = "",
    token: str | None = None,
    query: str = "",
) -> tuple[int, bytes]:
    """Sends one request and returns status and body."""
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    headers = {"Host": host or f"127.0.0.1:{server.server_port}"} | ({"Origin": origin} if origin else {})
    content = None if body is None else json.dumps(body)
    token = parse_qs(urlsplit(server.address).query)["token"][0] if token is None else token
    connection.request("GET" if body is None else "POST", f"{path}?token={token}&{query}", content, headers)
    response = connection.getresponse()
    result = response.status, response.read()
    connection.close()
    return result


def test_the_page_needs_the_token_of_its_address(server: InspectorServer) -> None:
    """Catches a page that any other program or user of the machine can read."""
    status, page = ask(server, "/")
    assert status == 200
    assert b"Backward Propagation" in page
    assert ask(server, "/", token="")[0] == ask(server, "/", token="x" * 32)[0] == 403


@pytest.mark.parametrize(("host", "origin"), [("evil.example", ""), ("", "http://evil.example"), ("", "null")])
def test_other_sites_cannot_ask(server: InspectorServer, host: str, origin: str) -> None:
    """Catches a name of another site that points to 127.0.0.1, and a request that its page makes."""
    assert ask(server, "/", host=host, origin=origin)[0] == 403


def test_tensors_are_sent_as_numbers(server: InspectorServer) -> None:
    """Catches a wrong byte order, shape or pass."""
    status, answer = ask(server, "/pass", {})
    facts = json.loads(answer)
    assert status == 200
    softmax = next(step for step in facts["steps"] if step["kind"] == "softmax")
    index = softmax["output"]["tensor"]
    weights = np.frombuffer(ask(server, f"/tensor/{facts['pass']}/{index}")[1], "<f4")
    rows = weights.reshape(facts["tensors"][index]["shape"]).sum(axis=-1)
    np.testing.assert_allclose(rows, 1.0, rtol=1e-6)
    matrix = next(one for one in facts["steps"] if one["kind"] == "linear")["inputs"][1]["tensor"]
    rows, columns = facts["tensors"][matrix]["shape"]
    whole = np.frombuffer(ask(server, f"/tensor/{facts['pass']}/{matrix}")[1], "<f4").reshape(rows, columns)
    for query, expected in (("row=3", whole[3]), ("column=5", whole[:, 5])):
        numbers = np.frombuffer(ask(server, f"/tensor/{facts['pass']}/{matrix}", query=query)[1], "<f4")
        np.testing.assert_array_equal(numbers, expected)
    assert ask(server, f"/tensor/{facts['pass']}/{matrix}", query=f"row={rows}")[0] == 404
    assert ask(server, f"/tensor/{facts['pass']}/99999")[0] == ask(server, "/none")[0] == 404


def test_changes_give_another_pass(server: InspectorServer) -> None:
    """Catches controls that change nothing, and an invalid change that ends the server."""
    plain, hot, masked = (
        json.loads(ask(server, "/pass", body)[1]) for body in ({}, {"temperature": 10.0}, {"mask_source": [0]})
    )
    assert hot["probabilities"][0][0]["p"] < plain["probabilities"][0][0]["p"]
    assert masked["loss"]["value"] != plain["loss"]["value"]
    status, answer = ask(server, "/pass", {"mask_source": [99]})
    assert status == 400
    assert "mask_source=[99]" in json.loads(answer)["error"]
    for heads in ({"nothing": [0]}, {"encoder.layers.0.self_attention_block": [99]}):
        status, answer = ask(server, "/pass", {"mute_heads": heads})
        assert status == 400
        assert "mute_heads=" in json.loads(answer)["error"]
    assert ask(server, "/pass", {"temperature": "warm"})[0] == ask(server, "/pass", [1])[0] == 400
    assert ask(server, "/")[0] == 200


def test_untrained_models_are_computed_once_for_a_text(server: InspectorServer) -> None:
    """Catches changes that take several times as long as the pass, and norms of another text."""
    plain, muted, other = (
        json.loads(ask(server, "/pass", body)[1])["gradient_norms"]
        for body in ({}, {"mask_source": [0]}, {"text": "four five"})
    )
    assert muted[1:] == plain[1:]
    assert muted[0] != plain[0]
    assert other[1:] != plain[1:]


def test_earlier_passes_are_computed_again(server: InspectorServer) -> None:
    """Catches a page whose numbers are gone once another page has asked for a few passes."""
    first = json.loads(ask(server, "/pass", {"temperature": 3.0})[1])
    number = first["steps"][-1]["inputs"][0]["tensor"]
    before = ask(server, f"/tensor/{first['pass']}/{number}")
    for temperature in range(4, 4 + KEPT_PASSES + 1):
        ask(server, "/pass", {"temperature": float(temperature)})
    assert first["pass"] not in server.inspector._passes  # pyright: ignore[reportPrivateUsage]
    assert ask(server, f"/tensor/{first['pass']}/{number}") == before
    status, answer = ask(server, "/tensor/none/0")
    assert status == 400
    assert "no longer kept" in json.loads(answer)["error"]


def test_an_unknown_pass_leads_back(server: InspectorServer) -> None:
    """Catches a page of JSON or a bare word, without the way to a page that works."""
    status, page = ask(server, "/", query="pass=0123456789abcdef")
    assert status == 404
    text = page.decode()
    assert text.startswith("<!doctype html>")
    assert "no longer kept" in text
    link = re.search(r'<a href="/\?token=([^"&]+)">Open the first pass</a>', text)
    assert link
    assert ask(server, "/", token=link[1])[0] == 200
    assert ask(server, "/nowhere")[1] == b"There is no such page; open the address that transformer inspect printed."


def test_a_text_that_is_not_utf8_is_refused(server: InspectorServer) -> None:
    """Catches a half of a surrogate pair that ends in an answer without a reason."""
    for body in ({"text": "a \udcff b"}, {"text": "one", "target": "\udcff"}):
        status, answer = ask(server, "/pass", body)
        assert status == 400
        assert "is not UTF-8" in json.loads(answer)["error"]


def test_a_browser_that_goes_away_is_no_error(server: InspectorServer, capfd: pytest.CaptureFixture[str]) -> None:
    """Catches a traceback for a connection that is closed while its answer is sent."""
    path = server.address.partition(str(server.server_port))[2]
    for _ in range(3):
        connection = socket.create_connection(("127.0.0.1", server.server_port))
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.server_port}\r\n\r\n".encode())
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    assert ask(server, "/")[0] == 200
    try:
        raise ConnectionResetError
    except ConnectionResetError:
        InspectorServer.handle_error(server, None, ("127.0.0.1", 1))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"temperature": 1e999}', b"\xff", b'{"mask_source": [1e400]}'])
def test_a_request_that_is_no_pass_is_refused(server: InspectorServer, body: bytes) -> None:
    """Catches a traceback and a connection that hangs for a body of something else."""
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    path = server.address.partition(str(server.server_port))[2].replace("/?", "/pass?")
    connection.request("POST", path, body, {"Host": f"127.0.0.1:{server.server_port}"})
    response = connection.getresponse()
    assert response.status == 400
    assert "error" in json.loads(response.read())
    connection.close()
