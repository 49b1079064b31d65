"""Prepared data: it is created once, reused, never incomplete, and independent of how it is created."""

import json
import multiprocessing
import os
import re
import shutil
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

from samples import write_lines
from substitution import substitute
from transformer.data.cache import PreparedDataCache
from transformer.data.config import DataConfig
from transformer.data.encoding import SMALL_PAIRS, Block, worker_count
from transformer.data.prepare import Corpus, CorpusBuilder
from transformer.data.progress import show_progress
from transformer.errors import DataError, WorkerError
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair

TOKENIZER = TokenizerConfig(vocab_size=290)
HELD_OUT = ("validation_source", "validation_target", "test_source")


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataConfig:
    """Two text files and a table with duplicates within and across files, in blocks of 101 pairs."""
    substitute(monkeypatch, "tokens.BLOCK_PAIRS", 101)
    sources = [f"word {n % 53} {'very ' * (n % 7)}{n % 199}" for n in range(700)]
    source = write_lines(tmp_path / "a.en", sources[:500])
    target = write_lines(tmp_path / "a.de", [f"Wort {n % 199}" for n in range(500)])
    pairs = write_lines(tmp_path / "b.tsv", [f"{sources[n]}\tWort {n % 199}" for n in range(490, 600)])
    return DataConfig(source=str(source), target=str(target), pairs=str(pairs), weights=(1, 2))


def prepared(settings: DataConfig, folder: Path, seed: int = 1) -> Corpus:
    preparation = CorpusBuilder(settings, seed, folder)
    return preparation.prepare(preparation.train_tokenizers(TOKENIZER), (60, 60))


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_the_same_for_any_number_of_processes(settings: DataConfig, tmp_path: Path) -> None:
    """Catches blocks out of order, and a fingerprint that depends on the number of processes."""
    folder_contents = []
    for number in (None, 1, 3):
        prepared(settings.model_copy(update={"workers": number}), tmp_path / str(number))
        folder_contents.append(contents(tmp_path / str(number)))
    assert folder_contents[0] == folder_contents[1] == folder_contents[2]


def test_account_of_several_files(settings: DataConfig, tmp_path: Path) -> None:
    """Catches duplicates in another file that are kept, and weights assigned to the wrong examples."""
    corpus = prepared(settings, tmp_path / "x")
    report = corpus.report
    lines = [Path(str(path)).read_text().splitlines() for path in (settings.source, settings.target, settings.pairs)]
    texts = [*zip(*lines[:2], strict=True), *(tuple(line.split("\t")) for line in lines[2])]
    seen = set(texts)
    assert report.read == 610 == report.kept + report.held_out + report.dropped.total()
    assert report.dropped["duplicate"] == len(texts) - len(seen) > 0
    assert [file["read"] for file in report.files] == [500, 110]
    assert report.kept == sum(file["kept"] for file in report.files) == len(corpus.train.lengths)
    assert [part.weight for part in corpus.train.mix] == [1, 2]
    assert any(f"b.tsv: read 110, kept {report.files[1]['kept']}, weight 2" in text for _, text in report.rows())


