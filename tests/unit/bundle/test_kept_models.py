"""Published models that are kept on this machine, and what the list of models says of them."""

from pathlib import Path

import pytest

from transformer.bundle.kept_models import FOLDER_VARIABLE, remove_kept_model
from transformer.cli.models import _languages
from transformer.errors import BundleError


@pytest.mark.parametrize("name", ["../other", "owner/../../other", "{outside}/other"])
def test_nothing_outside_the_folder_of_the_models_is_removed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a name that leads out of the folder."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "models"))
    (tmp_path / "models").mkdir()
    (tmp_path / ".other.download").mkdir()
    with pytest.raises(BundleError, match="is not kept"):
        remove_kept_model(name.format(outside=tmp_path))
    assert (tmp_path / ".other.download").is_dir()


def test_what_an_interrupted_download_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a check of names that also refuses what is kept."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    for folder in (tmp_path / ".one.download", tmp_path / "owner/.two.download"):
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(b"12345")
    assert [remove_kept_model(name) for name in ("one", "owner/two")] == [5, 5]
    assert list(tmp_path.iterdir()) == []


def test_the_list_names_one_direction_or_several() -> None:
    """Catches a traceback for a model of several languages."""
    assert _languages({"languages": {"source": "en", "target": "de"}}) == "en to de"
    assert _languages({"languages": {"pairs": [["en", "de"], ["de", "fr"]]}}) == "en-de, de-fr"
    assert _languages({"languages": {"target": "de"}}) == "de"
    assert _languages({}) == ""
