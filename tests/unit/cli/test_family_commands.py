"""`generate`, `perplexity`, `classify`, `embed`, `fill` and `info`, run as commands on small models."""

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from commands import run
from samples import idx, write_lines
from serving_engines import write_random_model
from substitution import substitute
from transformer.bundle import Bundle, load_bundle
from transformer.bundle.huggingface import write_published
from transformer.bundle.kind import model_kind
from transformer.bundle.languages import recorded_languages
from transformer.decoding import Sampling, Search
from transformer.errors import BundleError, ConfigError, DataError
from transformer.kernels import instruction_set
from transformer.models import family
from transformer.pipelines.auto import load
from transformer.pipelines.text_generation import Generator
from transformer.pipelines.translation.terminology import Terminology
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import train_tokenizer
from transformer.tokenizers.special_tokens import DEFAULT_SPECIAL_TOKENS


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of random models of several families, with peaked output distributions."""
    folder = tmp_path_factory.mktemp("models")
    sizes = {"gpt": {"seq_len": 12}, "bert": {}, "vit": {}}
    return {name: write_random_model(name, folder / name, **changes) for name, changes in sizes.items()}


def test_text_is_written_on(models: dict[str, Path], tmp_path: Path) -> None:
    """Catches a stream that differs from the full text, a lost prompt, and other than one line per prompt."""
    options = ["--max-tokens", 20, "--precision", "float32"]
    streamed = run("generate", models["gpt"], "abc", *options)
    assert streamed.returncode == 0, streamed.stderr
    ((whole,),) = load(models["gpt"], precision="float32").generate(["abc"], max_tokens=20)
    assert streamed.stdout == f"abc{whole.text}\n"
    prompts = write_lines(tmp_path / "prompts", ["abc", "", "h g"])
    many = run("generate", models["gpt"], "--input", prompts, "--format", "jsonl", *options)
    rows = [json.loads(line) for line in many.stdout.splitlines()]
    assert [row["prompt"] for row in rows] == ["abc", "", "h g"]
    assert rows[0]["continuations"][0]["text"] == whole.text
    assert [row["continuations"][0]["text"] for row in rows] == [
        run("generate", models["gpt"], row["prompt"], *options).stdout.removeprefix(row["prompt"])[:-1] for row in rows
    ]
    long = write_lines(tmp_path / "long", ["a", "b" * 13])
    refused = run("generate", models["gpt"], "--input", long)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "prompt 2: a prompt of 13 tokens exceeds the model's 12" in refused.stderr
    drawn = [run("generate", models["gpt"], "abc", "--sample", "--seed", seed, *options).stdout for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    unseeded = [run("generate", models["gpt"], "abc", "--sample", "--json", *options) for _ in range(2)]
    first, second = (json.loads(result.stdout) for result in unseeded)
    assert first["continuations"] != second["continuations"], "each call draws anew"
    seed = first["seed"]
    assert f"sampling with seed {seed}; --seed {seed} draws the same again\n" in unseeded[0].stderr
    assert (
        json.loads(run("generate", models["gpt"], "abc", "--sample", "--json", "--seed", seed, *options).stdout)
        == first
    )
    refused = run("generate", models["gpt"])
    assert refused.returncode == 2
    assert "give either a prompt or a file of prompts" in refused.stderr
    assert "is not a language model" in run("generate", models["bert"], "a").stderr
    for command in (("translate",), ("score", "--source", prompts, "--target", prompts)):
        refused = run(command[0], models["gpt"], *command[1:])
        assert refused.returncode == 2
        assert "does not translate" in refused.stderr


def test_prompts_are_continued_side_by_side(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a text that depends on other prompts or on the chunk of the file, and prompts out of order."""
    prompts = ["a", "bcdefgh", "", "hg", "abcdefghabc", "c"]
    for search in (Search(1), Search(2), Search(1, sampling=Sampling(seed=3))):
        generator = load(models["gpt"], precision="float32", search=search)
        max_tokens = 5 if search.beam == 1 else 1
        together = generator.generate(prompts, max_tokens=max_tokens)
        substitute(monkeypatch, "text_generation.MAX_CACHE_ELEMENTS", 1)
        alone = list(generator.each(prompts, max_tokens=max_tokens))
        monkeypatch.undo()
        for texts, texts_alone in zip(together, alone, strict=True):
            assert [text.tokens for text in texts] == [text.tokens for text in texts_alone]
        if search.sampling is None:
            assert together[3][0].text == generator.generate(["hg"], max_tokens=max_tokens)[0][0].text
    assert [text.text for (text,) in generator.generate(["a", "b"], max_tokens=0)] == ["", ""]
    with pytest.raises(ConfigError, match="coverage needs the cross-attention of a translation model"):
        load(models["gpt"], search=Search(2, coverage=0.1))


