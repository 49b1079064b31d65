"""Data and models that cannot be used are refused, with the reason and a remedy."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from samples import digit_pairs, idx, write_lines
from transformer.bundle import Bundle
from transformer.bundle.huggingface import read_published, read_tensors, write_published
from transformer.data.images import ImageFolder, ImageProcessor
from transformer.errors import BundleError, ConfigError, DataError
from transformer.models import family
from transformer.models.bert.weights import FORMAT as BERT
from transformer.models.huggingface.config_audit import AuditedConfig
from transformer.models.huggingface.key_mapping import (
    ParameterMapping,
    check_size,
    from_published,
    map_choice,
    read_labels,
)
from transformer.models.llama.weights import FORMAT as LLAMA
from transformer.models.vit.weights import FORMAT as VIT
from transformer.run.fine_tuning import load_pretrained
from transformer.run.recipe import parse_recipe
from transformer.run.train import train
from transformer.tokenizers.base import Tokenizer
from transformer.tokenizers.huggingface import (
    HuggingFaceTokenizer,
    read_special_token_ids,
    read_tokenizer,
    write_tokenizer,
)
from transformer.tokenizers.special_tokens import DEFAULT_SPECIAL_TOKENS, SpecialTokenIds

TEXT = ["abc def ghi"] * 40


def refused(tmp_path: Path, data: dict[str, Any], message: str, error: type[Exception], **sections: Any) -> None:
    training = {"max_steps": 2, "threads": 1, **sections.pop("training", {})}
    recipe = parse_recipe({"data": data, "training": training, **sections})
    with pytest.raises(error, match=message):
        train(recipe, tmp_path / "run", quiet=True)


def test_texts_that_cannot_be_trained_on(tmp_path: Path) -> None:
    """Catches a run that starts and fails later, or trains on nothing."""
    text = write_lines(tmp_path / "text", TEXT)
    base = {"task": "language-model", "text": str(text)}
    small = {"family": "gpt", "d_model": 16, "N": 2, "h": 2, "seq_len": 32}
    refused(tmp_path, {**base, "window": 64}, "window=64 exceeds the model's 32", ConfigError, model=small)
    one = write_lines(tmp_path / "one", ["ab"])
    refused(tmp_path, {**base, "text": str(one)}, "has no window of 33|leaves nothing", DataError, model=small,
            tokenizer={"kind": "characters"})  # fmt: skip
    refused(tmp_path, {**base, "text": str(tmp_path / "missing")}, "No such file", DataError, model=small)


def test_examples_that_cannot_be_trained_on(tmp_path: Path) -> None:
    """Catches a single label, no rows, and labels that only occur in the validation data."""
    same = write_lines(tmp_path / "same.tsv", ["a\tx"] * 30)
    two = write_lines(tmp_path / "two.tsv", ["a\tx", "b\ty"] * 15)
    other = write_lines(tmp_path / "other.tsv", ["a\tz"])
    empty = write_lines(tmp_path / "empty.tsv", [])
    base = {"task": "classification"}
    kind = {"tokenizer": {"kind": "characters"}}
    refused(tmp_path, {**base, "examples": str(same)}, "has 1 label", DataError, **kind)
    header = write_lines(tmp_path / "header.tsv", ["sentence\tlabel", *(f"one {n}\t{n % 2}" for n in range(40))])
    refused(tmp_path, {**base, "examples": str(header)}, "the label 'label' occurs once", DataError, **kind)
    refused(
        tmp_path, {**base, "examples": str(empty), "validation_examples": str(two)}, "leaves nothing", DataError, **kind
    )
    refused(tmp_path, {**base, "examples": str(two), "validation_examples": str(other)}, "label 'z'", DataError, **kind)


def test_images_that_cannot_be_trained_on(tmp_path: Path) -> None:
    """Catches an IDX file without labels, and validation folders with other labels."""
    import numpy as np
    from PIL import Image

    images = idx(tmp_path / "images", np.zeros((4, 8, 8), np.uint8))
    small = {"family": "vit", "image_size": [8, 8], "patch_size": [4, 4], "d_model": 16, "N": 2, "h": 2}
    refused(tmp_path, {"task": "images", "images": str(images)}, "set data.labels too", DataError, model=small)
    for folder, name in (("a", "cat"), ("a", "dog"), ("a", "dog/.hidden"), ("b", "cow")):
        (tmp_path / folder / name).mkdir(parents=True)
        Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / folder / name / "1.png")
    data = {"task": "images", "images": str(tmp_path / "a"), "validation_images": str(tmp_path / "b")}
    refused(tmp_path, data, "has labels that", DataError, model={**small, "channels": 1})
    with_names = {"task": "images", "images": str(tmp_path / "a"), "label_names": ["x", "y"]}
    refused(
        tmp_path, with_names, "data.label_names apply to IDX files only", ConfigError, model={**small, "channels": 1}
    )
    (tmp_path / "a" / "cat" / "notes.txt").write_text("")
    image_folder = ImageFolder(tmp_path / "a", ImageProcessor((8, 8), 1, (0.5,), (0.5,)))
    assert (len(image_folder.labels), image_folder.n_skipped_files) == (2, 1)
    with pytest.raises(ConfigError, match="a model of 4 channels cannot read image files"):
        ImageProcessor((8, 8), 4, (0.5,), (0.5,)).read(tmp_path / "a" / "cat" / "1.png")
    (tmp_path / "b" / "config.json").write_text('{"model_type": "vit"}')
    refused(tmp_path, data, "is a published folder; make a model of it: transformer import", BundleError,
            training={"start_from": str(tmp_path / "b")})  # fmt: skip
    with pytest.raises(ConfigError, match=r"validation_labels is given without"):
        parse_recipe({"data": {"task": "images", "images": "a", "validation_labels": "b"}})


def test_models_and_data_that_do_not_go_together(tmp_path: Path) -> None:
    """Catches two vocabularies for a model with one."""
    pairs = digit_pairs(60)
    sides = [write_lines(tmp_path / str(side), [pair[side] for pair in pairs]) for side in range(2)]
    data = {"source": str(sides[0]), "target": str(sides[1])}
    small = {"family": "t5", "d_model": 16, "N": 2, "h": 2, "d_ff": 16}
    refused(tmp_path, data, "joint=false does not work with a model of one", ConfigError, model=small,
            tokenizer={"joint": False, "vocab_size": 300})  # fmt: skip


def test_a_start_of_other_sizes_is_refused() -> None:
    """Catches a layer that silently keeps its initial values."""
    kind = family("gpt")
    sizes = {"vocab_size": 20, "d_model": 16, "h": 2, "seq_len": 8}
    small, large = (kind.build(kind.config.model_validate({**sizes, "N": n})) for n in (2, 3))
    with pytest.raises(BundleError, match=r"decoder\.layers\.2.* do not match the recipe's model"):
        load_pretrained(large, small.state_dict())


def test_images_of_another_size_are_refused() -> None:
    """Catches positions of other patches: 7 x 6 of them where the model learned 7 x 7."""
    vit = family("vit")
    model = vit.build(vit.config.model_validate({**vit.presets()["tiny"], "image_size": (28, 28), "channels": 1}))
    with pytest.raises(ConfigError, match=r"images of \(28, 24\) pixels, but the model's are \(28, 28\); resize them"):
        model(torch.zeros(1, 1, 28, 24))


@pytest.mark.parametrize("shared", ["all", "inputs"])
def test_a_new_t5_knows_nothing(shared: str) -> None:
    """Catches an output tied to the embeddings without scaling, whose logits have a variance of d_model = 128.

    The decoder's output has a mean square of 1. The logit of a token that does not occur in the texts is therefore
    drawn from N(0, 1), and the mean loss of predicting one of V such tokens is ln(V) + 1/2, less (e - 1) / 2V.
    """
    torch.manual_seed(1)
    t5 = family("t5")
    sizes = {"vocab_size": 500, "share_embeddings": shared, "dropout": 0.0}
    model = t5.build(t5.config.model_validate({**t5.presets()["tiny"], **sizes}))
    tokens = torch.randint(3, 200, (8, 12))
    logits = model(tokens, tokens, None, None)[..., 200:].flatten(0, 1)
    loss = (logits.logsumexp(dim=-1) - logits.mean(dim=-1)).mean()  # the mean over all labels
    assert loss.item() == pytest.approx(math.log(300) + 0.5 - (math.e - 1) / 600, abs=0.04)  # 6 standard deviations
    assert logits.var().item() == pytest.approx(1.0, abs=0.08)


def test_a_t5_without_ranges_of_distances_is_refused() -> None:
    """Catches bucket settings that only fail on a long text."""
    with pytest.raises(ValueError, match="max_distance=8 must be more than half of buckets=32"):
        family("t5").config.model_validate({"max_distance": 8})


def test_published_settings_and_parameters_out_of_bounds() -> None:
    """Catches a damaged configuration that exhausts memory, and two matrices that are loaded as one."""
    with pytest.raises(BundleError, match="hidden_size=-3 is not a size of a model"):
        check_size({"hidden_size": -3}, "hidden_size", 10)
    for name, value in (("hidden_size", 10**8), ("num_hidden_layers", 10**4), ("head_dim", 10**9)):
        with pytest.raises(BundleError, match=f"{name}={value} is not a size"):
            LLAMA.read_config(family("llama").config, {name: value}, {}, [])
    with pytest.raises(BundleError, match="hidden_act='sine' is not known; only relu are"):
        map_choice({"hidden_act": "sine"}, "hidden_act", {"relu": "relu"}, "relu")
    table = [ParameterMapping("a", ("x",), aliases=("b",))]
    with pytest.raises(BundleError, match="a, b differ"):
        from_published(table, {"a": torch.zeros(2), "b": torch.ones(2)})
    many = {f"p{number:02d}": torch.zeros(1) for number in range(12)}
    with pytest.raises(BundleError, match=r"missing: a; unknown: p00, .*p07 and 4 more"):
        from_published(table, many)
    with pytest.raises(BundleError, match="rescale_factor=2 is not known"):
        VIT.read_settings({}, [], {"preprocessor_config.json": b'{"rescale_factor": 2}'})
    for wrong in (b'{"do_normalize": false}', b'{"do_center_crop": true}', b'{"resample": 3}', b'{"size": 99}'):
        with pytest.raises(BundleError, match="is not"):
            VIT.read_settings({}, [], {"preprocessor_config.json": wrong})
    with pytest.raises(BundleError, match="architectures='BertForTokenClassification' is not known"):
        BERT.read_settings({"architectures": ["BertForTokenClassification"]}, [], {})
    with pytest.raises(BundleError, match="num_labels=1: a model with one output"):
        BERT.read_settings({"num_labels": 1}, ["classifier.weight"], {})
    modules = b'[{"type": "sentence_transformers.models.Pooling"}]'
    with pytest.raises(BundleError, match=r"1_Pooling/config\.json, which modules\.json names, is missing"):
        BERT.read_settings({}, [], {"modules.json": modules})
    newer = {"modules.json": modules, "1_Pooling/config.json": b'{"pooling_mode": "cls"}'}
    assert BERT.read_settings({}, [], newer)["embedding"] == "first"
    with pytest.raises(BundleError, match=r"asks for lasttoken"):
        BERT.read_settings({}, [], {**newer, "1_Pooling/config.json": b'{"pooling_mode": "lasttoken"}'})
    with pytest.raises(BundleError, match="lower-cases texts beside the tokenizer"):
        BERT.read_settings({}, [], {"sentence_bert_config.json": b'{"do_lower_case": true}'})
    with pytest.raises(ValueError, match="text_tokens=600 exceeds the 512 positions"):
        family("bert").config.model_validate({"text_tokens": 600})
    pooling = {"1_Pooling/config.json": b'{"pooling_mode_max_tokens": true}'}
    with pytest.raises(BundleError, match="asks for pooling_mode_max_tokens"):
        BERT.read_settings({}, [], pooling)
    config = family("bert").config(vocab_size=9, labels=("a", "b"), labels_read="embedding", pooler=False)
    with pytest.raises(BundleError, match="published models tell labels from the pooler"):
        BERT.write_config(config)
    with pytest.raises(ValueError, match="set pooler=true"):
        family("bert").config(labels=("a", "b"), pooler=False)
    for wrong, message in (
        ({"patch_size": (9, 9)}, "does not fit into image_size"),
        ({"mean": (0.1, 0.2)}, "one of each of the 1 channels"),
        ({"deviation": (0.0,)}, "is not above 0"), ({"h": 5}, "does not divide"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            family("vit").config.model_validate({"image_size": (8, 8), "patch_size": (4, 4), "channels": 1, **wrong})


def test_what_a_folder_says_twice_or_otherwise_is_refused() -> None:
    """Catches two labels with one name, one tensor under two names, and rotary settings that are partly ignored."""
    assert read_labels({"id2label": {"0": "crane", "1": "b", "2": "crane"}}) == ("crane", "b", "crane (2)")
    doubled = {"pooler.dense.weight": torch.zeros(1), "bert.pooler.dense.weight": torch.zeros(1)}
    with pytest.raises(BundleError, match=r"bert\.pooler\.dense\.weight is there twice"):
        BERT.read_weights(family("bert").config(vocab_size=9), doubled)
    rope_settings = {"rope_parameters": {"rope_theta": 1.0}, "rope_scaling": {"rope_theta": 2.0}}
    assert LLAMA.read_settings(rope_settings, [], {})["base"] == 2.0  # like in `transformers`
    for rope in ({"factor": 2.0, "rope_theta": 1.0}, {"partial_rotary_factor": 0.5}):
        with pytest.raises(BundleError, match="factor"):
            LLAMA.read_settings({"rope_parameters": rope}, [], {})
    for generation_config in (b'{"forced_bos_token_id": 3}', b'{"eos_token_id": [2, 3]}', b'{"bad_words_ids": [[7]]}'):
        with pytest.raises(BundleError, match=r"in generation_config\.json"):
            LLAMA.read_config(family("llama").config, {}, {"generation_config.json": generation_config}, [])


@pytest.mark.parametrize("name", ["bert", "gpt", "llama", "marian", "t5", "vit"])
def test_models_of_other_classes_are_refused(name: str) -> None:
    """Catches a model that computes another function with the same parameters, or with custom code."""
    published = family(name).weights()
    with pytest.raises(BundleError, match="architectures='BidirectionalModel' is not known"):
        published.read_config(family(name).config, {"architectures": ["BidirectionalModel"]}, {}, [])
    audited = AuditedConfig({"auto_map": {"AutoModel": "modeling.BidirectionalModel"}})
    with pytest.raises(BundleError, match="not known here: auto_map="):
        audited.check_all_read()


@pytest.mark.parametrize("name", ["bert", "gpt", "llama", "t5", "vit"])
def test_null_is_the_default(name: str) -> None:
    """Catches a traceback for settings that are null, which other tools write."""
    config_class, published = family(name).config, family(name).weights()
    names = [published_name for published_name, default in published.settings.values() if not isinstance(default, bool)]
    null_settings = dict.fromkeys([*names, "n_positions", "image_size", "patch_size"])
    assert published.read_config(config_class, null_settings, {}, []) == published.read_config(config_class, {}, {}, [])


@pytest.mark.parametrize(
    ("more", "message"),
    [({"tokenizer_config.json": b'{"tokenizer_class": "BertJapaneseTokenizer"}'}, "tokenizer_class='BertJapanese"),
     ({"tokenizer_config.json": b'{"word_tokenizer_type": "mecab"}'}, "word_tokenizer_type='mecab' in"),
     ({"added_tokens.json": b'{"<new>": 9}'}, r"tokens beside vocab.txt \(<new>\)")],
)  # fmt: skip
def test_a_list_of_words_is_read_as_berts_alone(more: dict[str, bytes], message: str) -> None:
    """Catches vocabularies of other tokenizers, and tokens outside of the vocabulary file."""
    files = {"vocab.txt": b"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n"}
    distilled = {"tokenizer_config.json": b'{"tokenizer_class": "DistilBertTokenizer"}'}
    for read in ({}, distilled):
        assert read_tokenizer(files | read, DEFAULT_SPECIAL_TOKENS).encode("A") == [4]
    from_windows = {"vocab.txt": files["vocab.txt"].replace(b"\n", b"\r\n")}
    assert read_tokenizer(from_windows, DEFAULT_SPECIAL_TOKENS).encode("A") == [4]
    with pytest.raises(BundleError, match=message):
        read_tokenizer(files | more, DEFAULT_SPECIAL_TOKENS)


def test_typed_control_tokens_of_a_unigram_vocabulary_are_unknown_text() -> None:
    """Catches `</s>` typed in a text that ends it: Unigram models match control tokens in texts."""
    from tokenizers import Tokenizer as Library
    from tokenizers import models, pre_tokenizers

    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁a", -1.0), ("▁", -2.0), ("b", -2.0)]
    library = Library(models.Unigram(pieces, unk_id=2))
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    library.add_special_tokens(["<pad>", "</s>", "<unk>"])
    tokenizer = HuggingFaceTokenizer(library.to_str(), SpecialTokenIds(0, 0, 1, 2))
    assert tokenizer.encode("a b") == [3, 4, 5]
    for text in ("a </s> b", "<pad>", "a</s>"):
        assert not {0, 1} & set(tokenizer.encode(text))


def test_weights_that_are_none_are_refused(tmp_path: Path) -> None:
    """Catches NaN, which spreads to every output, and a tensor that is hidden by another part of the weights."""
    index = {"weight_map": {"a": "a.safetensors", "b": "b.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    for part, tensors in (("a", {"a": torch.ones(2)}), ("b", {"b": torch.tensor([1.0, torch.nan])})):
        save_file(tensors, tmp_path / f"{part}.safetensors")
    with pytest.raises(BundleError, match="b holds numbers that are not finite"):
        read_tensors(tmp_path)
    save_file({"a": torch.zeros(2)}, tmp_path / "b.safetensors")
    with pytest.raises(BundleError, match="has a, which another part has too"):
        read_tensors(tmp_path)


def test_tensors_of_other_sizes_than_the_settings_are_named_as_published(tmp_path: Path) -> None:
    """Catches a message that names parameters which the folder lacks; some folders leave out the prefix."""
    kind, folder = family("vit"), tmp_path / "hf"
    config = kind.config(image_size=(8, 8), patch_size=(4, 4), channels=1, d_model=12, N=1, h=2, d_ff=20)
    write_published(Bundle(config, kind.build(config), None), folder)
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"intermediate_size": 24}))
    tensors = load_file(folder / "model.safetensors")
    for prefix in ("", "vit."):
        save_file({name.removeprefix(prefix): tensor for name, tensor in tensors.items()}, folder / "model.safetensors")
        where = ("vit." if not prefix else "") + "encoder.layer.0.intermediate.dense"
        with pytest.raises(
            BundleError, match=re.escape(f"{where}.bias is (20,), by config.json (24,); {where}.weight")
        ):
            read_published(folder)


def test_labels_beyond_counting_are_refused() -> None:
    """Catches a configuration of a few bytes whose labels exhaust memory."""
    with pytest.raises(BundleError, match="num_labels=10000000000 is not a size of a model"):
        read_labels({"num_labels": 10**10})


def test_a_tokenizer_without_its_unknown_token_is_named() -> None:
    """Catches a traceback of the library during a translation."""
    from tokenizers import Tokenizer as Library
    from tokenizers import models

    library = Library(models.WordPiece({"a": 0, "b": 1}, unk_token="[UNK]"))
    tokenizer = HuggingFaceTokenizer(library.to_str(), SpecialTokenIds(0, 0, 1, None))
    with pytest.raises(DataError, match="the tokenizer lacks a token for this text"):
        tokenizer.encode("never seen")


@pytest.mark.parametrize("task", ["language-model", "classification"])
def test_files_of_every_task_stay_as_they_are(task: str, tmp_path: Path) -> None:
    """Catches data of an edited file that is stored under the fingerprint of the original and used on resumption."""
    from transformer.run.tasks import make_task

    path = write_lines(tmp_path / "a.tsv", ["x\tneutral", "y\tnegative"] * 30)
    key = "text" if task == "language-model" else "examples"
    recipe = parse_recipe({"data": {"task": task, key: str(path)}, "tokenizer": {"kind": "characters"}})
    task = make_task(recipe.data, 1, tmp_path / "tokens", lambda *_: None)
    with path.open("a") as file:
        file.write("z\tneutral\n")
    with pytest.raises(DataError, match=r"a\.tsv was changed while it was prepared"):
        task.prepare(task.complete(recipe), None)


def test_labels_keep_the_order_of_the_start(tmp_path: Path) -> None:
    """Catches a classification head whose rows are assigned to other labels."""
    from transformer.run.tasks import make_task

    rows = write_lines(tmp_path / "a.tsv", ["x\tneutral", "y\tnegative", "z\tpositive"] * 9)
    recipe = parse_recipe(
        {"data": {"task": "classification", "examples": str(rows)}, "tokenizer": {"kind": "characters"}}
    )
    task = make_task(recipe.data, 1, tmp_path, lambda *_: None)
    filled = task.complete(recipe)
    first = task.prepare(filled, None)
    assert first.config.model_dump()["labels"] == ("negative", "neutral", "positive")
    config = first.config.model_copy(update={"labels": ("positive", "negative", "neutral")})
    known = Bundle(config, torch.nn.Identity(), first.text)
    again = make_task(recipe.data, 1, tmp_path, lambda *_: None).prepare(filled, known)
    assert again.config.model_dump()["labels"] == ("positive", "negative", "neutral")
    with pytest.raises(ConfigError, match=r"best_metric='bleu' is not measured for this task; choose accuracy"):
        task.complete(parse_recipe({**recipe.model_dump(exclude_none=True), "training": {"best_metric": "bleu"}}))


class Strange(Tokenizer):
    """A tokenizer that no published format supports."""

    kind = "strange"
    vocab_size = 4
    encode_batch = decode = fallback_bytes = to_json = _printable_piece = None  # pyright: ignore[reportAssignmentType]


def test_tokenizers_that_are_none() -> None:
    """Catches a folder without a tokenizer, a damaged one, and one that cannot be written."""
    with pytest.raises(BundleError, match=r"there is no tokenizer\.json, nor vocab\.txt"):
        read_special_token_ids({}, {})
    with pytest.raises(BundleError, match=r"lacks \[UNK\], \[CLS\] or \[SEP\]"):
        read_tokenizer({"vocab.txt": b"a\nb\n"}, DEFAULT_SPECIAL_TOKENS)
    with pytest.raises(DataError, match=r"not a tokenizer\.json"):
        HuggingFaceTokenizer("{}", DEFAULT_SPECIAL_TOKENS)
    with pytest.raises(DataError, match=r"not a tokenizer\.json"):
        read_special_token_ids({"tokenizer.json": b"{}"}, {})
    with pytest.raises(BundleError, match="is damaged"):
        read_tokenizer({"vocab.json": b'{"a": 0}', "merges.txt": b"a b\n"}, DEFAULT_SPECIAL_TOKENS)
    with pytest.raises(DataError, match="not a tokenizer of this package"):
        HuggingFaceTokenizer.from_json(json.dumps({"published": 3}))
    from transformer.tokenizers.config import NormalizationConfig

    with pytest.raises(BundleError, match="a Strange has no published form"):
        write_tokenizer(Strange(NormalizationConfig()), "X")
    kind = family("gpt")
    for name, sizes in (("gpt", {}), ("llama", {}), ("t5", {}), ("bert", {})):
        with pytest.raises(ConfigError, match=r"model\.vocab_size is not set"):
            family(name).build(family(name).config(**sizes))
    assert Bundle(kind.config(vocab_size=4), torch.nn.Identity(), None).family == "gpt"
