"""Bundles in int8: how they are written, read, compared with the float32 model, or refused."""

import json
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor

from commands import run
from samples import write_lines
from transformer.bundle import load_bundle
from transformer.decoding import Search
from transformer.errors import BundleError, ConfigError
from transformer.evaluation.scores import Score
from transformer.kernels import Weight
from transformer.pipelines.auto import load, make_translator
from transformer.pipelines.translation.quantization import Comparison, Quality, quantize_model
from unit.bundle.folders import read_folder, write_folder

LINES = ["one two three", "seven", "nine nine zero", ""]
PAIRS = [("one two", "2 1"), ("three four five", "5 4 3"), ("six", "6")]


@pytest.fixture(scope="module")
def quantized(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("quantized") / "model"
    quantize_model(tiny_run, out, PAIRS, search=Search(), tolerance=100)
    return out


def test_what_is_stored_translates_as_the_model_rounded_in_memory(tiny_run: Path, quantized: Path) -> None:
    """Catches weights that are rounded twice or read under another name, and a file that is not smaller."""
    stored, rounded = load(quantized, precision="int8"), load(tiny_run, precision="int8")
    assert stored.translations(LINES) == rounded.translations(LINES)
    assert stored.description.startswith("int8")
    manifest, files = read_folder(quantized)
    assert manifest.precision == "int8"  # pyright: ignore[reportAttributeAccessIssue]
    float32_bytes = sum(parameter.nbytes for parameter in load_bundle(tiny_run).model.parameters())
    assert len(files["model.int8.safetensors"]) < 0.6 * float32_bytes, "names and scales are much of so small a model"
    figures = json.loads(files["provenance.json"])["quantized"]
    assert figures["from"] == load_bundle(tiny_run).fingerprint
    assert figures["int8"]["scores"].keys() == figures["in bf16"]["bf16"]["scores"].keys() == {"BLEU", "chrF"}


def test_a_model_in_int8_is_read_as_float32_where_it_is_asked_for(quantized: Path, tmp_path: Path) -> None:
    """Catches scales of the wrong rows, ties that are lost, and an export or inspection that says nothing about it."""
    bundle = load_bundle(quantized, dequantize=True)
    stored = safetensors.torch.load_file(quantized / "model.int8.safetensors")
    parameters = bundle.model.state_dict()
    rounded = [name for name, tensor in stored.items() if tensor.dtype == torch.int8]
    assert rounded
    for name in rounded:
        expected = stored[name].double() * stored[f"{name}_scales"].double()[:, None]
        torch.testing.assert_close(parameters[name].double(), expected, rtol=1e-6, atol=0)
    assert "stored in int8" in bundle.rounding_note
    result = run("export", quantized, "--output", tmp_path / "exported")
    assert result.returncode == 0
    assert "stored in int8; its weights are read as float32" in result.stderr


def test_a_model_in_int8_is_not_averaged_or_quantized(tiny_run: Path, quantized: Path, tmp_path: Path) -> None:
    """Catches averaging or quantizing of rounded weights, and an ensemble of two precisions."""
    with pytest.raises(BundleError, match="is stored in int8, and this needs full weights; give the float32 model"):
        load_bundle(quantized)
    with pytest.raises(BundleError, match="is stored in int8, and this needs full weights"):
        quantize_model(quantized, tmp_path / "again", PAIRS, search=Search())
    ensemble = load(tiny_run, ensemble=[quantized], precision="int8")
    alone = load(quantized, precision="int8")
    texts, expected = ([translation.text for translation in pair.translations(LINES)] for pair in (ensemble, alone))
    assert texts == expected


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_stored_numbers_are_computed_in_any_precision(tiny_run: Path, quantized: Path, precision: str) -> None:
    """Catches a model that a machine without int8 kernels cannot use, and scales that are ignored."""
    stored, bundle = load(quantized, precision=precision), load_bundle(tiny_run)
    for parameter in bundle.model.parameters():
        if parameter.dim() == 2:
            parameter.data = Weight.from_tensor(parameter.data, "int8").dequantize()
    expected = make_translator(bundle).translations(LINES)
    pairs = list(zip(stored.translations(LINES), expected, strict=True))
    scores = [(actual.score, reference.score) for actual, reference in pairs if actual.text == reference.text]
    assert len(scores) == len(pairs) if precision == "float32" else scores  # rounding may change the result of a search
    for actual, reference in scores:
        assert actual == pytest.approx(reference, abs=1e-3 if precision == "float32" else 0.3)


def test_a_loss_beyond_the_tolerance_is_refused(tiny_run: Path, tmp_path: Path) -> None:
    """Catches a model that is written although it lost too much, and a refusal that does not show the loss."""
    compared = list[str]()
    with pytest.raises(ConfigError, match=r"int8 loses -?[\d.]+ BLEU, more than tolerance=-101; keep float32"):
        quantize_model(tiny_run, tmp_path / "out", PAIRS, search=Search(), tolerance=-101, on_result=compared.extend)
    assert compared == ["bf16", "int8"]
    assert not (tmp_path / "out").exists()
    with pytest.raises(ConfigError, match="tolerance=nan is not a number; choose the BLEU that int8 may lose"):
        quantize_model(tmp_path / "before it is read", tmp_path / "out", PAIRS, search=Search(), tolerance=float("nan"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("x")
    with pytest.raises(BundleError, match="is not empty; choose another folder"):
        quantize_model(tiny_run, tmp_path / "full", PAIRS, search=Search())


def test_comparisons() -> None:
    """Catches a difference with the wrong sign, and shares of the wrong total."""
    before = Quality(["a", "b", "c", "d"], [Score("BLEU", 30.0, "s"), Score("chrF", 50.0, "s")], 100.0, 400)
    after = Quality(["a", "b", "c", "x"], [Score("BLEU", 29.5, "s"), Score("chrF", 51.0, "s")], 150.0, 100)
    comparison = Comparison(before, after)
    assert comparison.differences == {"BLEU": -0.5, "chrF": 1.0}
    assert (comparison.agreement, comparison.speed_up) == (0.75, 1.5)


def damaged(quantized: Path, folder: Path, change: dict[str, Tensor | None]) -> Path:
    """Returns a copy whose tensors are changed or left out, and whose checksums are right."""
    manifest, files = read_folder(quantized)
    tensors = safetensors.torch.load(files["model.int8.safetensors"])
    tensors = {name: tensor for name, tensor in (tensors | change).items() if tensor is not None}
    facts = {name: getattr(manifest, name) for name in ("family", "precision", "tied")}
    write_folder(folder, files | {"model.int8.safetensors": safetensors.torch.save(tensors)}, facts)
    return folder


def test_tensors_that_do_not_fit_are_refused(quantized: Path, tiny_run: Path, tmp_path: Path) -> None:
    """Catches scales of another length, read beyond their end; a weight without scales; and memory left unfilled."""
    name = "decoder.layers.0.cross_attention_block.W_o.weight"
    tensors = safetensors.torch.load(read_folder(quantized)[1]["model.int8.safetensors"])
    changes: dict[str, dict[str, Tensor | None]] = {
        "short": {f"{name}_scales": tensors[f"{name}_scales"][:-1]},
        "wide": {name: tensors[name].float()},
        "unscaled": {f"{name}_scales": None},
        "missing": {"decoder.layers.0.residual_connections.0.norm.alpha": None},
        "extra": {"other": torch.zeros(3)},
        "nan": {"decoder.layers.0.residual_connections.0.norm.alpha": torch.full((16,), torch.nan)},
        "norm": {
            "decoder.layers.0.residual_connections.0.norm.alpha": torch.ones(16, dtype=torch.int8),
            "decoder.layers.0.residual_connections.0.norm.alpha_scales": torch.ones(16),
        },
    }
    for case, change in changes.items():
        with pytest.raises(BundleError, match="the model is incomplete or of another version"):
            load(damaged(quantized, tmp_path / case, change))
    manifest, files = read_folder(quantized)
    tied: dict[str, str] = manifest.tied  # pyright: ignore[reportAttributeAccessIssue]
    block = "decoder.layers.0"
    for case, hostile in enumerate((
        {f"{block}.feed_forward_block.linear_2.weight": f"{block}.self_attention_block.W_o.weight"},
        {f"{block}.residual_connections.0.norm.alpha": f"{block}.self_attention_block.W_o.weight"},
        {f"{block}.self_attention_block.h": f"{block}.self_attention_block.W_o.weight"},
    )):  # fmt: skip
        remaining = safetensors.torch.save(
            {key: tensor for key, tensor in tensors.items() if not key.startswith(next(iter(hostile)))}
        )
        facts = {"family": "transformer", "precision": "int8", "tied": tied | hostile}
        write_folder(tmp_path / f"tied{case}", files | {"model.int8.safetensors": remaining}, facts)
        with pytest.raises(BundleError, match=r"tied: .* is not .*, as the configuration has it"):
            load(tmp_path / f"tied{case}")
    manifest, files = read_folder(load_bundle(tiny_run).folder or tiny_run)
    halves = {name: tensor.half() for name, tensor in safetensors.torch.load(files["model.safetensors"]).items()}
    facts = {name: getattr(manifest, name) for name in ("family", "precision", "tied")}
    write_folder(tmp_path / "half", files | {"model.safetensors": safetensors.torch.save(halves)}, facts)
    with pytest.raises(BundleError, match=r"is float16 of 16, by the configuration float32 of 16; the model is"):
        load(tmp_path / "half")
    write_folder(tmp_path / "later", files, facts | {"precision": "int4"})
    with pytest.raises(BundleError, match="is stored in 'int4', which this version does not read; update transformer"):
        load(tmp_path / "later")


@pytest.mark.slow
def test_the_command(tiny_run: Path, tmp_path: Path) -> None:
    """Catches a table with the columns exchanged, and a model that `info` and `translate` do not read."""
    source = write_lines(tmp_path / "s", [source for source, _ in PAIRS])
    reference = write_lines(tmp_path / "r", [target for _, target in PAIRS])

    out = tmp_path / "int8"
    result = run(
        "quantize", tiny_run, "--source", source, "--reference", reference, "--output", out, "--tolerance", 100
    )
    assert result.returncode == 0, result.stderr
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[0] == ["float32", "bf16", "int8", "Δ", "bf16", "Δ", "int8"]
    float32, bf16, int8, *differences = map(float, rows[1][1:])
    assert differences == pytest.approx([bf16 - float32, int8 - float32], abs=0.02)
    shares = [float(cell.removesuffix("%")) for cell in rows[4][5:]]
    assert 100 > shares[0] > shares[1], "fewer bits are smaller weights"
    assert [cell[-1] for cell in rows[5][2:]] == ["%", "%"]
    assert "precision           int8" in run("info", out).stdout
    assert run("info", out).stdout.splitlines()[3:][:5] == run("info", tiny_run).stdout.splitlines()[3:][:5]
    assert run("translate", out, "--input", source).stdout.count("\n") == len(PAIRS)
