"""Mutated bundles, recipes, corpora and runs for all commands: no traceback, hang or signal, whatever they hold."""

import io
import json
import os
import random
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import torch
from PIL import Image

from commands import Commands
from fuzzing import copied, mutate_file, mutate_sealed, seal
from samples import digit_pairs, tmx, unit, write_lines, write_recipe
from transformer.bundle import Bundle, save_bundle
from transformer.bundle.huggingface import read_published, write_published
from transformer.models import family
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair, train_tokenizer

MEMORY, SECONDS = 2 << 30, 30
"""Memory that a command may add, and the processor time that it may take."""
LIBRARY_WORDS = re.compile(
    r"Input should|object has no|object is not|not subscriptable|argument must be|unsupported operand|invalid literal|"
    r"could not convert|Expected (tensor|size)|size mismatch|out of range|panicked|Exception ignored|Warning|"
    r"deserializ|cannot identify|well-formed|Expecting|Expected '"
)
SIZES: dict[str, dict[str, Any]] = {
    "transformer": {"src_seq_len": 24, "tgt_seq_len": 24},
    "t5": {"src_seq_len": 24, "tgt_seq_len": 24},
    "marian": {"src_seq_len": 24, "tgt_seq_len": 24, "pad_id": 50, "start_id": 50},
    "gpt": {"seq_len": 24},
    "llama": {"seq_len": 24},
    "bert": {"seq_len": 24, "masked": True, "labels": ("cold", "hot"), "d_ff": 20},
    "vit": {"image_size": (8, 8), "patch_size": (4, 4), "channels": 1, "labels": ("dark", "light"), "d_ff": 20},
}
TRANSLATE = ("translate {model} --input {text}", "score {model} --source {text} --target {text}",
             "info {model}", "export {model} --output {out}", "average {model} {model} --output {out}",
             "quantize {model} --source {text} --reference {text} --output {out}",
             "calibrate {model} --source {text} --reference {text}",
             "evaluate {model} --source {text} --reference {text} --bootstrap 0",
             "evaluate {model} --source {text} --reference {text} --bootstrap 0 --directions en-de",
             "shortlist {model} --source {text} --target {text} --output {out}",
             "train --source {text} --target {text} --from {model} --run {out} --set training.max_steps=1")  # fmt: skip
DOCUMENTS = {
    "po": 'msgid ""\nmsgstr "Language: de\\n"\n\n#, c-format\nmsgid "one %d"\nmsgid_plural "two %d"\nmsgstr[0] ""\n',
    "md": "# one *two*\n\n- [three](a) `b`\n  four\n\n| one | two |\n|---|---|\n| $x$ | three |\n",
    "srt": "1\n00:00:01,000 --> 00:00:02,000\n<i>one</i>\n\n2\n00:00:02,100 --> 00:00:03,000\n- two\n- three\n",
    "json": '{"a": "one {x}", "b": ["{n, plural, one {# two} other {# threes}}", 1, "\\u00e9 two"]}\n',
    "html": '<html lang="en"><p title="one">two <b>three</b> &amp; {% if x %}<img alt=four></p><pre>one\n two</pre>\n',
    "xliff": '<xliff version="1.2"><file><trans-unit><source><g id="1">two</g></source></trans-unit></file></xliff>\n',
    "xml": '<resources><string name="a">one\\\'s <b>two</b></string><plurals><item quantity="other">%d</item></plurals>'
    "</resources>\n",
    "properties": "# one\na = two \\\n  three {0}\n",
    "strings": '/* one */ "a" = "two \\n %@";\n',
}
READERS: dict[str, tuple[str, ...]] = {
    "transformer": TRANSLATE, "t5": TRANSLATE, "marian": TRANSLATE[:5],
    **dict.fromkeys(
        ("gpt", "llama"),
        ("generate {model} one --max-tokens 5", "perplexity {model} {text}", "info {model}",
         "export {model} --output {out}"),
    ),
    "bert": ("embed {model} --input {text}", "classify {model} one", "fill {model} one?[MASK]", "info {model}",
             "export {model} --output {out}"),
    "vit": ("classify {model} {images}", "info {model}", "export {model} --output {out}"),
}  # fmt: skip
"""Commands that read a model of each family."""