def test_what_would_be_ignored_is_refused(models: dict[str, Path], tmp_path: Path) -> None:
    """Catches options without effect, and tracebacks of arguments that are not UTF-8."""
    lines = write_lines(tmp_path / "lines", ["abc"])
    bert = models["bert"]
    for command, message in (
        (("classify", bert, "abc", "--input", lines), "give one of them"),
        (("classify", bert, "--evaluate", lines, "--output", tmp_path / "out"), "leave out texts, --input"),
        (("classify", bert, "abc", "--labels", lines), "--labels has no effect without --evaluate"),
        (("embed", bert, "--input", lines, "--nearest", "a", "--output", tmp_path / "out"), "leave out --output"),
        (("classify", bert, b"\xff"), "a text is not UTF-8 (character 1)"),
        (("fill", bert, b"[MASK]\xff"), "the text is not UTF-8 (character 7)"),
        (("embed", bert, "--input", lines, "--nearest", b"\xff"), "the text of --nearest is not UTF-8"),
        (("generate", models["gpt"], b"\xff"), "the prompt is not UTF-8"),
    ):
        result = run(*command)
        assert (result.returncode, result.stdout) == (2, ""), message
        assert message in " ".join(result.stderr.split())
        assert "Traceback" not in result.stderr


def test_a_stream_waits_for_whole_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a character split between its bytes, and a part that is streamed twice."""
    tokenizer = train_tokenizer(["é ü € 𝄞"], TokenizerConfig(kind="bytes"))
    kind = family("gpt")
    sizes = {"d_model": 16, "N": 1, "h": 2, "seq_len": 40, "vocab_size": tokenizer.vocab_size}
    generator = Generator(kind.build(kind.config.model_validate(sizes)), tokenizer)
    written = tokenizer.encode_running(["é€ 𝄞ü\n \n"])[0]
    substitute(monkeypatch, "text_generation.stream_tokens", lambda *_: iter(written))
    assert list(generator.stream("ü")) == ["é", "€", " ", "𝄞", "ü", "\n", " ", "\n"]


def test_images_are_checked_before_the_model_is_loaded(models: dict[str, Path], tmp_path: Path) -> None:
    """Catches a wrong path that is reported after minutes; the weights are damaged, which loading would report."""
    model = shutil.copytree(models["vit"], tmp_path / "vit")
    (weights,) = model.glob("*.safetensors")
    weights.write_bytes(weights.read_bytes()[:100])
    text = write_lines(tmp_path / "text.png", ["no image"])
    cases = {
        ("x.png",): "x.png: No such file or directory", (tmp_path,): "Is a directory",
        (text,): "not an image that can be read", ("--input", text): "holds texts, but the model reads images",
        (): "images are missing", ("--evaluate", text): "is not a folder; for an IDX file, give --labels too",
    }  # fmt: skip
    for arguments, message in cases.items():
        result = run("classify", model, *arguments)
        assert result.returncode == 2
        assert message in result.stderr, arguments
        assert result.stderr.count("\n") == 1
    assert model_kind(model) == "image encoder"
    assert [model_kind(models[name]) for name in ("gpt", "bert")] == ["language model", "encoder"]
    write_published(load_bundle(models["vit"]), tmp_path / "published")
    assert model_kind(tmp_path / "published") == "image encoder"
    assert [model_kind(path) for path in (tmp_path, tmp_path / "none", text)] == [None, None, None]


WRONG_KINDS = {
    "translate {gpt} abc": "does not translate", "evaluate {bert} --source {text} --reference {text}": "not translate",
    "score {vit} a b": "does not translate", "generate {bert} abc": "is not a language model",
    "perplexity {vit} --input {text}": "is not a language model", "classify {gpt} abc": "is not a classifier",
    "embed {gpt} abc": "is not a text encoder", "fill {vit} [MASK]": "is not a text encoder",
    "import {gpt} --output {new}": "is not a published model, but one of this program",
    "inspect {vit} abc --output {new}": "abc: No such file or directory",
    "info {text}": "is a file; give the folder of the model", "info /dev/null": "/dev/null is a file; give the folder",
    "shortlist {bert} --source {long} --target {long} --output {new}": "has 0 pairs with text on both sides",
    "plot scaling *": "*: No such file or directory; check the path",
}  # fmt: skip


@pytest.mark.parametrize("line", WRONG_KINDS)
def test_a_wrong_model_or_file_is_refused_in_one_line(line: str, models: dict[str, Path], tmp_path: Path) -> None:
    """Catches tracebacks, advice for another case, words of a library, and a model that is loaded in vain."""
    text, long = write_lines(tmp_path / "text", ["abc"]), write_lines(tmp_path / "long", ["x" * 300_000])
    result = run(*line.format(**models, text=text, long=long, new=tmp_path / "new").split())
    assert (result.returncode, result.stdout) == (2, "")
    assert WRONG_KINDS[line] in result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def test_accuracies_can_be_had_as_json(models: dict[str, Path], tmp_path: Path) -> None:
    """Catches text where JSON was asked for, and figures that differ from those of the text."""
    labelled = write_lines(tmp_path / "labels.tsv", ["abc\tcold", "defg\thot", "gh\tcold"])
    text = run("classify", models["bert"], "--evaluate", labelled).stdout
    figures = json.loads(run("classify", models["bert"], "--evaluate", labelled, "--json").stdout)
    assert text == f"accuracy {100 * figures['accuracy']:.2f} %  ({figures['correct']} of {figures['examples']})\n"
    pairs = write_lines(tmp_path / "pairs.tsv", ["abc\tcba", "defg\tgfed"])
    text = run("embed", models["bert"], "--evaluate", pairs).stdout
    figures = json.loads(run("embed", models["bert"], "--evaluate", pairs, "--json").stdout)
    assert [int(line.split("(")[1].split()[0]) for line in text.splitlines()] == [figures["first"], figures["second"]]
    assert figures["pairs"] == 2


def test_perplexity_takes_texts_files_and_standard_input(models: dict[str, Path], tmp_path: Path) -> None:
    """Catches texts that are read as paths or paths as texts, a lost line break, and a short text that is refused."""
    text = "abcdefgh gfe\nhello bag"
    path = write_lines(tmp_path / "a text", text.split("\n"))
    expected = load(models["gpt"], precision="float32").perplexity(text[:8], window=7)
    short = json.loads(run("perplexity", models["gpt"], "abcd", "--json", stdin="x").stdout or "{}")
    assert short == {}, "one word names a file"
    for arguments, stdin in (([text], ""), (text.split("\n"), ""), ([path], f"{text}\n"), ([], f"{text}\n")):
        result = run("perplexity", models["gpt"], *arguments, "--window", 10, stdin=stdin)
        assert result.stdout.startswith("loss "), arguments
        ends = {True: 22, False: 23}[bool(arguments and arguments[0] != path)]
        assert f"incomplete window: {ends - 1 - 20}" in result.stdout
        assert "Ctrl-D" not in result.stderr
    whole = json.loads(run("perplexity", models["gpt"], "abc", "efgh", "--json").stdout)
    assert (whole["tokens"], whole["left_out"]) == (expected.tokens, 0)
    clash = run("perplexity", models["gpt"], "a b", "--input", path)
    assert (clash.returncode, clash.stderr.count("mutually exclusive")) == (2, 1)


def test_perplexity_is_that_of_the_tokens(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a token counted twice between windows or batches, a mean over windows, and batches that are too large."""
    text = "abcdefgh gfe\nhello bag\n" * 9
    (tmp_path / "text").write_text(text, encoding="utf-8")
    output = run("perplexity", models["gpt"], tmp_path / "text", "--window", 10).stdout
    generator = load(models["gpt"], precision="float32")
    tokens = generator.tokenizer.encode_running([text])[0]
    windows = (len(tokens) - 1) // 10
    total = 0.0
    for start in range(0, windows * 10, 10):
        log_p = generator.model(torch.tensor([tokens[start : start + 10]]))[0].log_softmax(-1)
        total -= sum(log_p[position, tokens[start + position + 1]].item() for position in range(10))
    loss = total / (windows * 10)
    assert output.startswith(f"loss {loss:.4f}  perplexity {math.exp(loss):.3f}  of {windows * 10} tokens")
    assert output.rstrip().endswith(f": {len(tokens) - 1 - windows * 10}")
    for logits, at_once in ((2**26, 8), (2 * 10 * generator.tokenizer.vocab_size, 2)):
        substitute(monkeypatch, "text_generation.MAX_LOGITS", logits)
        counted: list[int] = []
        assert generator.perplexity(text, window=10, done=counted.append).loss == pytest.approx(loss, abs=1e-5)
        parts, rest = divmod(windows, at_once)
        assert counted == [10 * at_once] * parts + [10 * rest] * (rest > 0)


