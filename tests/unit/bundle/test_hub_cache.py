"""Published models by name, and models of other programs, are found or refused with the way to a model that is read."""

import re
from pathlib import Path

import pytest

from transformer.bundle import Bundle, load_bundle
from transformer.bundle.hub_cache import cache_folder, find_model, repository_name
from transformer.bundle.huggingface import read_published, write_published
from transformer.errors import BundleError
from transformer.models import family
from transformer.pipelines.auto import read_model

VARIABLES = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes an empty cache the only one."""
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def cached(cache: Path, name: str, revision: str, *, main: bool = True) -> Path:
    """Puts a small published model into the cache, as links to its blobs, and returns its folder."""
    repository = cache / f"models--{name.replace('/', '--')}"
    snapshot, blobs = repository / "snapshots" / revision, repository / "blobs"
    vit = family("vit")
    sizes = {"image_size": (8, 8), "patch_size": (4, 4), "channels": 1, "d_model": 8, "N": 1, "h": 2, "d_ff": 12}
    config = vit.config.model_validate({**sizes, "labels": ("a", "b")})
    write_published(Bundle(config, vit.build(config), None), blobs)
    snapshot.mkdir(parents=True)
    for blob in blobs.iterdir():
        (snapshot / blob.name).symlink_to(Path("../../blobs") / blob.name)
    if main:
        (repository / "refs").mkdir()
        (repository / "refs" / "main").write_text(revision)
    return snapshot


def test_the_cache_is_where_the_libraries_keep_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a variable that is ignored, or that outweighs another; the order is that of huggingface_hub."""
    for variable, value, expected in (
        ("XDG_CACHE_HOME", "/x", "/x/huggingface/hub"), ("HF_HOME", "/h", "/h/hub"),
        ("HUGGINGFACE_HUB_CACHE", "/old", "/old"), ("HF_HUB_CACHE", "~/new", str(Path.home() / "new")),
    ):  # fmt: skip
        monkeypatch.delenv("HF_HUB_CACHE", raising=False)
        monkeypatch.setenv(variable, value)
        assert cache_folder() == Path(expected)
    for variable in VARIABLES:
        monkeypatch.delenv(variable)
    assert cache_folder() == Path.home() / ".cache" / "huggingface" / "hub"


def test_a_name_finds_the_folder_in_the_cache(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Catches another revision than main, and a folder of the same name that is passed over."""
    snapshot = cached(cache, "google/small-vit", "0123abc")
    (snapshot.parent / "another").mkdir()
    assert find_model(Path("google/small-vit")) == snapshot
    assert read_model(Path("google/small-vit"), "float32").provenance["imported"]["folder"] == "google/small-vit"
    assert repository_name(tmp_path / "vit") == "vit"
    with pytest.raises(BundleError, match=rf"{snapshot} is a published folder; make a model of it: transformer import"):
        load_bundle("google/small-vit")
    single = cached(cache, "gpt2", "9", main=False)
    assert find_model(Path("gpt2")) == single
    (single.parent / "10").mkdir()
    with pytest.raises(BundleError, match="gpt2 does not exist"):  # which of the two is not known
        find_model(Path("gpt2"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "google" / "small-vit").mkdir(parents=True)
    assert find_model(Path("google/small-vit")) == Path("google/small-vit")


def without_installed(message: str) -> str:
    """Returns a message without the models that happen to be installed."""
    return re.sub(r", or an installed model \([^)]*\)", "", message)


def test_a_name_that_is_not_in_the_cache_says_how_to_get_it(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches `not found` alone, and advice to download a folder that was only mistyped."""
    for name in ("Helsinki-NLP/opus-mt-en-de", "gpt2-medium"):
        with pytest.raises(BundleError) as error:
            find_model(Path(name))
        assert without_installed(str(error.value)) == (
            f"{name} does not exist; give a bundle or a run folder, or get the published model: "
            f"transformer import {name}"
        )
    monkeypatch.chdir(cache.parent)  # without a folder runs
    for mistyped in ("runs/frist", "my-model", "/nowhere/at all", "../x", "a/b/c"):
        with pytest.raises(BundleError) as error:
            find_model(Path(mistyped))
        assert without_installed(str(error.value)) == f"{mistyped} does not exist; give a bundle or a run folder"


def test_names_in_the_cache_lead_nowhere_else(cache: Path) -> None:
    """Catches a revision that leaves the cache."""
    snapshot = cached(cache, "a/b", "1")
    (cache.parent / "secret").mkdir()
    (snapshot.parent.parent / "refs" / "main").write_text("../../../secret")
    assert find_model(Path("a/b")) == snapshot


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (("decoder.yml", "model.npz.best.npz", "source.spm"), r"has decoder\.yml, a model of Marian NMT, which is"),
        (("opus.npz", "opus.spm"), r"has opus\.npz, a model of Marian NMT"),
        (("config.json", "model.bin", "shared_vocabulary.json"), r"has model\.bin, a model of CTranslate2.*Hugging"),
        (
            ("config.json", "model.q4.gguf"),
            r"has model\.q4\.gguf, a model of llama\.cpp.*gguf_file='model\.q4\.gguf'.*hf_quantizer = None.*AutoTok",
        ),
        (("config.json", "pytorch_model.bin"), r"pickled weights alone \(pytorch_model\.bin\).* import .* --output"),
        (("config.json", "pytorch_model-00001-of-00002.bin"), r"has pickled weights alone"),
        (("pytorch_model.bin",), r"has pickled weights \(pytorch_model\.bin\), but no config\.json"),
        (
            ("adapter_config.json", "adapter_model.safetensors"),
            r"model that is an adapter \(PEFT\) alone, .*ForCausalLM.*'BASE MODEL'.*merge_and_unload.*AutoTok",
        ),
        (("params.json", "consolidated.00.pth"), r"Meta's release of Llama"),
        (("config.yaml", "best.ckpt"), r"has best\.ckpt, a model pickled"),
        (("config.json", "tf_model.h5"), r"of TensorFlow.*from_tf=True"),
        (("config.json", "flax_model.msgpack"), r"of Flax.*from_flax=True"),
        (("config.json", "model.onnx"), r"for ONNX Runtime"),
    ],
)  # fmt: skip
def test_models_of_other_programs_are_known_by_their_files(
    files: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    """Catches a folder of another program that is called damaged, or incomplete."""
    for name in files:
        is_config = name == "config.json" and "model.bin" not in files
        config = '{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}'
        (tmp_path / name).write_text(config if is_config else "{}")
    for read in (read_published, load_bundle, lambda path: read_model(path, "float32")):
        with pytest.raises(BundleError, match=message):
            read(tmp_path)


@pytest.mark.parametrize(
    ("name", "message"),
    [("model.gguf", "is a model of llama.cpp"), ("model.safetensors", "is a file; give the folder of the model"),
     ("model.npz", "is a model of Marian NMT"), ("checkpoint.pt", "is a model pickled")],
)  # fmt: skip
def test_a_file_is_no_folder(name: str, message: str, tmp_path: Path) -> None:
    """Catches a traceback for the path of a file."""
    (tmp_path / name).write_bytes(b"GGUF")
    for read in (read_published, load_bundle, lambda path: read_model(path, "float32")):
        with pytest.raises(BundleError, match=message):
            read(tmp_path / name)