def tokenizer_pair(name: str, lines: list[str]) -> TokenizerPair:
    if name == "marian":
        sentencepiece = pytest.importorskip("sentencepiece")
        from transformer.tokenizers.sentencepiece import SentencePieceTokenizer

        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=model, vocab_size=60, hard_vocab_limit=False, minloglevel=2
        )
        processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        pieces = [processor.id_to_piece(token) for token in range(processor.get_piece_size())]
        tokenizer = SentencePieceTokenizer(model.getvalue(), pieces)
    else:
        tokenizer = train_tokenizer(lines, TokenizerConfig(kind="characters" if name == "bert" else "bytes"))
    return TokenizerPair(tokenizer, tokenizer)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Right inputs of every kind, by name; models are random."""
    folder = tmp_path_factory.mktemp("inputs")
    pairs = digit_pairs(80)
    lines = [source for source, _ in pairs]
    paths = {"text": write_lines(folder / "text", lines[:6])}
    for name, sizes in SIZES.items():
        kind = family(name)
        pair = tokenizer_pair(name, lines) if kind.reads_text else None
        vocabulary = pair.source.vocab_size if pair else 0
        known = {"vocab_size", "src_vocab_size", "tgt_vocab_size"} & kind.config.model_fields.keys()
        sizes = {"d_model": 16, "N": 1, "h": 2, "dropout": 0.0, **sizes, **dict.fromkeys(known, vocabulary)}
        config = kind.config.model_validate(sizes)
        torch.manual_seed(1)
        bundle = Bundle(config, kind.build(config).eval(), pair, {"max_source_tokens": 20})
        save_bundle(folder / name, bundle)
        paths[name] = folder / name
        if name not in ("marian",):
            write_published(bundle, folder / f"published-{name}")
            paths[f"published-{name}"] = folder / f"published-{name}"
        if name == "gpt":  # one with a published tokenizer
            save_bundle(folder / "imported-gpt", read_published(folder / "published-gpt"))
            paths["imported-gpt"] = folder / "imported-gpt"
    paths["source"] = write_lines(folder / "source.txt", lines)
    paths["target"] = write_lines(folder / "target.txt", [target for _, target in pairs])
    paths["tsv"] = write_lines(folder / "pairs.tsv", ["\t".join(pair) for pair in pairs])
    paths["csv"] = write_lines(folder / "pairs.csv", [f'"{source}",{target}' for source, target in pairs])
    rows = [json.dumps({"source": source, "target": target}) for source, target in pairs]
    paths["jsonl"] = write_lines(folder / "pairs.jsonl", rows)
    paths["parquet"] = folder / "pairs.parquet"
    columns = {name: [pair[side] for pair in pairs] for side, name in enumerate(("source", "target"))}
    parquet.write_table(pa.table({"text": columns["source"], **columns}), paths["parquet"], row_group_size=3)
    memory = "".join(unit(("en", source), ("de", target)) for source, target in pairs)
    paths["tmx"] = folder / "pairs.tmx"
    paths["tmx"].write_bytes(tmx(memory))
    paths["images"] = folder / "image.png"
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(paths["images"])
    paths["recipe"] = write_recipe(
        folder, (paths["source"], paths["target"]), max_steps=1, validate_every=1, save_every=1
    )
    paths["glossary"] = write_lines(folder / "glossary", ["one\t1", "two\t2"])
    for name, text in DOCUMENTS.items():
        paths[name] = folder / f"document.{name}"
        paths[name].write_text(text, encoding="utf-8")
    return paths


@pytest.fixture
def calm(commands: Commands, tmp_path: Path) -> Callable[..., None]:
    """Runs a command with bounded memory and time, and checks that it ends as a command must."""

    def run(line: str, **paths: Path) -> None:
        arguments = [part.replace("?", " ") for part in line.format(**paths, out=tmp_path / "out").split()]
        result = commands(*arguments, memory=MEMORY, seconds=SECONDS, cwd=tmp_path)
        shown = f"{line}\n{result.returncode}\n{result.stderr[-3000:]}"
        if "failed unexpectedly" in result.stderr:
            shown += commands("--debug", *arguments, memory=MEMORY, seconds=SECONDS, cwd=tmp_path).stderr[-3000:]
        allowed = (0, 1, 2) if line.startswith("check") else (0, 2)
        assert result.returncode in allowed, shown
        assert "Traceback" not in result.stderr, shown
        assert not LIBRARY_WORDS.search(result.stderr), shown
        errors = [text for text in result.stderr.splitlines() if text.startswith("error:")]
        assert len(errors) == (result.returncode == 2), shown

    return run


MODELS = [*READERS, "imported-gpt"]
N_SEEDS = int(os.environ.get("FUZZ_SEEDS", "6"))
"""Number of mutations of each input; those of the first seeds are always the same."""


def seeded(names: Iterable[str], n_fast: int) -> list[Any]:
    """Returns all pairs of a name and a seed, all but the first `n_fast` marked as slow."""
    pairs = [(name, seed) for seed in range(N_SEEDS) for name in names]
    return [pytest.param(*pair, marks=() if index < n_fast else pytest.mark.slow) for index, pair in enumerate(pairs)]


@pytest.mark.parametrize(("name", "seed"), seeded(MODELS, 4))
def test_sealed_models(
    calm: Callable[..., None], inputs: dict[str, Path], tmp_path: Path, name: str, seed: int
) -> None:
    """Catches what a sealed folder may hold and no check expects."""
    draw = random.Random(f"{name} {seed}")
    model = copied(inputs[name], tmp_path / "model")
    mutate_sealed(draw, model)
    calm(draw.choice(READERS[name.rpartition("-")[2]]), model=model, text=inputs["text"], images=inputs["images"])


PUBLISHED = ("transformer", "t5", "gpt", "llama", "bert", "vit")


@pytest.mark.parametrize(("name", "seed"), seeded(PUBLISHED, 2))
def test_published_folders(
    calm: Callable[..., None], inputs: dict[str, Path], tmp_path: Path, name: str, seed: int
) -> None:
    """Catches what a published folder may hold and no reader expects."""
    draw = random.Random(f"published {name} {seed}")
    folder = copied(inputs[f"published-{name}"], tmp_path / "model")
    mutate_file(draw, draw.choice(sorted(path for path in folder.iterdir() if path.is_file())))
    line = draw.choice(("import {model} --output {out}", READERS[name][0]))
    calm(line, model=folder, text=inputs["text"], images=inputs["images"])


CORPUS_COMMANDS = {
    "source": ("check {mutated} {target}", "filter {mutated} {target} --output {out}.tsv",
               "backtranslate {transformer} {mutated} --output {out}.tsv",
               "distill {transformer} {mutated} --student {recipe} --run {out} --shard 1/2 "
               "--set data.validation_source={target} --set data.validation_target={target}",
               "prepare --source {mutated} --target {target} --output {out}",
               "translate {transformer} --input {mutated}", "generate {gpt} --input {mutated} --max-tokens 3",
               "perplexity {gpt} {mutated}", "embed {bert} --input {mutated}", "classify {bert} --input {mutated}",
               "score {transformer} --source {mutated} --target {mutated}",
               "evaluate --translations {mutated} --reference {mutated}",
               "embed {bert} --input {mutated} --shards 2 --output {out} --join {out}.npy",
               "score {transformer} --source {mutated} --target {mutated} --shards 2 --output {out}",
               "perplexity {gpt} {mutated} --shards 2 --output {out}",
               "evaluate --translations {mutated} --reference {mutated} --shards 2 --output {out}",
               "train --text {mutated} --run {out} --set training.max_steps=1 --set model.preset=tiny"),
    "parquet": ("embed {bert} --input {mutated} --shards 2 --output {out} --id-column target",
                "score {transformer} --source {mutated} --text-column source --translation-column target --shards 2 "
                "--output {out} --join {out}.parquet"),
    **dict.fromkeys(("tsv", "jsonl"), ("prepare --pairs {mutated} --output {out}",)),
    "csv": ("prepare --pairs {mutated} --output {out}",
            "translate {transformer} --input {mutated} --output {out} --columns 2"),
    "tmx": ("prepare --pairs {mutated} --output {out} --set data.languages=en,de",
            "translate {transformer} --input {mutated} --output {out} --all"),
    "images": ("classify {vit} {mutated}",),
    "glossary": ("translate {transformer} --input {text} --glossary {mutated}",
                 "translate {transformer} --input {text} --ban {mutated}",
                 "translate {transformer} --input {text} --shortlist {mutated}"),
    **dict.fromkeys(tuple(DOCUMENTS), ("translate {transformer} --input {mutated} --output {out}",)),
    **dict.fromkeys(("po", "xliff"), ("translate {transformer} --input {mutated} --output {out}",
                                      "check {mutated}", "prepare --pairs {mutated} --output {out}")),
    "recipe": ("train {mutated} --run {out} --set training.max_steps=1", "prepare {mutated} --output {out}"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "seed"), seeded(CORPUS_COMMANDS, 3))
def test_files(calm: Callable[..., None], inputs: dict[str, Path], tmp_path: Path, name: str, seed: int) -> None:
    """Catches bytes and values that no reader of texts, tables, images and recipes expects."""
    draw = random.Random(f"file {name} {seed}")
    mutated = copied(inputs[name], tmp_path / f"mutated{inputs[name].suffix}")
    mutate_file(draw, mutated)
    calm(draw.choice(CORPUS_COMMANDS[name]), mutated=mutated, **inputs)


RUN_COMMANDS = ("report {run}", "translate {run} --input {text}", "info {run}", "average {run} --last 1 --output {out}",
                "train {recipe} --run {run} --set training.max_steps=2")  # fmt: skip


@pytest.fixture(scope="module")
def trained(commands: Commands, inputs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("trained") / "run"
    result = commands("train", inputs["recipe"], "--run", run)
    assert result.returncode == 0, result.stderr
    return run


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4 * N_SEEDS))
def test_runs(calm: Callable[..., None], inputs: dict[str, Path], trained: Path, tmp_path: Path, seed: int) -> None:
    """Catches checkpoints, logs and translations of a run that no reader expects."""
    draw = random.Random(f"run {seed}")
    run = copied(trained, tmp_path / "run")
    (checkpoint,) = (run / "checkpoints").iterdir()
    if draw.random() < 0.5:
        mutate_sealed(draw, draw.choice((checkpoint, checkpoint / "model")))
        for path in (checkpoint / "model").iterdir():
            seal(checkpoint, path)
    else:
        mutate_file(draw, draw.choice(sorted(path for path in run.iterdir() if path.is_file())))
    calm(draw.choice(RUN_COMMANDS), run=run, text=inputs["text"], recipe=inputs["recipe"])
