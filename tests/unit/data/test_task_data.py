"""The examples of tasks other than translation: windows of text, labelled texts, images."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import torch

from samples import idx, write_lines
from transformer.data.images import IdxImages, ImageDataset, ImageFolder, ImageProcessor, read_idx
from transformer.data.labelled import EncodedTexts, LabelledDataset, label_ids, read_rows
from transformer.data.windows import WindowDataset, open_tokens, running_text, write_tokens
from transformer.errors import DataError
from transformer.tokenizers.character import CharacterTokenizer
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import train_tokenizer
from transformer.training.objectives.classification import ImageAugmentation

TEXT = ["To be, or not to be:", "", "that is \u2028 the question\u00e9", "\ttab"]


@pytest.mark.parametrize("kind", ["bpe", "bytes", "characters"])
def test_running_text_comes_back(kind: str, tmp_path: Path) -> None:
    """Catches a lost line end, an inserted space, and a file whose tokens depend on how it is divided."""
    settings = TokenizerConfig(kind=kind, vocab_size=280)
    path = write_lines(tmp_path / "text", TEXT * 700)
    tokenizer = train_tokenizer(running_text([path]), settings)
    seen: list[int] = []
    with (tmp_path / "t.npy").open("wb") as file:
        count = write_tokens(file, running_text([path]), tokenizer, seen.append)
    tokens = open_tokens(tmp_path / "t.npy")
    assert count == len(tokens)
    assert seen[-1] == 2800
    assert tokenizer.decode_running(tokens.tolist()).encode() == path.read_bytes()


def test_characters_that_were_never_seen_are_unknown() -> None:
    """Catches an id beyond the vocabulary."""
    tokenizer = CharacterTokenizer.train(["abc"], TokenizerConfig(kind="characters"))
    assert tokenizer.encode_batch(["cabz"]) == [[6, 4, 5, 3]]
    assert tokenizer.decode([6, 1, 4, 99]) == "ca"
    again = CharacterTokenizer.from_json(tokenizer.to_json())
    assert again.fingerprint() == tokenizer.fingerprint()
    assert tokenizer.pieces([4, 2]) == ["a", "[EOS]"]
    with pytest.raises(DataError, match="the training text is empty"):
        CharacterTokenizer.train([""], TokenizerConfig(kind="characters"))
    with pytest.raises(DataError, match="not a tokenizer of this package"):
        CharacterTokenizer.from_json("[]")


def test_windows_cover_the_text_and_wear_their_frame() -> None:
    """Catches a window that is left out, and a frame that overwrites text."""
    tokens = np.arange(10, 33, dtype=np.int32)
    dataset = WindowDataset(tokens, 5, 4, 3, ((1,), (2, 2)))
    assert dataset.lengths.shape == (5, 1)
    assert int(dataset.lengths.max()) == 8
    batch = dataset.fetch(np.array([0, 4]))
    assert batch.tokens.tolist() == [[1, 10, 11, 12, 13, 14, 2, 2], [1, 26, 27, 28, 29, 30, 2, 2]]
    assert batch.scored_tokens == 6
    with pytest.raises(DataError, match="a text of 4 tokens has no window of 5"):
        WindowDataset(tokens[:4], 5, 5, 1)


def test_labelled_texts_are_padded_and_truncated(tmp_path: Path) -> None:
    """Catches a label of another text, attention to padding, and a truncation that is not counted."""
    write_lines(tmp_path / "a.tsv", ["one\tyes", "two three four\tno"])
    (tmp_path / "b.jsonl").write_text('{"text": "five", "label": "yes"}\n', encoding="utf-8")
    (tmp_path / "c.jsonl").write_text('{"text": "five", "label": 1}\n', encoding="utf-8")
    assert list(read_rows([tmp_path / "c.jsonl"], None, ("text", "label"))) == [("five", "1")]
    with pytest.raises(DataError, match="'label' is not a text"):
        list(read_rows([tmp_path / "c.jsonl"], ("label", "text"), ("label", "text")))
    columns = {"text": ["five", "six"], "label": [1, 2], "kind": pa.array(["a", "b"]).dictionary_encode()}
    parquet.write_table(pa.table(columns), tmp_path / "d.parquet")
    assert list(read_rows([tmp_path / "d.parquet"], None, ("text", "label"))) == [("five", "1"), ("six", "2")]
    assert list(read_rows([tmp_path / "d.parquet"], ("text", "kind"), ("a", "b"))) == [("five", "a"), ("six", "b")]
    with pytest.raises(DataError, match="column 'label' holds int64, not texts"):
        list(read_rows([tmp_path / "d.parquet"], ("label", "text"), ("a", "b")))
    rows = list(read_rows([tmp_path / "a.tsv", tmp_path / "b.jsonl"], None, ("text", "label")))
    assert rows == [("one", "yes"), ("two three four", "no"), ("five", "yes")]
    tokenizer = CharacterTokenizer.train(["abcdefghijklmnopqrstuvwxyz "], TokenizerConfig(kind="characters"))
    texts = EncodedTexts([text for text, _ in rows], tokenizer, 9)
    assert texts.n_truncated == 1
    dataset = LabelledDataset(texts, label_ids([label for _, label in rows], ("no", "yes"), "a"))
    assert dataset.lengths.tolist() == [[5], [9], [6]]
    batch = dataset.fetch(np.array([1, 0]))
    assert batch.labels.tolist() == [0, 1]
    assert batch.mask[:, 0, 0].sum(dim=1).tolist() == [9, 5]
    before, after = tokenizer.boundary_tokens
    assert batch.tokens[1].tolist() == [*before, *tokenizer.encode("one"), *after, 0, 0, 0, 0]
    with pytest.raises(DataError, match="label 'maybe'"):
        label_ids(["yes", "maybe"], ("no", "yes"), "a")


def test_idx_files_are_read_and_damage_is_told(tmp_path: Path) -> None:
    """Catches a header that is trusted: a short file would be filled with uninitialized memory."""
    values = np.random.default_rng(0).integers(0, 256, (3, 4, 5), dtype=np.uint8)
    assert np.array_equal(read_idx(idx(tmp_path / "a.gz", values)), values)
    complete = idx(tmp_path / "a", values).read_bytes()
    for content, message in (
        (complete[:-1], "holds 59 bytes where its header says 60"), (complete + b"x", "holds more bytes"),
        (b"\x89PNG" + complete, "is not an IDX file of bytes"), (complete[:9], "ends within its header"),
    ):  # fmt: skip
        (tmp_path / "bad").write_bytes(content)
        with pytest.raises(DataError, match=message):
            read_idx(tmp_path / "bad")


def test_images_and_labels_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    """Catches labels of other images, another image size, and too few names."""
    images = idx(tmp_path / "images", np.zeros((3, 4, 5), np.uint8))
    labels = idx(tmp_path / "labels", np.array([0, 2, 1], np.uint8))
    pictures = ImageProcessor((4, 5), 1, (0.5,), (0.5,))
    loaded = IdxImages(images, labels, None, pictures)
    assert loaded.names == ("0", "1", "2")
    assert loaded.take(np.array([1])).tolist() == torch.full((1, 1, 4, 5), -1.0).tolist()
    few = idx(tmp_path / "few", np.array([0, 2], np.uint8))
    with pytest.raises(DataError, match="they do not go together"):
        IdxImages(images, few, None, pictures)
    with pytest.raises(DataError, match=r"set model\.channels and model\.image_size"):
        IdxImages(images, labels, None, ImageProcessor((28, 28), 1, (0.5,), (0.5,)))
    with pytest.raises(DataError, match=r"has labels up to 2, data\.label_names 2 names"):
        IdxImages(images, labels, ("a", "b"), pictures)


def test_folders_of_images_are_read(tmp_path: Path) -> None:
    """Catches swapped sides or channels, a damaged file without its name, and labels in another order."""
    from PIL import Image

    for number, name in enumerate(("dog", "cat")):
        (tmp_path / "all" / name).mkdir(parents=True)
        pixels = np.full((6, 9, 3), (255, 0, 51), np.uint8)
        pixels[0, :] = number
        Image.fromarray(pixels).save(tmp_path / "all" / name / "1.png")
    pictures = ImageProcessor((6, 9), 3, (0.0,), (1.0,))
    images = ImageFolder(tmp_path / "all", pictures)
    assert images.names == ("cat", "dog")
    batch = ImageDataset(images, np.array([1, 0]), 5).fetch(np.array([0]))
    assert batch.labels.tolist() == [1]
    assert batch.images.shape == (1, 3, 6, 9)
    torch.testing.assert_close(batch.images[0, :, 5, 3], torch.tensor([1.0, 0.0, 0.2]))
    assert batch.images[0, 0, 0].max() == 0
    deep = tmp_path / "deep.png"
    Image.fromarray(np.full((4, 4), 40_000, np.uint16)).save(deep)
    with pytest.raises(
        DataError, match=r"deep.png: its pixels are I;16, more than 8 bits; save it with 8 bits per channel"
    ):
        pictures.read(deep)
    sideways = tmp_path / "phone.png"
    exif = Image.Exif()
    exif[274] = 6  # rotate by 90 degrees
    Image.fromarray(pixels).save(sideways, exif=exif)
    Image.fromarray(np.rot90(pixels, -1)).save(tmp_path / "upright.png")
    assert np.array_equal(pictures.read(sideways), pictures.read(tmp_path / "upright.png"))
    (tmp_path / "all" / "cat" / "1.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"cat/1.png: not an image"):
        images.take(np.array([0]))
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match="has no folders of images"):
        ImageFolder(tmp_path / "none", pictures)


def test_images_are_moved_mirrored_and_blanked() -> None:
    """Catches a shift beyond the edge, a vertical flip, and an erased area that covers the whole image."""
    images = torch.arange(2 * 1 * 5 * 7).float().view(2, 1, 5, 7).expand(2, 1, 5, 7) + 1
    moved = ImageAugmentation(flip=False, shift=2, erase=0.0)(images)
    for before, after in zip(images, moved, strict=True):
        candidates = [
            before[:, torch.clamp(torch.arange(5) + down, 0, 4)][:, :, torch.clamp(torch.arange(7) + right, 0, 6)]
            for down in range(-2, 3)
            for right in range(-2, 3)
        ]
        assert any(torch.equal(after, candidate) for candidate in candidates)
    many = images[:1].expand(64, -1, -1, -1)
    mirrored = ImageAugmentation(flip=True, shift=0, erase=0.0)(many)
    is_unchanged = [torch.equal(image, many[0]) for image in mirrored]
    assert 10 < sum(is_unchanged) < 54
    assert all(
        torch.equal(image, many[0].flip(2))
        for image, is_equal in zip(mirrored, is_unchanged, strict=True)
        if not is_equal
    )
    blanked = ImageAugmentation(flip=False, shift=0, erase=0.5)(many)
    shares = [(image == 0).float().mean().item() for image in blanked]
    assert 10 < sum(share == 0 for share in shares) < 54
    assert max(shares) <= 0.5
