"""Models that read a text or an image as a whole, with what makes them ready: vectors, labels, guessed words."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from transformer.config import Config
from transformer.data.images import ImageProcessor
from transformer.data.labelled import EncodedTexts, max_text_tokens
from transformer.errors import ConfigError, DataError
from transformer.tokenizers.base import Tokenizer

BATCH_TOKENS = 1024
"""What one product computes stays in the caches of a processor; padding is less, too."""
BATCH_IMAGES = 32
COMPARED = 1024
"""Rows of cosines that are held at a time."""
ROUNDING = 1e-6
MASK = "[MASK]"


@dataclass(frozen=True)
class Label:
    """What a text or an image was recognized as.

    Attributes:
        name: of the most probable label.
        probability: that the model gives it.
        probabilities: of all labels, in the model's order.
    """

    name: str
    probability: float
    probabilities: dict[str, float]


@dataclass(frozen=True)
class Guess:
    """A token in place of a mask.

    Attributes:
        token: its id.
        piece: as it is printed.
        probability: that the model gives it.
        text: the whole text with it.
    """

    token: int
    piece: str
    probability: float
    text: str


def nearest_own(vectors: Float[NDArray[np.float32], "N d"], others: Float[NDArray[np.float32], "N d"]) -> int:
    """How many of `vectors` have no row of `others` nearer, by the cosine, than the one in their own row.

    Where several are as near, because texts repeat, the own one counts as found.
    """
    found = 0
    for start in range(0, len(vectors), COMPARED):
        cosines = vectors[start : start + COMPARED] @ others.T
        own = cosines[np.arange(len(cosines)), np.arange(start, start + len(cosines))]
        found += int((own >= cosines.max(axis=1) - ROUNDING).sum())
    return found


class TextEncoder:
    """An encoder with its tokenizer.

    Args:
        model: put into evaluation mode.
        tokenizer: of its text.
        config: of the model.

    Attributes:
        cut: texts so far that were longer than the model takes, and lost their end.
    """

    def __init__(self, model: nn.Module, tokenizer: Tokenizer, config: Config) -> None:
        self.model: Any = model.eval()
        self.tokenizer = tokenizer
        self.config = config.model_dump()
        self.n_truncated = 0
        self.description = ""

    def embed(self, texts: Sequence[str]) -> Float[NDArray[Any], "n D"]:
        """One vector of length 1 a text; their products are cosines.

        Raises:
            DataError: a single text in place of a list.
        """
        found = np.zeros((len(texts), self.config["d_model"]), np.float32)
        for ids, tokens, mask in self._batches(texts):
            with torch.inference_mode():
                found[ids] = self.model.embeddings(self.model.encode(tokens, mask), mask).float().cpu().numpy()
        return found

    def classify(self, texts: Sequence[str]) -> list[Label]:
        """The label of each text.

        Raises:
            ConfigError: the model has no labels.
        """
        names = labels_of(self.config)
        found: dict[int, Label] = {}
        for ids, tokens, mask in self._batches(texts):
            with torch.inference_mode():
                logits = self.model.label_logits(tokens, mask)
            found |= dict(zip(ids.tolist(), chosen_labels(logits, names), strict=True))
        return [found[place] for place in range(len(texts))]

    def fill(self, text: str, top: int = 5) -> list[list[Guess]]:
        """The most probable tokens for each `[MASK]` of a text, best first, but none that steers the model.

        Each mask is guessed on its own, the others staying masked.

        Raises:
            ConfigError: the model does not guess words.
            DataError: the text has no mask, or is longer than the model takes.
        """
        special_tokens = self.tokenizer.special_tokens
        if self.model.masked_head is None or special_tokens.mask is None:
            raise ConfigError("this model does not guess words; give one that was trained with masked words")
        parts = text.split(MASK)
        if len(parts) < 2:
            raise DataError(f"the text has no {MASK}; write it where a word is to be guessed")
        before, after = self.tokenizer.boundary_tokens
        tokens = [*before]
        places: list[int] = []
        # The space before a word belongs to its token, and so to the mask.
        first, rest = parts[0].rstrip(" "), [part.rstrip(" ") for part in parts[1:-1]] + [parts[-1]]
        tokens += self.tokenizer.encode(first)
        for part in self.tokenizer.encode_running(rest):
            places.append(len(tokens))
            tokens += [special_tokens.mask, *part]
        tokens += after
        if len(tokens) > self.config["seq_len"]:
            raise DataError(f"the text has {len(tokens)} tokens, more than the model's {self.config['seq_len']}")
        with torch.inference_mode():
            encoded = self.model.encode(torch.tensor([tokens]), torch.ones(1, 1, 1, len(tokens), dtype=torch.bool))
            p = self.model.masked_head(encoded[0, places]).float().softmax(dim=-1)
            no_words = {*before, *after, special_tokens.mask, *special_tokens.suppressed_ids(allow_unknown=False)}
            p[:, list(no_words)] = 0
        best = p.topk(min(top, p.size(1) - len(no_words)), dim=1)
        return [
            [
                self._guess(tokens, place, token, value, len(before), len(after))
                for value, token in zip(values, ids, strict=True)
            ]
            for place, values, ids in zip(places, best.values.tolist(), best.indices.tolist(), strict=True)
        ]

    def _guess(self, tokens: list[int], place: int, token: int, p: float, before: int, after: int) -> Guess:
        whole = [*tokens[:place], token, *tokens[place + 1 :]]
        text = self.tokenizer.decode(whole[before : len(whole) - after])
        return Guess(token, self.tokenizer.pieces([token])[0], p, text)

    def _batches(self, texts: Sequence[str]) -> Iterator[tuple[NDArray[np.int64], Tensor, Tensor]]:
        """Texts of like length, padded: their numbers, tokens and masks."""
        if isinstance(texts, str):
            raise DataError("texts is one text, and would be read letter by letter; give a list, e.g. [text]")
        if not texts:
            return
        encoded = EncodedTexts(texts, self.tokenizer, max_text_tokens(self.config))
        self.n_truncated += encoded.n_truncated
        order = np.argsort(-encoded.lengths, kind="stable")
        while len(order):
            size = max(1, BATCH_TOKENS // max(1, int(encoded.lengths[order[0]])))
            ids, order = order[:size], order[size:]
            yield ids, *encoded.fetch(ids)


class ImageClassifier:
    """An encoder of images, with labels.

    Args:
        model: put into evaluation mode.
        config: of the model.
    """

    def __init__(self, model: nn.Module, config: Config) -> None:
        self.model: Any = model.eval()
        self.config = config.model_dump()
        sizes = self.config["image_size"], self.config["channels"]
        self.pictures = ImageProcessor(*sizes, self.config["mean"], self.config["deviation"])
        self.description = ""

    def classify(self, images: Sequence[Path | str]) -> list[Label]:
        """The label of each file's image.

        Raises:
            ConfigError: the model has no labels.
            DataError: a file is no image.
        """
        found: list[Label] = []
        for start in range(0, len(images), BATCH_IMAGES):
            pixels = [self.pictures.read(Path(path)) for path in images[start : start + BATCH_IMAGES]]
            found += self.classify_pixels(self.pictures.normalized(pixels))
        return found

    def classify_pixels(self, images: Float[Tensor, "B C height width"]) -> list[Label]:
        """The label of each image, given normalized pixels."""
        names = labels_of(self.config)
        with torch.inference_mode():
            return chosen_labels(self.model.label_logits(images), names)


def labels_of(config: dict[str, Any]) -> tuple[str, ...]:
    """The labels of a model.

    Raises:
        ConfigError: it has none.
    """
    if not config["labels"]:
        raise ConfigError(f"this {config['family']} model has no labels; train it on labelled examples first")
    return config["labels"]


def chosen_labels(logits: Float[Tensor, "B labels"], names: Sequence[str]) -> list[Label]:
    """The most probable label of each row."""
    found: list[Label] = []
    for row in logits.float().softmax(dim=1).tolist():
        best = max(range(len(row)), key=row.__getitem__)
        found.append(Label(names[best], row[best], dict(zip(names, row, strict=True))))
    return found
