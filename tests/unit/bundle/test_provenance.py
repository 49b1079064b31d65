"""The record of a model's origin."""

from transformer.bundle.provenance import without_folders


def test_published_record_has_no_folders_of_the_author() -> None:
    """Catches a model that shows where its training text lay on its author's machine."""
    record = {
        "recipe": {"data": {"source": ["/home/anna/a.en", "b/c.en"], "pairs": None, "workers": 2}, "model": {"h": 2}},
        "data": {"files": [{"name": "/home/anna/a.en", "read": 3}], "kept": 3},
        "step": 5,
    }
    assert without_folders(record) == {
        "recipe": {"data": {"source": ["a.en", "b/c.en"], "pairs": None, "workers": 2}, "model": {"h": 2}},
        "data": {"files": [{"name": "a.en", "read": 3}], "kept": 3},
        "step": 5,
    }
    assert record["data"]["files"][0]["name"] == "/home/anna/a.en"  # type: ignore[index]
    assert without_folders({}) == {}