def test_texts_are_embedded_classified_and_filled(models: dict[str, Path], tmp_path: Path) -> None:
    """Catches rows in another order, labels of other texts, and vectors whose length is not 1."""
    lines = ["abc", "a much longer text, beyond the positions of the model", "", "hgf"]
    source, out = write_lines(tmp_path / "lines", lines), tmp_path / "v.npy"
    result = run("embed", models["bert"], "--input", source, "--output", out)
    assert result.returncode == 0, result.stderr
    assert "1 text truncated to the model's 24 tokens" in result.stderr
    vectors = np.load(out, allow_pickle=False)
    encoder = load(models["bert"], precision="bf16" if instruction_set() in ("amx", "avx512") else "float32")
    np.testing.assert_allclose(vectors[[3, 0]], encoder.embed(["hgf", "abc"]), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    nearest = run("embed", models["bert"], "--input", source, "--nearest", "hgf", "--top", 1).stdout
    assert nearest == "1.0000\thgf\n"
    rows = [json.loads(line) for line in run("embed", models["bert"], "--input", source).stdout.splitlines()]
    assert [row["text"] for row in rows] == lines
    pairs = write_lines(tmp_path / "pairs.tsv", ["abc\tabc", "hgf\tbag", "bag\thgf", "abc\tabc"])
    accuracies = run("embed", models["bert"], "--evaluate", pairs).stdout.splitlines()
    assert accuracies == [f"{side} texts nearest to their pair: 50.00 %  (2 of 4)" for side in ("first", "second")]
    assert "leave out --input" in run("embed", models["bert"], "--evaluate", pairs, "--output", out).stderr
    output = run("classify", models["bert"], "abc", "hgf").stdout.splitlines()
    assert [line.split("\t")[0] for line in output] == [label.name for label in encoder.classify(["abc", "hgf"])]
    examples = [f"{text}\t{label.name}" for text, label in zip(lines[:2], encoder.classify(lines[:2]), strict=True)]
    wrong = "cold" if encoder.classify(["gg"])[0].name == "hot" else "hot"
    labelled = write_lines(tmp_path / "gold.tsv", [*examples, f"gg\t{wrong}"])
    assert "accuracy 66.67 %  (2 of 3)" in run("classify", models["bert"], "--evaluate", labelled).stdout
    rows = [f'"{row}"'.replace("\t", '",') for row in (*examples, f"gg\t{wrong}", f"{'x' * 300_000}\thot")]
    rows = [row.removesuffix('"') for row in rows]
    labelled = run("classify", models["bert"], "--evaluate", write_lines(tmp_path / "gold.csv", ["text,label", *rows]))
    assert "accuracy 66.67 %  (2 of 3)" in labelled.stdout
    assert "note: rows left out: 1 longer than 262,144 characters" in labelled.stderr
    other = write_lines(tmp_path / "other.tsv", [*examples, "gg\tlukewarm"])
    assert (
        "label 'lukewarm' (1 times) is not one of the model's"
        in run("classify", models["bert"], "--evaluate", other).stderr
    )
    guesses = encoder.fill("ab[MASK]d", 100)[0]
    assert {guess.token for guess in guesses} == {*range(4, encoder.tokenizer.vocab_size)}, (
        "special tokens are not guesses"
    )
    newline = next(guess for guess in guesses if "\n" in guess.piece)
    assert newline.probability > 0
    shown = run("fill", models["bert"], "ab[MASK]d", "--top", 100).stdout
    assert len(shown.splitlines()) == len(guesses), "one line per guess"
    filled = run("fill", models["bert"], "ab[MASK]d", "--top", 2).stdout.splitlines()
    assert len(filled) == 2
    piece = filled[0].split("\t")[2]
    assert filled[0].split("\t")[3] == f"ab{piece.replace('▁', ' ')}d"


def test_images_are_classified(models: dict[str, Path], tmp_path: Path) -> None:
    """Catches mixed-up images and labels, and different preprocessing of image files."""
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (6, 8, 8), dtype=np.uint8)
    paths = [tmp_path / f"{number}.png" for number in range(6)]
    for path, image in zip(paths, pixels, strict=True):
        Image.fromarray(image).save(path)
    names = [label.name for label in load(models["vit"]).classify(paths)]
    output = run("classify", models["vit"], *paths, "--format", "jsonl").stdout.splitlines()
    assert [json.loads(line)["label"] for line in output] == names
    numbers = np.array([("dark", "light").index(name) for name in names], np.uint8)
    numbers[0] = 1 - numbers[0]
    files = idx(tmp_path / "images", pixels), idx(tmp_path / "labels", numbers)
    result = run("classify", models["vit"], "--evaluate", files[0], "--labels", files[1])
    assert "accuracy 83.33 %  (5 of 6)" in result.stdout, result.stderr
    assert "give --labels too" in run("classify", models["vit"], "--evaluate", files[0]).stderr
    assert "images are missing; give image files" in run("classify", models["vit"]).stderr


