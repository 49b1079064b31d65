"""Settings of the server from files and options, and its log."""

import io
from pathlib import Path

import pytest

from commands import run
from serving_http import running_server
from transformer.errors import ConfigError
from transformer.serving.configuration import load_settings, parse_models
from transformer.serving.keys import Keys
from transformer.serving.log import ServerLog
from transformer.serving.server import bind

FILE = """
port = 6000
beam = 4
keys = "keys.txt"
[models]
first = "runs/first"
[limits]
per_minute = 60
"""


def test_options_override_the_file(tmp_path: Path) -> None:
    """Catches an option that is ignored, a model that gets lost, and a path that depends on the working folder."""
    path = tmp_path / "server.toml"
    path.write_text(FILE)
    settings = load_settings(path, ["en-de", "second=runs/second"], {"port": 7000, "host": None})
    assert settings.models == {"first": "runs/first", "en-de": "en-de", "second": "runs/second"}
    assert (settings.port, settings.host, settings.beam, settings.limits.per_minute) == (7000, "127.0.0.1", 4, 60)
    assert settings.keys == tmp_path / "keys.txt"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prot = 1", "prot is not a known key"),
        ("[limits]\nbodies = 1", "limits.bodies is not a known key"),
        ("port = 70000", "port=70000 must be less than or equal to 65535"),
        ("[limits]\nrequest_seconds = 0", "limits.request_seconds=0 must be greater than 0"),
        ("port = ", "is not a TOML file"),
        ('host = " "', "host=' ' is empty"),
        ('root_path = "mt"', "root_path='mt' is not a path from the root"),
        ('cors = ["example.com"]', "'example.com' is not an origin"),
        ('cors = ["*", "https://example.com/"]', "'https://example.com/' is not an origin"),
        ('[models]\n"" = "en-de"', "'' cannot name a model"),
        ('[models]\n"a\\n" = "en-de"', "cannot name a model"),
        ('[models]\na = " "', "models.a=' ' is empty"),
    ],
)
def test_mistakes_in_the_file_are_named(tmp_path: Path, text: str, message: str) -> None:
    """Catches a misspelt limit that is silently not in force."""
    path = tmp_path / "server.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_settings(path, ["en-de"])


def test_usual_values_are_accepted(tmp_path: Path) -> None:
    """Catches a check of origins, paths or names that refuses what works."""
    path = tmp_path / "server.toml"
    path.write_text(
        'host = "::1"\nroot_path = "/a/mt/"\ncors = ["*", "null", "http://localhost:8080", "app://x", "https://[::1]"]\n'
        '[models]\n"org/name ä" = "en-de"\n'
    )
    settings = load_settings(path)
    assert (settings.root_path, list(settings.models)) == ("/a/mt", ["org/name ä"])


@pytest.mark.parametrize("host", ["ä..x", "a\0b", "x" * 300])
def test_a_host_that_is_no_address_is_refused(host: str) -> None:
    """Catches a traceback in place of a line."""
    with pytest.raises(ConfigError, match="cannot be used"):
        bind(host, 0)


def test_names_of_models(tmp_path: Path) -> None:
    """Catches two models that clients cannot tell apart, and names with the path of a folder."""
    folder = tmp_path / "runs" / "first"
    folder.mkdir(parents=True)
    assert parse_models([f"{folder}/", "en-de", "de=de-en"]) == {"first": f"{folder}/", "en-de": "en-de", "de": "de-en"}
    with pytest.raises(ConfigError, match="two models are named 'first'"):
        parse_models([str(folder), "first=en-de"])
    with pytest.raises(ConfigError, match="not of the form"):
        parse_models(["=en-de"])
    with pytest.raises(ConfigError, match="no model is given"):
        load_settings()


def test_a_key_is_made_on_the_command_line(tmp_path: Path) -> None:
    """Catches a key that the server does not know, and one without a file that is lost."""
    path = tmp_path / "keys"
    result = run("serve", "--new-key", "team", "--keys", path)
    assert Keys.read(path).find(result.stdout.strip()) == "team"
    assert "--new-key needs the file" in run("serve", "--new-key", "team").stderr


def test_log_lines_stay_lines() -> None:
    """Catches a text of a client that forges lines of the log, or commands a terminal."""
    for form in ("json", "text"):
        stream = io.StringIO()
        ServerLog(form, stream).write("request", texts=["a\nb\x1b[2J\u2028\x85"], route="/a", client=None)
        (line,) = stream.getvalue().splitlines()
        assert line.isprintable()
        assert "client" not in line


def test_texts_are_logged_only_if_asked_for() -> None:
    """Catches texts of clients in the log, and a log without them where they are wanted."""
    for log_texts in (False, True):
        with running_server(log_texts=log_texts) as server:
            server.request("POST", "/echo", {"q": ["some words"]})
            server.wait_until(lambda: '"route": "/echo"' in server.log.getvalue())
            assert ("some words" in server.log.getvalue()) == log_texts


def test_changed_models_are_looked_for() -> None:
    """Catches an interval of looks for changed models that does nothing, or ends after a failure."""
    with running_server(watch_seconds=0.01) as server:
        server.wait_until(lambda: server.engine.n_reloads > 2)
        failing = server.engine.reload

        async def fail() -> None:
            await failing()
            raise OSError("gone")

        server.engine.reload = fail  # type: ignore[method-assign]
        seen = server.engine.n_reloads
        server.wait_until(lambda: server.engine.n_reloads > seen + 2)
        assert '"event": "reload failed", "error": "OSError"' in server.log.getvalue()
