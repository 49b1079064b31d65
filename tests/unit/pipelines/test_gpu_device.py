"""The choice of the device: defaults, errors, and translations on a GPU, if there is one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from serving_engines import write_random_model
from substitution import substitute
from transformer.bundle import load_bundle, save_quantized
from transformer.decoding import Search
from transformer.errors import BundleError, ConfigError
from transformer.kernels import triton_module
from transformer.pipelines.auto import load, load_translator
from transformer.pipelines.classification import ImageClassifier, TextEncoder
from transformer.pipelines.device import DevicePlan, choose_device_plan
from transformer.pipelines.text_generation import Generator

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


FAMILIES = ("bert", "gpt", "vit")
PIXELS = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(2))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of random models of the families that do not translate."""
    folder = tmp_path_factory.mktemp("models")
    return {name: write_random_model(name, folder / name) for name in FAMILIES}


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_takes_the_device_as_translation_does(
    name: str, models: dict[str, Path], gpu: pytest.MonkeyPatch
) -> None:
    """Catches a family that stays on the CPU although there is a GPU, and int8 that is sent to one."""
    plans: list[DevicePlan] = []
    gpu.setattr(DevicePlan, "prepare", lambda plan, _: plans.append(plan))
    for options in ({}, {"device": "cuda"}, {"device": "cpu", "precision": "float32"}, {"precision": "int8"}):
        load(models[name], **options)
    on_gpu_plan = DevicePlan(torch.device("cuda", 0), "bf16")
    cpu = torch.device("cpu")
    assert plans == [on_gpu_plan, on_gpu_plan, DevicePlan(cpu, "float32"), DevicePlan(cpu, "int8")]
    with pytest.raises(ConfigError, match="precision='int8' only runs on CPUs"):
        load(models[name], device="cuda", precision="int8")
    gpu.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="device='cuda', but torch sees no GPU; choose 'cpu'"):
        load(models[name], device="cuda")


class Recorder(nn.Module):
    """A model on a device without values, which records where its inputs are and returns zeros on the CPU."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.zeros(1, dtype=torch.bfloat16, device="meta"))
        self.inputs: list[torch.Tensor] = []
        self.masked_head = lambda encoded: torch.zeros(len(encoded), vocab_size)

    def encode(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Records tokens and mask."""
        self.inputs += inputs
        return torch.zeros(*inputs[0].shape, 16)

    def label_logits(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Records tokens and mask, or pixels."""
        return self.encode(*inputs).flatten(1)[:, :2]

    def embeddings(self, encoded: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Records the mask."""
        self.inputs.append(mask)
        return encoded[:, 0]


def test_inputs_go_to_the_device_and_the_type_of_the_model(models: dict[str, Path]) -> None:
    """Catches tokens, masks or pixels that stay on the CPU, and pixels in float32 for a model in bf16."""
    bert, vit = (load_bundle(models[name]) for name in ("bert", "vit"))
    model: Any = Recorder(bert.tokenizers.source.vocab_size)
    encoder = TextEncoder(model, bert.tokenizers.source, bert.config)  # pyright: ignore[reportArgumentType]
    assert encoder.embed(["abc", "a"]).shape == (2, 16)
    assert len(encoder.classify(["abc", "a", ""])) == 3
    assert len(encoder.fill("a[MASK]c", top=2)[0]) == 2
    assert len(model.inputs) == 3 + 2 + 2
    classifier = ImageClassifier(model, vit.config)  # pyright: ignore[reportArgumentType]
    assert len(classifier.classify_pixels(torch.zeros(5, 1, 8, 8))) == 5
    assert {x.device.type for x in model.inputs} == {"meta"} == {encoder.device.type, classifier.device.type}
    assert model.inputs[-1].dtype == torch.bfloat16


def test_a_search_of_continuations_has_the_device_of_the_model(
    models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches continuations whose search state is on the CPU while the model is on a GPU."""
    devices: list[torch.device] = []

    def record(*_: object, device: torch.device, **__: object) -> list[Any]:
        devices.append(device)
        raise InterruptedError

    substitute(monkeypatch, "text_generation.search_all", record)
    bundle = load_bundle(models["gpt"])
    generator = Generator(bundle.model.to("meta"), bundle.tokenizers.source)  # pyright: ignore[reportArgumentType]
    for max_tokens in (2, 10_000):  # a batch, and a text that exceeds the positions
        with pytest.raises(InterruptedError):
            generator.generate(["ab"], max_tokens=max_tokens)
    assert devices == [torch.device("meta")] * 2


@on_gpu
def test_a_gpu_computes_the_families_as_a_cpu_does(models: dict[str, Path]) -> None:
    """Catches vectors, labels, masked words, continuations or losses that differ on a GPU."""
    texts = ["abc", "hg fed", "a", "", "b" * 9]
    both = [{name: load(models[name], device=device, precision="float32") for name in FAMILIES}
            for device in ("cpu", "cuda")]  # fmt: skip
    vectors = [pipelines["bert"].embed(texts) for pipelines in both]
    np.testing.assert_allclose(vectors[1], vectors[0], atol=1e-4)
    for call in (
        lambda pipelines: [label.probability for label in pipelines["bert"].classify(texts)],
        lambda pipelines: [guess.probability for guess in pipelines["bert"].fill("a[MASK]c", 3)[0]],
        lambda pipelines: [label.probability for label in pipelines["vit"].classify_pixels(PIXELS)],
        lambda pipelines: [pipelines["gpt"].perplexity("abc hgf " * 9).loss],
    ):
        assert call(both[1]) == pytest.approx(call(both[0]), abs=1e-4)
    texts = ["abc", "hg"]
    continued = [[c.tokens for (c,) in pipelines["gpt"].generate(texts, max_tokens=7)] for pipelines in both]
    assert continued[1] == continued[0]
    assert (
        "".join(both[1]["gpt"].stream("abc", max_tokens=7)) == both[0]["gpt"].generate(["abc"], max_tokens=7)[0][0].text
    )


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
