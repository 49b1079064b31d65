"""Encoders of texts and images with their preprocessing: embeddings, labels and masked words."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from transformer.data.images import ImageProcessor
from transformer.data.labelled import EncodedTexts
from transformer.errors import ConfigError, DataError, counted
from transformer.models.bert.model import Bert
from transformer.models.kinds import EncoderConfig, ImageEncoderConfig, LabellingConfig
from transformer.models.vit.model import Vit
from transformer.pipelines.device import device_of
from transformer.pipelines.texts import texts_of
from transformer.runtime.threads import prepare_threads
from transformer.tokenizers.base import Tokenizer

NO_MASKED_WORDS = "this model does not predict masked words; give one that was trained on masked words"
BATCH_TOKENS = 1024
"""Small enough that the results of a matrix product stay in the CPU caches, and that there is little padding."""
GPU_BATCH_TOKENS = 1 << 15
"""The same on a GPU, which needs larger products; chosen without a measurement."""
BATCH_IMAGES = 32
GPU_BATCH_IMAGES = 256
COSINE_ROWS = 1024
"""Rows of the matrix of cosines that are in memory at a time."""
TIE_TOLERANCE = 1e-6
MASK_TOKEN = "[MASK]"


@dataclass(frozen=True)
class Label:
    """Predicted label of a text or an image.

    Attributes:
        name: Name of the most probable label.
        probability: Probability of this label.
        probabilities: Probabilities of all labels, in the model's order.
    """

    name: str
    probability: float
    probabilities: dict[str, float]


@dataclass(frozen=True)
class Guess:
    """A predicted token for a mask.

    Attributes:
        token: Token id.
        piece: Printable token.
        probability: Probability of the token.
        text: Whole text with the token in the mask's position.
    """

    token: int
    piece: str
    probability: float
    text: str


def count_nearest_matches(vectors: Float[NDArray[np.float32], "N d"], others: Float[NDArray[np.float32], "N d"]) -> int:
    """Counts top-1 retrievals: the rows of `vectors` whose nearest row of `others`, by cosine, has the same index.

    If several rows are equally near, because texts repeat, the match counts.
    """
    count = 0
    for start in range(0, len(vectors), COSINE_ROWS):
        cosines = vectors[start : start + COSINE_ROWS] @ others.T
        matching = cosines[np.arange(len(cosines)), np.arange(start, start + len(cosines))]
        count += int((matching >= cosines.max(axis=1) - TIE_TOLERANCE).sum())
    return count


class TextEncoder:
    """A text encoder with its tokenizer.

    Args:
        model: Encoder; it is put into evaluation mode.
        tokenizer: Tokenizer of the model.
        config: Configuration of the model.

    Attributes:
        n_truncated: Number of texts so far that exceeded the model's positions and were truncated.
    """

    def __init__(self, model: Bert, tokenizer: Tokenizer, config: EncoderConfig) -> None:
        prepare_threads()
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.config = config
        self.n_truncated = 0
        self.description = ""

    @property
    def device(self) -> torch.device:
        """Device of the model."""
        return device_of(self.model)

    def __repr__(self) -> str:
        """Returns the family, the size of the vectors, the labels and where it runs."""
        return _describe(self, f"vectors of {self.config.d_model}")

    @overload
    def __call__(self, texts: str) -> Label | Float[NDArray[np.float32], " D"]: ...  # pyright: ignore[reportOverlappingOverload]
    @overload
    def __call__(self, texts: Iterable[str]) -> list[Label] | Float[NDArray[np.float32], "n D"]: ...
    def __call__(self, texts: str | Iterable[str]) -> Label | list[Label] | Float[NDArray[np.float32], "*n D"]:
        """Returns the label of a text, or its vector from a model without labels; a list of them for a list."""
        several = [texts] if isinstance(texts, str) else texts_of(texts, "texts")
        results = self.classify(several) if self.config.labels else self.embed(several)
        return results[0] if isinstance(texts, str) else results

    def embed(self, texts: Sequence[str]) -> Float[NDArray[np.float32], "n D"]:
        """Returns a vector of length 1 for each text; dot products of the vectors are cosines.

        Raises:
            DataError: `texts` is a single text instead of a list.
        """
        texts = texts_of(texts, "texts")
        vectors = np.zeros((len(texts), self.config.d_model), np.float32)
        for ids, tokens, mask in self._batches(texts):
            with torch.inference_mode():
                vectors[ids] = self.model.embeddings(self.model.encode(tokens, mask), mask).float().cpu().numpy()
        return vectors

    def classify(self, texts: Sequence[str]) -> list[Label]:
        """Returns the label of each text.

        Raises:
            ConfigError: The model has no labels.
            DataError: `texts` is a single text instead of a list.
        """
        names, texts = model_labels(self.config), texts_of(texts, "texts")
        labels: dict[int, Label] = {}
        for ids, tokens, mask in self._batches(texts):
            with torch.inference_mode():
                logits = self.model.label_logits(tokens, mask)
            labels |= dict(zip(ids.tolist(), top_labels(logits, names), strict=True))
        return [labels[index] for index in range(len(texts))]

    def fill(self, text: str, top: int = 5) -> list[list[Guess]]:
        """Returns the most probable tokens for each `[MASK]` of a text, best first, without special tokens.

        Each mask is predicted independently, while the others stay masked.

        Raises:
            ConfigError: The model does not predict masked words.
            DataError: The text has no mask, or exceeds the model's positions.
        """
        special_tokens = self.tokenizer.special_tokens
        if self.model.masked_head is None:
            raise ConfigError(NO_MASKED_WORDS)
        before, after = self.tokenizer.boundary_tokens
        tokens, positions = encode_masked(self.tokenizer, text, self.config.seq_len)
        with torch.inference_mode():
            mask = torch.ones(1, 1, 1, len(tokens), dtype=torch.bool, device=self.device)
            encoded = self.model.encode(torch.tensor([tokens], device=self.device), mask)
            p = self.model.masked_head(encoded[0, positions]).float().softmax(dim=-1)
            excluded = {*before, *after, special_tokens.mask, *special_tokens.suppressed_ids(allow_unknown=False)}
            p[:, list(excluded)] = 0
        best = p.topk(min(top, p.size(1) - len(excluded)), dim=1)
        return [
            [
                self._guess(tokens, position, token, value, len(before), len(after))
                for value, token in zip(values, ids, strict=True)
            ]
            for position, values, ids in zip(positions, best.values.tolist(), best.indices.tolist(), strict=True)
        ]

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Returns the number of tokens of each text that the model reads, special tokens included."""
        return EncodedTexts(texts_of(texts, "texts"), self.tokenizer, self.config.max_text_tokens).lengths.tolist()

    def _guess(self, tokens: list[int], position: int, token: int, p: float, n_before: int, n_after: int) -> Guess:
        filled = [*tokens[:position], token, *tokens[position + 1 :]]
        text = self.tokenizer.decode(filled[n_before : len(filled) - n_after])
        return Guess(token, self.tokenizer.pieces([token])[0], p, text)

    def _batches(self, texts: Sequence[str]) -> Iterator[tuple[NDArray[np.int64], Tensor, Tensor]]:
        """Yields indices, padded tokens and masks of batches of texts of similar length."""
        if not texts:
            return
        encoded = EncodedTexts(texts, self.tokenizer, self.config.max_text_tokens)
        self.n_truncated += encoded.n_truncated
        order = np.argsort(-encoded.lengths, kind="stable")
        device = self.device
        batch_tokens = BATCH_TOKENS if device.type == "cpu" else GPU_BATCH_TOKENS
        while len(order):
            size = max(1, batch_tokens // max(1, int(encoded.lengths[order[0]])))
            ids, order = order[:size], order[size:]
            tokens, mask = encoded.fetch(ids)
            yield ids, tokens.to(device), mask.to(device)


class ImageClassifier:
    """An image classifier with its preprocessing.

    Args:
        model: Image encoder; it is put into evaluation mode.
        config: Configuration of the model.
    """

    def __init__(self, model: Vit, config: ImageEncoderConfig) -> None:
        prepare_threads()
        self.model = model.eval()
        self.config = config
        self.processor = image_processor(config)
        self.description = ""

    @property
    def device(self) -> torch.device:
        """Device of the model."""
        return device_of(self.model)

    def __repr__(self) -> str:
        """Returns the family, the size of the images, the labels and where it runs."""
        return _describe(self, f"images of {' x '.join(map(str, self.config.image_size))}")

    @overload
    def __call__(self, images: Path | str) -> Label: ...  # pyright: ignore[reportOverlappingOverload]
    @overload
    def __call__(self, images: Iterable[Path | str]) -> list[Label]: ...
    def __call__(self, images: Path | str | Iterable[Path | str]) -> Label | list[Label]:
        """Returns the label of an image file, or of each file in a list."""
        return self.classify([images])[0] if isinstance(images, Path | str) else self.classify(list(images))

    def classify(self, images: Sequence[Path | str]) -> list[Label]:
        """Returns the label of each image file.

        Raises:
            ConfigError: The model has no labels.
            DataError: A file is not an image, or `images` is a single path.
        """
        if isinstance(images, Path | str):
            raise DataError("images is a single path; give a list, e.g. [path]")
        labels: list[Label] = []
        size = BATCH_IMAGES if self.device.type == "cpu" else GPU_BATCH_IMAGES
        for start in range(0, len(images), size):
            pixels = [self.processor.read(Path(path)) for path in images[start : start + size]]
            labels += self.classify_pixels(self.processor.normalize(pixels))
        return labels

    def classify_pixels(self, images: Float[Tensor, "B C height width"]) -> list[Label]:
        """Returns the label of each image, given normalized pixels."""
        names = model_labels(self.config)
        with torch.inference_mode():
            return top_labels(self.model.label_logits(images.to(self.model.first)), names)


def _describe(pipeline: "TextEncoder | ImageClassifier", size: str) -> str:
    names = pipeline.config.labels
    labels = (
        f"{counted(len(names), 'label')} ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})" if names else ""
    )
    facts = (pipeline.config.family_name, size, labels, pipeline.description)
    return f"<{type(pipeline).__name__}: {', '.join(filter(None, facts))}>"


def encode_masked(tokenizer: Tokenizer, text: str, limit: int) -> tuple[list[int], list[int]]:
    """Encodes a text in which `[MASK]` stands for words to be predicted, with its special tokens.

    Returns:
        The tokens, and the positions of the masks.

    Args:
        tokenizer: Tokenizer of the model.
        text: Text with at least one `[MASK]`.
        limit: Maximum number of tokens.

    Raises:
        ConfigError: The tokenizer has no mask token.
        DataError: The text has no mask, or too many tokens.
    """
    mask = tokenizer.special_tokens.mask
    if mask is None:
        raise ConfigError(NO_MASKED_WORDS)
    parts = text.split(MASK_TOKEN)
    if len(parts) < 2:
        raise DataError(f"the text has no {MASK_TOKEN}; write it where a word is to be predicted")
    before, after = tokenizer.boundary_tokens
    tokens = [*before]
    positions: list[int] = []
    # The space before a word is part of its token, and therefore of the mask.
    first, others = parts[0].rstrip(" "), [part.rstrip(" ") for part in parts[1:-1]] + [parts[-1]]
    tokens += tokenizer.encode(first)
    for part in tokenizer.encode_running(others):
        positions.append(len(tokens))
        tokens += [mask, *part]
    tokens += after
    if len(tokens) > limit:
        raise DataError(f"the text has {len(tokens)} tokens, more than the model's {limit}; shorten it")
    return tokens, positions


def image_processor(config: ImageEncoderConfig) -> ImageProcessor:
    """Returns the preprocessing of the images that a model reads."""
    return ImageProcessor(
        config.image_size,
        config.channels,
        config.mean,
        config.deviation,
        resized=config.resized,
        resampling=config.resampling,
    )


def model_labels(config: LabellingConfig) -> tuple[str, ...]:
    """Returns the names of a model's labels.

    Raises:
        ConfigError: The model has no labels.
    """
    if not config.labels:
        raise ConfigError(f"this {config.family_name} model has no labels; train it on labelled examples first")
    return config.labels


def top_labels(logits: Float[Tensor, "B labels"], names: Sequence[str]) -> list[Label]:
    """Returns the most probable label of each row."""
    labels: list[Label] = []
    for row in logits.float().softmax(dim=1).tolist():
        best = max(range(len(row)), key=row.__getitem__)
        labels.append(Label(names[best], row[best], dict(zip(names, row, strict=True))))
    return labels