def test_folders_of_images_are_labels(models: dict[str, Path], tmp_path: Path) -> None:
    """Catches empty folders as labels, unknown labels counted as wrong, and tracebacks for damaged files."""
    from PIL import Image

    for name in ("dark", "light", ".hidden", "empty"):
        (tmp_path / name).mkdir()
    image = Image.fromarray(np.zeros((8, 8), np.uint8))
    for name in ("dark/1.png", "light/2.png", ".hidden/3.png"):
        image.save(tmp_path / name)
    result = run("classify", models["vit"], "--evaluate", tmp_path)
    assert "accuracy 50.00 %  (1 of 2)" in result.stdout, result.stderr
    image.save(tmp_path / "empty" / "4.png")
    result = run("classify", models["vit"], "--evaluate", tmp_path)
    assert "label 'empty' (1 times) is not one of the model's" in result.stderr
    image.save(tmp_path / "cut.png", exif=b"MM\x00*\x00\x00")
    result = run("classify", models["vit"], tmp_path / "cut.png")
    assert "not an image that can be read" in result.stderr


def test_info_tells_families_and_models(models: dict[str, Path], tmp_path: Path) -> None:
    """Catches a family that is not listed, and a model without text that cannot be shown."""
    listed = run("info").stdout
    keys = run("info", "t5").stdout
    assert re.search(r"share_embeddings +inputs +shared matrices", keys)
    for name, kind in (("bert", "encoder"), ("vit", "image encoder"), ("llama", "language model")):
        assert f"{name}: {kind}; reads published" in listed
    assert "deep-shallow" in listed
    assert re.search(r"kind +image encoder", run("info", models["vit"]).stdout)
    exported = run("export", models["vit"], "--format", "hf", "--output", tmp_path / "hf").stdout
    assert exported == f"next: transformers.ViTForImageClassification.from_pretrained({str(tmp_path / 'hf')!r})\n"
    assert re.search(r"family +vit", run("info", tmp_path / "hf").stdout)


