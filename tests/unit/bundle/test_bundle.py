"""A model folder: complete, unchanged, harmless, or refused."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from transformer.bundle import Bundle, load_bundle, save_bundle
from transformer.errors import BundleError
from transformer.models.transformer.config import TransformerConfig
from transformer.models.transformer.model import build
from transformer.pipelines.auto import load
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair
from unit.bundle.folders import FACTS, read_folder, write_folder


@pytest.fixture
def bundle() -> Bundle:
    tokenizers = TokenizerPair.train(lambda: ["ab ab"] * 9, lambda: ["cd cd"] * 9, TokenizerConfig(vocab_size=262))
    config = TransformerConfig(src_vocab_size=262, tgt_vocab_size=262, d_model=8, N=1, h=2, d_ff=12)
    model = build(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    return Bundle(config, model, tokenizers, {"note": "ü"})


@pytest.fixture
def folder(bundle: Bundle, tmp_path: Path) -> Path:
    save_bundle(tmp_path / "model", bundle)
    return tmp_path / "model"


def test_what_is_saved_is_what_loads_wherever_it_lies(bundle: Bundle, folder: Path, tmp_path: Path) -> None:
    """Catches lost weights, absolute paths, dropout left on, and shared matrices that come back apart."""
    moved = tmp_path / "elsewhere" / "renamed"
    shutil.move(folder, moved) if moved.parent.mkdir() is None else None
    loaded = load_bundle(str(moved))
    assert loaded.config == bundle.config
    assert loaded.provenance == {"note": "ü"}
    assert not loaded.model.training
    for name, tensor in bundle.model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], tensor)
    assert loaded.model.projection_layer.proj.weight is loaded.model.src_embed.embedding.weight
    assert loaded.tokenizers.source.encode("ab cd") == bundle.tokenizers.source.encode("ab cd")
    manifest = json.loads((moved / "manifest.json").read_text())
    assert manifest["tied"] == {
        "projection_layer.proj.weight": "src_embed.embedding.weight",
        "tgt_embed.embedding.weight": "src_embed.embedding.weight",
    }


def test_all_files_may_be_read_by_whom_the_folder_is_for(folder: Path) -> None:
    """Catches weights that only the user who trained them can read, beside files that all can."""
    assert len({path.stat().st_mode for path in folder.iterdir()}) == 1


def test_one_flipped_bit_anywhere_is_refused(folder: Path) -> None:
    """Catches files that are not covered by a sum, the manifest and its sum included."""
    files = sorted(folder.iterdir())
    assert len(files) == 6
    for path in files:
        original = path.read_bytes()
        for position in (0, len(original) // 2, len(original) - 1):
            damaged = bytearray(original)
            damaged[position] ^= 0x10
            path.write_bytes(damaged)
            with pytest.raises(BundleError, match="does not match"):
                load_bundle(folder)
        path.write_bytes(original)
    load_bundle(folder)


@pytest.mark.parametrize(
    ("key", "value"), [("N", 10**9), ("N", 9_999), ("d_model", 10**9), ("d_ff", 10**20), ("tgt_seq_len", 10**10)]
)
def test_a_sealed_folder_whose_sizes_do_not_fit_its_weights(folder: Path, tmp_path: Path, key: str, value: int) -> None:
    """Catches a folder that takes all memory and time before it is refused, although its sums are right."""
    _, files = read_folder(folder)
    config = json.loads(files["config.json"]) | {key: value}
    write_folder(tmp_path / "hostile", files | {"config.json": json.dumps(config).encode()})
    with pytest.raises(BundleError, match=rf"{key}={value} |config.json describes [\w ]*[\d,]+ [\w, ]+weights have"):
        load_bundle(tmp_path / "hostile")


def test_missing_and_foreign_folders(folder: Path, tmp_path: Path) -> None:
    """Catches a traceback for a wrong path."""
    with pytest.raises(BundleError, match=r"nowhere does not exist; give a bundle or a run folder"):
        load_bundle(tmp_path / "nowhere")
    with pytest.raises(BundleError, match=r"is not a model: it has no manifest.json; check the path, or copy it again"):
        load_bundle(tmp_path)
    (folder / "config.json").unlink()
    with pytest.raises(BundleError, match=r"config.json: No such file or directory; the model is incomplete"):
        load_bundle(folder)


def reseal(folder: Path, name: str, change: Callable[[Any], None]) -> None:
    """Changes a JSON file and writes its sum into the manifest, as an attacker would."""
    content = json.loads((folder / name).read_text())
    change(content)
    raw = json.dumps(content).encode()
    (folder / name).write_bytes(raw)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] = {"sha256": hashlib.sha256(raw).hexdigest(), "size": len(raw)}
    write_manifest(folder, json.dumps(manifest))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"size": -5}, r"is not a valid manifest \(files.x.size=-5 must be greater than or equal to 0\)"),
        ({"size": 1e300}, r"files.x.size=1e\+300 must be a whole number"),
        ({"size": True}, r"files.x.size=True must be a whole number"),
        ({"sha256": "0"}, r"files.x.sha256='0' must be of the form"),
    ],
)
def test_sizes_and_sums_of_a_manifest_are_checked(tmp_path: Path, entry: dict[str, object], message: str) -> None:
    """Catches a negative size, with which the whole file would be read, and one that is no number."""
    write_folder(tmp_path / "m", {"x": b"x"}, FACTS)
    manifest = json.loads((tmp_path / "m" / "manifest.json").read_text())
    manifest["files"]["x"] |= entry
    write_manifest(tmp_path / "m", json.dumps(manifest))
    with pytest.raises(BundleError, match=message):
        read_folder(tmp_path / "m")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"max_source_tokens": None}, "max_source_tokens=None must be a whole number"),
        ({"max_source_tokens": "20"}, "max_source_tokens='20' must be a whole number"),
        ({"validation": "x"}, "validation='x' must be a table of keys"),
        ({"validation": {"scores": {"bleu": "x"}}}, "validation.scores.bleu='x' must be a number"),
        ({"averaged": [{"step": "x"}]}, r"averaged.0.step='x' must be a whole number; averaged.0.model is missing"),
        ({"recipe": {"training": []}}, r"recipe.training=\[\] must be a table of keys"),
        ({"versions": {"torch": 2}}, "versions.torch=2 must be text"),
        ({"seconds": {}}, r"seconds=\{\} must be a number"),
        ({"data": {"dropped": [1]}}, r"data.dropped=\[1\] must be a table of keys"),
    ],
)
def test_a_record_of_other_types_is_refused_when_it_is_read(
    folder: Path, entries: dict[str, object], message: str
) -> None:
    """Catches a traceback in the middle of `info`, `report` or a translation."""
    reseal(folder, "provenance.json", lambda provenance: provenance.update(entries))
    with pytest.raises(BundleError, match=message):
        load_bundle(folder)


def sparse_id(tokenizer: Any) -> None:
    vocabulary = tokenizer["merges"]["model"]["vocab"]
    vocabulary[max(vocabulary, key=vocabulary.get)] = 100_000


def double_normalizer(tokenizer: Any) -> None:
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    tokenizer["merges"]["normalizer"] = {"type": "Sequence", "normalizers": [step] * 60}


HOSTILE_TOKENIZERS = {
    "an id beyond the model": (sparse_id, "the ids of its 258 tokens are not 0 to 257"),
    "a text that doubles 60 times": (double_normalizer, "its normalizer is not that of byte-level byte-pair encoding"),
    "padding to all memory": (
        lambda tokenizer: tokenizer["merges"].update(padding={"strategy": {"Fixed": 10**12}, "pad_id": 0}),
        "its padding is not that of",
    ),
    "merges without their token": (
        lambda tokenizer: tokenizer["merges"]["model"]["merges"].append(["a", "zzz"]), "that its vocabulary lacks"
    ),
    "a vocabulary without bytes": (
        lambda tokenizer: tokenizer["merges"]["model"].update(vocab={"a": 0}, merges=[]), "lacks bytes"
    ),
    "no vocabulary": (lambda tokenizer: tokenizer["merges"]["model"].pop("vocab"), "vocab is missing"),
    "other types": (lambda tokenizer: tokenizer.update(merges=7), "its parts do not fit together"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE_TOKENIZERS)
def test_a_hostile_tokenizer_is_refused_when_it_is_read(folder: Path, name: str) -> None:
    """Catches ids without an embedding, and parts with which the library hangs or aborts in the middle of a text."""
    change, message = HOSTILE_TOKENIZERS[name]
    reseal(folder, "tokenizer.json", change)
    with pytest.raises(BundleError, match=message):
        load_bundle(folder)


def test_hostile_manifests_are_refused(tmp_path: Path) -> None:
    """Catches reading outside the folder, through a name or a link, and a format from the future."""
    (tmp_path / "secret").write_text("x")
    for index, name in enumerate(("../secret", "a/b", ".hidden", "/etc/passwd")):
        hostile = tmp_path / f"hostile{index}"
        hostile.mkdir()
        write_folder(tmp_path / f"made{index}", {"x": b"x"}, FACTS)
        manifest = (tmp_path / f"made{index}" / "manifest.json").read_text().replace('"x":', f'"{name}":')
        write_manifest(hostile, manifest)
        with pytest.raises(BundleError, match="is not a plain file name; do not use this model"):
            read_folder(hostile)
    linked = tmp_path / "made0"
    (linked / "x").unlink()
    (linked / "x").symlink_to(tmp_path / "secret")
    with pytest.raises(BundleError, match="is a link; a model holds its files itself"):
        read_folder(linked)
    future = tmp_path / "made1"
    write_manifest(future, (future / "manifest.json").read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(BundleError, match="has format=2, but this version reads 1"):
        read_folder(future)
    for content in ("[1, 2]", '{"format": 1, "files": {"x": "y"}}', "{"):
        write_manifest(future, content)
        with pytest.raises(BundleError, match="is not a valid manifest"):
            read_folder(future)


def write_manifest(folder: Path, manifest: str) -> None:
    """Writes a manifest with its right sum, as an attacker would."""
    (folder / "manifest.json").write_text(manifest)
    (folder / "manifest.sha256").write_text(hashlib.sha256(manifest.encode()).hexdigest() + "\n")


def test_files_that_do_not_fit_together_are_refused(bundle: Bundle, tmp_path: Path) -> None:
    """Catches weights of another size, or a pickle instead of them, that reach torch's own errors."""
    save_bundle(tmp_path / "a", bundle)
    manifest, files = read_folder(tmp_path / "a")
    facts = {"family": manifest.family, "precision": manifest.precision, "tied": manifest.tied}
    other_size = {**files, "config.json": files["config.json"].replace(b'"d_ff": 12', b'"d_ff": 13')}
    pickled = {**files, "model.safetensors": b"\x80\x04\x95" + bytes(40)}
    for name, changed in (("size", other_size), ("pickle", pickled)):
        write_folder(tmp_path / name, changed, facts)
        with pytest.raises(
            BundleError,
            match=r"(of 12, by the configuration .* of 13|header).*the model is incomplete or of another version",
        ):
            load_bundle(tmp_path / name)


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(bundle: Bundle, tmp_path: Path) -> None:
    """Catches ids beyond the embedding, which a kernel would read from foreign memory."""
    words = [f"{a}{b}" for a in "abcdefgh" for b in "ijklmnop"]
    larger = TokenizerPair.train(
        lambda: [" ".join(words)] * 9, lambda: [" ".join(words)] * 9, TokenizerConfig(vocab_size=300)
    )
    save_bundle(tmp_path / "m", Bundle(bundle.config, bundle.model, larger))
    with pytest.raises(BundleError, match="a tokenizer of 300 tokens does not go with 262 of the model"):
        load_bundle(tmp_path / "m")


