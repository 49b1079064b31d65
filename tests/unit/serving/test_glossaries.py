"""Stored glossaries: owners, files, and formats of terms."""

import asyncio
import errno
import os
from pathlib import Path

import pytest

from transformer.errors import ConfigError
from transformer.serving.errors import ServiceError
from transformer.serving.glossaries import Dictionary, Glossaries, Glossary, make_dictionary
from transformer.serving.settings import Limits, ServerSettings

TERMS = Dictionary("en", "de", (("dog", "Hund"),))


def store(folder: Path | None = None) -> Glossaries:
    limits = Limits(glossaries=2, glossary_terms=3)
    return Glossaries(ServerSettings(models={"en-de": "en-de"}, glossaries=folder, limits=limits))


def test_files_are_read_again(tmp_path: Path) -> None:
    """Catches glossaries that are lost when the server restarts, and a deleted one that comes back."""
    glossaries, glossary, other = store(tmp_path), Glossary("ä ☃", (TERMS,)), Glossary("b", (TERMS,))
    asyncio.run(glossaries.put("owner", glossary))
    asyncio.run(glossaries.put("owner", other))
    asyncio.run(glossaries.delete("owner", other.id))
    again = store(tmp_path)
    assert again.owned("owner") == [glossary]
    assert again.get("owner", glossary.id) == glossary


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, ""), PermissionError(errno.EACCES, "")])
def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    """Catches a full disk that is answered with "the server failed", and a glossary that is only half stored."""
    glossaries, glossary = store(tmp_path), Glossary("a", (TERMS,))
    asyncio.run(glossaries.put("owner", glossary))

    def fail(*_: object, **__: object) -> None:
        raise error

    for place, name, change in (
        (os, "open", lambda: glossaries.put("owner", Glossary("b", (TERMS,)))),
        (Path, "unlink", lambda: glossaries.delete("owner", glossary.id)),
    ):
        monkeypatch.setattr(place, name, fail)
        with pytest.raises(ServiceError, match=os.strerror(error.errno or 0)) as failure:
            asyncio.run(change())
        monkeypatch.undo()
        assert failure.value.status == 500
        assert str(tmp_path) not in failure.value.message
    assert glossaries.owned("owner") == store(tmp_path).owned("owner") == [glossary]


def test_folders_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    """Catches a server that starts with a folder in which it can store nothing, or fails at a damaged file."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        store(tmp_path / "file")
    (tmp_path / "owner").mkdir()
    for content in ("{", "[]", '{"name": "a", "dictionaries": [{}], "id": "1", "created": ""}'):
        (tmp_path / "owner" / "a.json").write_text(content)
        with pytest.raises(ConfigError, match="not a stored glossary"):
            store(tmp_path)


@pytest.mark.parametrize("owner", ["", "../../x", "a/b", "x" * 5000])
def test_names_of_owners_are_not_paths(tmp_path: Path, owner: str) -> None:
    """Catches a name of a key that leads out of the folder, or cannot be the name of a file."""
    folder = tmp_path / "glossaries"
    asyncio.run(store(folder).put(owner, Glossary("name", (TERMS,))))
    assert [path.parent.parent for path in tmp_path.rglob("*.json")] == [folder]
    assert len(store(folder).owned(owner)) == 1


def test_owners_are_separate() -> None:
    """Catches a client that reads or deletes the glossary of another one."""
    glossaries, glossary = store(), Glossary("a", (TERMS,))
    asyncio.run(glossaries.put("one", glossary))
    assert glossaries.owned("two") == []
    for use in (lambda: glossaries.get("two", glossary.id), lambda: asyncio.run(glossaries.delete("two", glossary.id))):
        with pytest.raises(ServiceError, match="no glossary") as failure:
            use()
        assert failure.value.status == 404


def test_identifiers_are_not_paths(tmp_path: Path) -> None:
    """Catches an identifier in a path of a request that names a file elsewhere."""
    secret = tmp_path / "secret.json"
    secret.write_text("{}", encoding="utf-8")
    glossaries = store(tmp_path / "glossaries")
    with pytest.raises(ServiceError):
        asyncio.run(glossaries.delete("", "../../secret"))
    assert secret.exists()


def test_limits() -> None:
    """Catches clients that fill memory or disk, and a glossary that cannot be changed when the limit is reached."""
    glossaries = store()
    first = Glossary("a", (TERMS,))
    asyncio.run(glossaries.put("", first))
    asyncio.run(glossaries.put("", Glossary("b", (TERMS,))))
    asyncio.run(glossaries.put("", first.merging(Dictionary("en", "de", (("cat", "Katze"), ("dog", "Hündin"))))))
    assert glossaries.get("", first.id).dictionaries[0].terms == (("dog", "Hündin"), ("cat", "Katze"))
    for glossary in (
        Glossary("c", (TERMS,)),
        first.replacing(Dictionary("en", "de", tuple((str(number), "x") for number in range(4)))),
        Glossary(" ", (TERMS,), first.id),
        Glossary("twice", (TERMS, TERMS), first.id),
    ):
        with pytest.raises(ServiceError):
            asyncio.run(glossaries.put("", glossary))


@pytest.mark.parametrize(
    ("entries", "form", "terms"),
    [
        ("\ufeffdog\tHund\r\n\r\n cat \t Katze ", "tsv", {"dog": "Hund", "cat": "Katze"}),
        ('"a ""b""","c, d"\ndog,Hund,en,de\n', "csv", {'a "b"': "c, d", "dog": "Hund"}),
    ],
)
def test_entries(entries: str, form: str, terms: dict[str, str]) -> None:
    """Catches terms with quotes, spaces or line ends of the format in them."""
    assert dict(make_dictionary("EN", "de-AT", entries, form).terms) == terms


@pytest.mark.parametrize(
    ("source", "entries"),
    [("en", ""), ("en", "dog"), ("en", "dog\t"), ("en", "a\tb\na\tc"), ("en", "a\x00\tb"), ("de", "a\tb"),
     ("?", "a\tb"), ("en", f"{'a' * 1025}\tb")],
)  # fmt: skip
def test_invalid_entries(source: str, entries: str) -> None:
    """Catches terms that would be stored and then make every translation fail."""
    with pytest.raises(ServiceError) as failure:
        make_dictionary(source, "de", entries, "tsv")
    assert failure.value.status == 400
