"""The choice of the device: defaults, errors, and translations on a GPU, if there is one."""

from pathlib import Path

import pytest
import torch

from transformer.bundle import load_bundle, save_quantized
from transformer.decoding import Search
from transformer.errors import BundleError, ConfigError
from transformer.kernels import triton_module
from transformer.pipelines.auto import load, load_translator
from transformer.pipelines.device import DevicePlan, choose_device_plan

pytestmark = pytest.mark.gpu
LINES = ["one two three", "four", "", "nine eight seven six", "five five", "three one", "two"]
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Makes PyTorch report a GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a GPU")
    return monkeypatch


def test_a_gpu_is_taken_where_there_is_one(gpu: pytest.MonkeyPatch) -> None:
    """Catches a CPU chosen although there is a GPU, and bf16 that the GPU only emulates."""
    assert choose_device_plan() == DevicePlan(torch.device("cuda", 0), "bf16")
    assert choose_device_plan("cpu", "float32") == DevicePlan(torch.device("cpu"), "float32")
    assert choose_device_plan("cuda", "float32").describe(1) == "float32 on a GPU"
    gpu.setattr(torch.cuda, "is_bf16_supported", lambda **_: False)
    assert choose_device_plan("cuda") == DevicePlan(torch.device("cuda", 0), "float32")
    gpu.setattr(torch.cuda, "is_available", lambda: False)
    assert not choose_device_plan().is_gpu


def test_what_a_place_cannot_do_is_refused(gpu: pytest.MonkeyPatch, tiny_run: Path) -> None:
    """Catches a CPU's precision on a GPU, settings without effect on GPUs, and a missing GPU."""
    with pytest.raises(ConfigError, match="device='tpu' is unknown; choose one of auto, cpu, cuda"):
        choose_device_plan("tpu")
    with pytest.raises(ConfigError, match="precision='int8' only runs on CPUs; choose 'bf16' or 'float32' on a GPU"):
        choose_device_plan("cuda", "int8")
    for options in ({"workers": 2}, {"shortlist": "list"}):
        with pytest.raises(ConfigError, match="shortlist and workers only apply to CPUs; leave them out"):
            load(tiny_run, device="cuda", **options)
    gpu.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="device='cuda', but torch sees no GPU; choose 'cpu'"):
        load(tiny_run, device="cuda")


def test_what_cpus_alone_do_is_done_there(gpu: pytest.MonkeyPatch, tiny_run: Path, tmp_path: Path) -> None:
    """Catches a GPU that is chosen for options that only CPUs support, and a packed model that is moved to a GPU."""
    save_quantized(tmp_path / "int8", load_bundle(tiny_run))
    for model, options in (
        (tiny_run, {"precision": "int8"}), (tiny_run, {"workers": 2}), (tmp_path / "int8", {"precision": "float32"}),
    ):  # fmt: skip
        assert load(model, **options).device == torch.device("cpu")
    with pytest.raises(BundleError, match="is stored in int8, which only runs on CPUs; load the float32 model"):
        load(tmp_path / "int8", device="cuda", precision="bf16")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_compiler_torch_computes(gpu: pytest.MonkeyPatch) -> None:
    """Catches a translation that ends because Triton cannot compile."""
    del gpu
    triton_module.cache_clear()
    with pytest.warns(UserWarning, match="Triton kernels are unavailable, which makes GPUs slower: "):
        assert triton_module() is None  # Triton has nothing to compile for without a GPU
    triton_module.cache_clear()


@on_gpu
@pytest.mark.parametrize("search", [Search(), Search(beam=4, n_best=2), Search(beam=2, no_repeat_ngram=2)])
def test_a_gpu_translates_as_a_cpu_does(search: Search, tiny_run: Path) -> None:
    """Catches a search on a GPU that finds other translations, and translations of lines that are swapped."""
    gpu_translator, cpu_translator = (
        load_translator(tiny_run, search=search, device=device, precision="float32") for device in ("cuda", "cpu")
    )
    lines = LINES * 30
    for actual, expected in zip(gpu_translator.translations(lines), cpu_translator.translations(lines), strict=True):
        assert [alternative.text for alternative in actual.alternatives] == [
            alternative.text for alternative in expected.alternatives
        ]
        assert actual.score == pytest.approx(expected.score, abs=1e-3)


@on_gpu
def test_lines_alone_are_translated_the_same_to_the_last_bit(tiny_run: Path) -> None:
    """Catches a score that depends on other lines of the batch in spite of `deterministic`."""
    translator = load_translator(tiny_run, search=Search(beam=4), device="cuda", deterministic=True)
    one_by_one = [translator.translations([line])[0] for line in LINES]
    assert translator.translations(LINES) == one_by_one