def test_nothing_is_overwritten(folder: Path, bundle: Bundle) -> None:
    """Catches a model that is lost by saving another one over it, and temporary folders left behind."""
    with pytest.raises(BundleError, match="is not empty; choose another folder"):
        save_bundle(folder, bundle)
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_a_run_folder_stands_for_its_best(tiny_run: Path) -> None:
    """Catches the last model being used where the best is promised."""
    steps = sorted((tiny_run / "checkpoints").iterdir())
    best_step = json.loads((steps[-1] / "progress.json").read_text())["progress"]["best_step"]
    best = tiny_run / "checkpoints" / f"step-{best_step:08d}"
    assert load_bundle(tiny_run).folder == load_bundle(best).folder == best / "model"
    assert load(str(tiny_run)).translate([]) == []


def test_a_damaged_checkpoint_does_not_hide_the_best(tiny_run: Path, tmp_path: Path) -> None:
    """Catches a run whose models cannot be used because its newest checkpoint was cut short."""
    run = shutil.copytree(tiny_run, tmp_path / "run")
    (tmp_path / "empty" / "checkpoints").mkdir(parents=True)
    with pytest.raises(BundleError, match="empty has no model: it has no checkpoint yet"):
        load_bundle(tmp_path / "empty")
    first, last = sorted((run / "checkpoints").iterdir())
    (last / "manifest.json").write_bytes((last / "manifest.json").read_bytes()[:100])
    assert load_bundle(run).folder == first / "model"
    (first / "progress.json").unlink()
    with pytest.raises(BundleError, match=r"run has no model: .*progress.json: No such file .*is incomplete"):
        load_bundle(run)