def test_what_is_there_is_not_done_again(settings: DataConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a start that encodes the corpus again: the second one must not read any pairs."""
    first = prepared(settings, tmp_path / "x")
    substitute(monkeypatch, "inputs.CorpusFile.read", None)
    again = prepared(settings.model_copy(update={"weights": (1.0, 3.0), "workers": 2}), tmp_path / "x")
    assert again.validation_text == first.validation_text
    assert {**again.report.to_dict(), "files": 0} == {**first.report.to_dict(), "files": 0}
    assert (again.train.lengths == first.train.lengths).all()
    ids = np.arange(7, dtype=np.uint32)
    assert (again.train.fetch(ids).src == first.train.fetch(ids).src).all()
    assert again.train.mix[1].weight == 3


@pytest.mark.parametrize(
    "changed",
    [
        {"columns": (2, 1)}, {"max_length_ratio": 1.5}, {"drop_duplicates": False}, {"validation_pairs": 7},
        {"invalid_utf8": "replace"}, {"test_source": "a.en"},
        {"validation_source": "a.en", "validation_target": "a.de"},
    ],
)  # fmt: skip
def test_whatever_decides_the_tokens_is_in_the_fingerprint(
    settings: DataConfig, tmp_path: Path, changed: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches tokens of other settings that are reused."""
    monkeypatch.chdir(tmp_path)
    prepared(settings, tmp_path / "x")
    before = set((tmp_path / "x").glob("tokens-*"))
    prepared(settings.model_copy(update=changed), tmp_path / "x")
    assert len(set((tmp_path / "x").glob("tokens-*")) - before) == 1


def test_an_edited_text_another_seed_and_model_are_other_corpora(settings: DataConfig, tmp_path: Path) -> None:
    """Catches a store keyed by file names."""
    prepared(settings, tmp_path / "x")
    prepared(settings, tmp_path / "x", seed=2)
    tokenizers = CorpusBuilder(settings, 1, tmp_path / "x").train_tokenizers(TOKENIZER)
    CorpusBuilder(settings, 1, tmp_path / "x").prepare(tokenizers, (59, 60))
    with Path(str(settings.pairs)).open("a") as file:
        file.write("one more\tnoch eins\n")
    assert prepared(settings, tmp_path / "x").report.read == 611
    assert len(list((tmp_path / "x").glob("tokens-*"))) == 4


@pytest.mark.parametrize("file", ["train/tokens.arrow", "train/examples.arrow", "account.json", "manifest.json"])
@pytest.mark.parametrize("how", ["short", "flipped", "gone"])
def test_a_damaged_store_is_made_again(settings: DataConfig, tmp_path: Path, file: str, how: str) -> None:
    """Catches training on tokens that are not those of the text."""
    expected = prepared(settings, tmp_path / "x").report.to_dict()
    before = contents(tmp_path / "x")
    (store,) = (tmp_path / "x").glob("tokens-*")
    path = store / file
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(content if how == "flipped" else content[:-1])
    corpus = prepared(settings, tmp_path / "x")
    assert corpus.report.to_dict() == expected
    assert contents(tmp_path / "x") == before
    assert len(corpus.notes) == 1
    assert corpus.notes[0].startswith("prepared again: ")


def test_a_store_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """Catches an incomplete store that a later run uses, also one left by a killed process."""
    folder = PreparedDataCache(tmp_path / "x")

    def write_half(path: Path) -> None:
        (path / "file").write_text("half")
        raise DataError("no more")

    with pytest.raises(DataError, match="no more"):
        folder.get_or_create("thing", {"a": 1}, write_half)
    assert not [path for path in (tmp_path / "x").iterdir() if path.is_dir()]
    entry = folder.get_or_create("thing", {"a": 1}, lambda path: (path / "file").write_text("whole") and None)
    leftover = entry.with_name(f".writing-{entry.name}-7")
    shutil.copytree(entry, leftover)
    shutil.rmtree(entry)
    (leftover / "other").write_text("half")
    entry = folder.get_or_create("thing", {"a": 1}, lambda path: (path / "file").write_text("whole") and None)
    assert sorted(path.name for path in entry.iterdir()) == ["file", "manifest.json", "manifest.sha256"]
    assert not leftover.exists()


def test_of_two_at_once_one_writes_and_both_find(tmp_path: Path) -> None:
    """Catches two processes that write the same store at the same time."""
    started, proceed = threading.Event(), threading.Event()
    written: list[str] = []
    entries: list[Path] = []

    def prepare(name: str) -> None:
        def write(path: Path) -> None:
            started.set()
            assert proceed.wait(60)
            written.append(name)
            (path / "file").write_text(name)

        entries.append(PreparedDataCache(tmp_path).get_or_create("thing", {}, write))

    threads = [threading.Thread(target=prepare, args=(name,)) for name in "ab"]
    threads[0].start()
    assert started.wait(60)
    threads[1].start()
    proceed.set()
    for thread in threads:
        thread.join(60)
    assert written == ["a"]
    assert entries[0] == entries[1]
    assert (entries[0] / "file").read_text() == "a"


@pytest.mark.parametrize("key", ["validation_source", "test_source"])
def test_held_out_files_that_change_meanwhile_are_refused(settings: DataConfig, tmp_path: Path, key: str) -> None:
    """Catches validation pairs stored under the fingerprint of others, which a later run would use."""
    files = {name: write_lines(tmp_path / name, ["word"]) for name in HELD_OUT}
    preparation = CorpusBuilder(settings.model_copy(update={k: str(v) for k, v in files.items()}), 1, tmp_path / "x")
    files[key].write_text("other\n")
    with pytest.raises(DataError, match=f"{key} was changed while it was prepared"):
        preparation.prepare(preparation.train_tokenizers(TokenizerConfig(vocab_size=300)), (99, 99))


def test_a_file_that_changes_meanwhile_is_refused(settings: DataConfig, tmp_path: Path) -> None:
    """Catches tokens stored under the fingerprint of another text."""
    preparation = CorpusBuilder(settings, 1, tmp_path / "x")
    with Path(str(settings.source)).open("a") as file:
        file.write("one more\n")
    with Path(str(settings.target)).open("a") as file:
        file.write("noch eins\n")
    with pytest.raises(DataError, match=r"a.en was changed while it was prepared; start again"):
        preparation.scan()
    assert not list((tmp_path / "x").glob("survey-*"))


def test_a_process_that_is_killed_is_told(
    settings: DataConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches an endless wait for a process that was killed, and a store that it leaves."""

    def killed(_: object, block: Block) -> None:
        assert len(block.pairs) == 101
        os.kill(os.getpid(), signal.SIGKILL)

    substitute(monkeypatch, "encoding.BlockEncoder.encode", killed)  # forked processes have it too
    message = r"a worker process was killed, perhaps for lack of memory; set data\.workers lower"
    with pytest.raises(WorkerError, match=message):
        prepared(settings.model_copy(update={"workers": 2}), tmp_path / "x")
    assert not list((tmp_path / "x").glob("*tokens-*/*"))
    assert not multiprocessing.active_children()


def test_a_refusal_within_the_text_ends_the_processes(settings: DataConfig, tmp_path: Path) -> None:
    """Catches processes and a store that remain after a corpus is refused."""
    tokenizers = CorpusBuilder(settings, 1, tmp_path / "x").train_tokenizers(TOKENIZER)
    with Path(str(settings.source)).open("ab") as file:
        file.write(b"\xff\n")
    with Path(str(settings.target)).open("a") as file:
        file.write("x\n")
    with pytest.raises(DataError, match=r"a.en, line 501, byte 1: 0xff is not UTF-8"):
        CorpusBuilder(settings.model_copy(update={"workers": 2}), 1, tmp_path / "x").prepare(tokenizers, (60, 60))
    assert not list((tmp_path / "x").glob("*tokens-*/*"))
    assert not multiprocessing.active_children()


def test_small_corpora_are_encoded_at_once() -> None:
    """Catches worker processes for a corpus that is encoded before they have started."""
    assert worker_count(None, SMALL_PAIRS - 1) == 0
    assert worker_count(None, SMALL_PAIRS) >= 1
    assert worker_count(3, 7) == 3


def test_daemonic_processes_encode_by_themselves() -> None:
    """Catches worker processes that are started where Python allows none, such as in a pool of the caller."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(worker_count, (3, SMALL_PAIRS)) == 0


def test_tokenizers_of_a_large_corpus_learn_from_a_part(settings: DataConfig, tmp_path: Path) -> None:
    """Catches a limit that only takes the first pairs: words at the end must be learned too."""
    lines = ["aaaa bbbb"] * 500 + ["zzzz yyyy"] * 500
    files = [str(write_lines(tmp_path / name, lines)) for name in ("s", "t")]
    config = DataConfig(source=files[0], target=files[1])
    tokenizer = TokenizerConfig(vocab_size=300, training_pairs=7)
    actual = CorpusBuilder(config, 1, tmp_path / "x").train_tokenizers(tokenizer)
    expected = TokenizerPair.train(lambda: lines[::143], lambda: lines[::143], tokenizer)
    assert actual.source.to_json() == expected.source.to_json()
    assert len(actual.source.encode("zzzz")) == 1


def test_progress_without_a_terminal_is_plain_lines(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches control characters in a log, and a command that reports nothing for an hour, or too much."""
    with show_progress() as progress:
        for done in range(100):
            progress("tokens", done, 100)
    assert capfd.readouterr().err == ""
    substitute(monkeypatch, "progress.LINE_SECONDS", 0.0)
    with show_progress() as progress:
        progress("survey", 1, None)
        progress("survey", 2, None)
        progress("tokens", 0, 2000)
        progress("tokens", 1000, 2000)
    captured = capfd.readouterr()
    assert re.fullmatch(
        r"survey: 2, [\d,]+ a second\n"
        r"tokens: 1,000 of 2,000 \(50%\), [\d,]+ a second\n",
        captured.err,
    )
    assert not captured.out
    with show_progress(quiet=True) as progress:
        progress("tokens", 1, 3)
        progress("tokens", 2, 3)
    assert not capfd.readouterr().err


def test_a_manifest_names_every_file(settings: DataConfig, tmp_path: Path) -> None:
    """Catches a file whose damage would not be detected."""
    prepared(settings, tmp_path / "x")
    for store in (tmp_path / "x").glob("*-*/"):
        if store.is_dir():
            manifest = json.loads((store / "manifest.json").read_text())
            assert {*manifest["files"], "manifest.json", "manifest.sha256"} == contents(store).keys()