@pytest.mark.parametrize(
    ("name", "action", "error", "message"),
    [
        ("vit", lambda it: load(it, terminology=Terminology(banned=["a"])), ConfigError,
         "does not translate; leave out terminology"),
        ("gpt", lambda it: load(it).generate("abc"), DataError, "prompts is a single text"),
        ("gpt", lambda it: load(it).perplexity("abcdefgh"), DataError, "a window of 12 needs at least 13"),
        ("gpt", lambda it: load(it).perplexity("abc", window=13), ConfigError, "window=13 is not between 1 and"),
        ("bert", lambda it: load(it).embed("abc"), DataError, "texts is a single text"),
        ("bert", lambda it: load(it).fill("[MASK]" + "a" * 30), DataError, "more than the model's 24"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_told(
    models: dict[str, Path], name: str, action: Any, error: type[Exception], message: str
) -> None:
    """Catches a result for invalid arguments."""
    with pytest.raises(error, match=message):
        action(models[name])


def test_pipelines_can_be_called(models: dict[str, Path], tmp_path: Path) -> None:
    """Catches a call that differs from the method, and results for a list where one is meant."""
    from PIL import Image

    path = tmp_path / "image.png"
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(path)
    generator, encoder, classifier = (load(models[name], precision="float32") for name in ("gpt", "bert", "vit"))
    assert generator(["ab"], max_tokens=3) == [generator.generate(["ab"], max_tokens=3)[0][0].text]
    assert generator("ab", max_tokens=3) == generator(["ab"], max_tokens=3)[0]
    assert encoder("ab") == encoder(["ab"])[0] == encoder.classify(["ab"])[0]
    assert classifier(path) == classifier([path])[0] == classifier.classify([path])[0]
    with pytest.raises(DataError, match="images is a single path; give a list"):
        classifier.classify(path)
    assert repr(generator).startswith("<Generator: ")
    assert "2 labels (hot, cold)" in repr(encoder) or "2 labels (cold, hot)" in repr(encoder)
    assert repr(classifier).startswith("<ImageClassifier: vit, images of 8 x 8, 2 labels (dark, light)")
    for pipeline in (generator, encoder):
        with pytest.raises(TypeError, match="is not a list of texts; decode bytes first"):
            pipeline(b"ab")


def test_a_model_without_text_has_no_tokenizer(models: dict[str, Path]) -> None:
    """Catches an image model that is used as a text model."""
    bundle = load_bundle(models["vit"])
    assert bundle.text is None
    with pytest.raises(BundleError, match="a vit model reads no text"):
        _ = bundle.tokenizers


def test_what_is_written_with_a_beam_is_known_at_the_end(models: dict[str, Path]) -> None:
    """Catches a streamed hypothesis that is dropped later."""
    generator = load(models["gpt"], search=Search(2), precision="float32")
    assert isinstance(generator, Generator)
    with pytest.raises(ConfigError, match="beam=2 cannot stream"):
        next(generator.stream("abc"))
    assert len(generator.generate(["ab", "c"], max_tokens=5)) == 2
    with pytest.raises(ConfigError, match="a prompt of 4 tokens and 20 new ones exceed seq_len=12"):
        generator.model.begin(torch.zeros(1, 3, dtype=torch.long), torch.ones(1, 1, 1, 3, dtype=torch.bool), 20)
    assert generator.tokenizer.special_tokens == DEFAULT_SPECIAL_TOKENS


def test_import_records_the_languages_that_it_is_given(tiny_run: Path, tmp_path: Path) -> None:
    """Catches options that the model forgets, so that its scores are tokenized for another language."""
    bundle = load_bundle(tiny_run)
    t5 = family("t5")
    vocab_size = bundle.tokenizers.source.vocab_size
    config = t5.config.model_validate({**t5.presets()["tiny"], "vocab_size": vocab_size})
    write_published(Bundle(config, t5.build(config), bundle.text), tmp_path / "published")
    options = ["--source-language", "en", "--target-language", "zh-Hant"]
    assert run("import", tmp_path / "published", "--output", tmp_path / "model", *options).returncode == 0
    assert recorded_languages(load_bundle(tmp_path / "model")) == ("en", "zh-Hant")
    refused = run("import", tmp_path / "published", "--output", tmp_path / "other", "--source-language", "Englisch!")
    assert refused.returncode == 2
    assert "Englisch!" in refused.stderr
    assert not (tmp_path / "other").exists()
