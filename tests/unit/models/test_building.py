"""Building of models: refused sizes, and the initialization of T5."""

import math

import pytest
import torch

from transformer.bundle import Bundle
from transformer.errors import ConfigError
from transformer.models import family


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


def test_a_model_without_a_vocabulary_is_not_built() -> None:
    """Catches a traceback for a size that only the tokenizer determines."""
    for name in ("gpt", "llama", "t5", "bert"):
        with pytest.raises(ConfigError, match=r"model\.vocab_size is not set"):
            family(name).build(family(name).config())
    assert Bundle(family("gpt").config(vocab_size=4), torch.nn.Identity(), None).family == "gpt"
