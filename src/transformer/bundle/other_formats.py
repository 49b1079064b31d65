"""Recognition of models that other programs wrote, by the names of their files."""

import json
from pathlib import Path
from typing import Final

from transformer.config import JsonObject
from transformer.errors import BundleError

ORIGINAL: Final = "give the Hugging Face folder that it was made of"
GGUF_WAY: Final = (
    "m = AutoModelForCausalLM.from_pretrained('{folder}', gguf_file='{file}', dtype='float32'); m.hf_quantizer = None; "
    "del m.config.quantization_config; m.save_pretrained('OUT'); "
    "AutoTokenizer.from_pretrained('{folder}', gguf_file='{file}').save_pretrained('OUT') in transformers 5 (with gguf "
    "and accelerate) writes a folder that is read"
)
ADAPTER: Final = "adapter_config.json"
ADAPTED: Final = {
    "SEQ_2_SEQ_LM": "AutoModelForSeq2SeqLM", "SEQ_CLS": "AutoModelForSequenceClassification",
    "FEATURE_EXTRACTION": "AutoModel",
}  # fmt: skip
"""Classes of transformers for the tasks of adapters; others continue texts."""
FORMATS: Final = (
    (("*.gguf",), "of llama.cpp (GGUF)", f"{ORIGINAL}, or convert it: {GGUF_WAY}"),
    (("decoder.yml", "*.npz"), "of Marian NMT", "give its folder of the Hub (Helsinki-NLP/...), or convert "
     "it where you trust it: convert_marian_to_pytorch.py of transformers 4"),
    (("*vocabulary.json", "*vocabulary.txt"), "of CTranslate2", ORIGINAL),
    ((ADAPTER,), "that is an adapter (PEFT) alone", "merge it into its base model: PeftModel"
     ".from_pretrained({base_class}.from_pretrained('{base}'), '{folder}').merge_and_unload().save_pretrained('OUT'); "
     "AutoTokenizer.from_pretrained('{base}').save_pretrained('OUT') in peft and transformers"),
    (("params.json", "consolidated.*"), "Meta's release of Llama", "give the Hugging Face folder of the same model"),
    (("*.onnx",), "for ONNX Runtime", ORIGINAL),
    (("tf_model.h5",), "of TensorFlow", "convert it: AutoModel.from_pretrained('{folder}', from_tf=True)"
     ".save_pretrained('OUT') of transformers 4"),
    (("flax_model.msgpack",), "of Flax", "convert it: AutoModel.from_pretrained('{folder}', from_flax=True)"
     ".save_pretrained('OUT') of transformers 4"),
    (("*.ckpt", "*.pt", "*.pth"), "pickled, which can run code when it is read (PyTorch, fairseq, OpenNMT, JoeyNMT)",
     "convert it to a Hugging Face folder with the program that wrote it, where you trust it"),
)  # fmt: skip
"""Names of files, the program whose model has one of them, and the shortest way to a model that is read."""
PICKLED: Final = "pytorch_model*.bin"
CTRANSLATE2: Final = "model.bin"


def describe_other_format(path: Path) -> str | None:
    """Explains that a path is a model of another program and what to do about it; None if no such model is recognised.

    Args:
        path: Folder of a model without safetensors, or a file.
    """
    folder = path.parent if path.is_file() else path
    names = [path.name] if path.is_file() else sorted(entry.name for entry in path.iterdir())
    if pickled := [name for name in names if Path(name).match(PICKLED)]:
        if not (folder / "config.json").is_file():
            return f"{folder} has pickled weights ({pickled[0]}), but no config.json; copy the whole folder"
        return (
            f"{folder} has pickled weights alone ({pickled[0]}), which can run code; make a model of it, which reads "
            f"tensors alone: transformer import {folder} --output MODEL"
        )
    if CTRANSLATE2 in names:
        return f"{path} has {CTRANSLATE2}, a model of CTranslate2, which is not read; {ORIGINAL}"
    for patterns, program, remedy in FORMATS:
        for pattern in patterns:
            file = next((name for name in names if Path(name).match(pattern)), None)
            if file is not None:
                what = f"has {file}, a model {program}," if folder == path else f"is a model {program},"
                remedy = remedy.format(folder=folder, file=file, **_base_model(folder))
                return f"{path} {what} which is not read; {remedy}"
    return None


def _base_model(folder: Path) -> dict[str, str]:
    """Returns the base model that an adapter names, and the class of transformers that loads it for its task."""
    try:
        config: JsonObject = json.loads((folder / ADAPTER).read_bytes())
    except (OSError, ValueError):
        config = {}
    return {
        "base": str(config.get("base_model_name_or_path") or "BASE MODEL"),
        "base_class": ADAPTED.get(str(config.get("task_type")), "AutoModelForCausalLM"),
    }


def check_is_folder(path: Path) -> None:
    """Checks that a model is given as a folder.

    Raises:
        BundleError: The path is a file, a pipe or a device.
    """
    if path.exists() and not path.is_dir():
        other = describe_other_format(path) if path.is_file() else None
        is_part = any((path.parent / name).is_file() for name in ("manifest.json", "config.json"))
        folder = f": {path.parent}" if is_part else ""
        raise BundleError(other or f"{path} is a file; give the folder of the model{folder}")
