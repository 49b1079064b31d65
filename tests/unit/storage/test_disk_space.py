"""Disk space that is checked before the work; the free bytes are faked."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from samples import digit_pairs, tiny_recipe, training_settings, write_lines
from substitution import substitute
from transformer.bundle import Bundle, save_bundle
from transformer.bundle.bundle import check_quantized_fits
from transformer.bundle.huggingface import write_published
from transformer.data.cache import PreparedDataCache
from transformer.errors import OutputError
from transformer.models import family
from transformer.run.checkpoint_space import check_first_checkpoint, checkpoint_bytes, describe_space, kept_bytes
from transformer.run.recipe import parse_recipe
from transformer.run.train import train
from transformer.storage.disk_space import check_space, describe_bytes, free_bytes
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair, train_tokenizer


class Usage(NamedTuple):
    """The result of `shutil.disk_usage`."""

    total: int
    used: int
    free: int


def leave(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    """Lets every disk have so many free bytes."""
    substitute(monkeypatch, "disk_space.disk_usage", lambda path: Usage(10**12, 0, free))


def small_bundle() -> Bundle:
    tokenizer = train_tokenizer(["abcdefgh \n"], TokenizerConfig(kind="characters"))
    config = family("gpt").config.model_validate({
        "vocab_size": tokenizer.vocab_size, "seq_len": 8, "d_model": 8, "N": 1, "h": 1
    })  # fmt: skip
    return Bundle(config, family("gpt").build(config), TokenizerPair(tokenizer, tokenizer))


def test_free_bytes_are_those_of_the_disk_of_a_new_path(tmp_path: Path) -> None:
    """Catches the disk of the current folder, and an error for folders that do not exist yet."""
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "run")
    total = shutil.disk_usage(tmp_path).total
    for path in (tmp_path, tmp_path / "a" / "b", tmp_path / "link"):
        free = free_bytes(path)
        assert free is not None
        assert 0 <= free <= total


def test_what_does_not_fit_is_refused_with_path_and_sizes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Catches a message without the path, the need, what is free or the way out, and a refusal of what just fits."""
    leave(monkeypatch, 2_500_000)
    check_space(tmp_path, 2_500_000, "a checkpoint")
    message = f"{tmp_path}: a checkpoint takes 17.3 GB, but 2.5 MB are free; free disk space, or choose another folder"
    with pytest.raises(OutputError) as caught:
        check_space(tmp_path, 17_300_000_000, "a checkpoint")
    assert str(caught.value) == message
    assert [describe_bytes(n) for n in (0, 999, 1000)] == ["0 bytes", "999 bytes", "1.0 kB"]


def test_a_disk_that_tells_nothing_refuses_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Catches a run that fails on a file system without figures."""

    def fail(path: object) -> Usage:
        raise PermissionError(path)

    substitute(monkeypatch, "disk_space.disk_usage", fail)
    check_space(tmp_path, 10**18, "a checkpoint")
    assert describe_space(tmp_path, 1000, training_settings())[1] is None
    PreparedDataCache(tmp_path).check_space([Path(__file__)])


@pytest.mark.parametrize("write", [save_bundle, check_quantized_fits])
def test_a_model_that_does_not_fit_is_not_begun(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, write: Callable[[Path, Bundle], None]
) -> None:
    """Catches a folder that is written until the disk is full."""
    leave(monkeypatch, 100)
    with pytest.raises(OutputError, match=r"the model.* takes .* kB, but 100 bytes are free; free disk space"):
        write(tmp_path / "model", small_bundle())
    assert list(tmp_path.iterdir()) == []


def test_an_export_that_does_not_fit_is_not_begun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Catches a published folder that is written until the disk is full."""
    leave(monkeypatch, 100)
    config = family("bert").config.model_validate({"vocab_size": 20, "d_model": 8, "N": 1, "h": 1, "d_ff": 8})
    with pytest.raises(OutputError, match="the model takes"):
        write_published(Bundle(config, family("bert").build(config), None), tmp_path / "hf")
    assert list(tmp_path.iterdir()) == []


def test_checkpoints_are_measured_as_they_are_written(tmp_path: Path) -> None:
    """Catches a formula that differs from the files of a checkpoint."""
    model = torch.nn.Linear(100, 50)
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    assert checkpoint_bytes(n_parameters, None) == 4 * 3 * n_parameters
    assert checkpoint_bytes(n_parameters, 0.9) == 4 * 4 * n_parameters
    one = checkpoint_bytes(1000, None)
    assert kept_bytes(1000, training_settings(keep_last=2)) == 4 * one
    assert kept_bytes(1000, training_settings(keep_last=1, average_best=5)) == 8 * one + one // 3


def test_a_run_warns_if_not_all_checkpoints_fit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Catches a refusal where the first checkpoint fits, and a warning about checkpoints that are there already."""
    settings, one = training_settings(), checkpoint_bytes(1000, None)
    leave(monkeypatch, one)
    check_first_checkpoint(tmp_path, 1000, None)
    text, warning = describe_space(tmp_path, 1000, settings)
    assert text == "12.0 kB each, at most 48.0 kB together; 12.0 kB are free"
    assert warning is not None
    assert warning.startswith(f"warning: {tmp_path}: the checkpoints take up to 48.0 kB, but 12.0 kB are free; ")
    (tmp_path / "checkpoints" / "step-1").mkdir(parents=True)
    (tmp_path / "checkpoints" / "step-1" / "x").write_bytes(bytes(3 * one))
    assert describe_space(tmp_path, 1000, settings)[1] is None
    leave(monkeypatch, one - 1)
    with pytest.raises(OutputError, match=r"a checkpoint takes 12\.0 kB, but 12\.0 kB are free; .*--run"):
        check_first_checkpoint(tmp_path, 1000, None)


def test_a_run_is_refused_before_its_data_is_prepared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Catches hours of preparation for a run that cannot save, and a folder that is left behind."""
    source, target = (write_lines(tmp_path / str(n), [pair[n] for pair in digit_pairs(60)]) for n in (0, 1))
    leave(monkeypatch, 1000)
    with pytest.raises(OutputError, match=f"{tmp_path / 'run'}: a checkpoint takes"):
        train(parse_recipe(tiny_recipe((source, target))), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_prepared_data_that_cannot_fit_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Catches a refusal of texts that might fit, and silence where they hardly will."""
    text = tmp_path / "text"
    text.write_bytes(bytes(16_000))
    for free, is_refused, n_notes in ((999, True, 0), (1000, False, 1), (7_999, False, 1), (8_000, False, 0)):
        cache = PreparedDataCache(tmp_path / "prepared")
        leave(monkeypatch, free)
        if is_refused:
            with pytest.raises(OutputError, match=r"prepared: the prepared data takes 1\.0 kB, but 999 bytes are free"):
                cache.check_space([text])
        else:
            cache.check_space([text])
        assert len(cache.notes) == n_notes, free
