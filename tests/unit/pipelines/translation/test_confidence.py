"""Confidence in translations: features, fit, threshold, flags, and what is stored."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from commands import run
from samples import digit_pairs, tiny_recipe, write_lines
from transformer.bundle import load_bundle, save_bundle
from transformer.bundle.calibration import CALIBRATION, read_calibration, write_calibration
from transformer.cli.formats import formatter
from transformer.data.readers import read_all_pairs
from transformer.decoding import Sampling, Search
from transformer.errors import BundleError, ConfigError, DataError
from transformer.pipelines.auto import load_translator
from transformer.pipelines.translation.calibration import calibrate_folder, spoil
from transformer.pipelines.translation.confidence import (
    GOOD,
    MAX_THRESHOLD,
    RIDGE,
    Calibration,
    ConfidenceModel,
    area_under_curve,
    features_of,
    fit_confidence,
)
from transformer.pipelines.translation.flag_summary import FlagSummary
from transformer.run.recipe import parse_recipe
from transformer.run.train import train
from transformer.storage.checkpoint_paths import CHECKPOINT, resolve_model
from transformer.storage.verified_folder import VerifiedFolder

NOTHING = ConfidenceModel((0.0, 0.0, 0.0, 0.0, 0.0, 0.0), threshold=0.6)
"""A model that is equally unsure of everything."""


def examples(n: int = 211) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns features on different scales, chrF that depends on them, and which lines are plain."""
    random = np.random.default_rng(7)
    features = random.normal(size=(n, 3)) * (1.0, 20.0, 0.0) + (0.0, 50.0, 3.0)
    logits = 1.5 * features[:, 0] - 0.1 * (features[:, 1] - 50) + random.normal(size=n)
    return features, 1 / (1 + np.exp(-logits)), random.random(n) < 0.5


def test_the_area_under_the_curve_counts_pairs() -> None:
    """Catches ties that count as right or as wrong, and ranks from 0."""
    random = np.random.default_rng(3)
    scores, labels = random.integers(0, 9, size=67).astype(float), random.random(67) < 0.4
    pairs = [(a > b) + 0.5 * (a == b) for a in scores[labels] for b in scores[~labels]]
    assert area_under_curve(scores, labels) == pytest.approx(sum(pairs) / len(pairs))
    assert area_under_curve(scores, np.ones(67, bool)) is None


def test_the_fit_has_the_lowest_loss() -> None:
    """Catches a wrong gradient, a penalty of the intercept, and weights that are not scaled back."""
    features, chrf, is_plain = examples()
    fitted = fit_confidence(features, chrf, is_plain)
    deviations = [math.sqrt(sum((x - sum(column) / len(column)) ** 2 for x in column) / len(column))
                  for column in features.T.tolist()]  # fmt: skip

    def loss(weights: list[float]) -> float:
        total = 0.5 * RIDGE * sum((w * s) ** 2 for w, s in zip(weights[1:], deviations, strict=True))
        for row, target in zip(features.tolist(), chrf.tolist(), strict=True):
            p = 1 / (1 + math.exp(-weights[0] - sum(w * x for w, x in zip(weights[1:], row, strict=True))))
            total -= target * math.log(p) + (1 - target) * math.log(1 - p)
        return total

    best = list(fitted.weights)
    for index, size in enumerate((1e-2, 1e-2, 1e-3)):
        for sign in (-1, 1):
            assert loss([w + sign * size * (i == index) for i, w in enumerate(best)]) > loss(best)


def test_the_threshold_spares_good_plain_lines() -> None:
    """Catches a threshold that counts spoiled lines or bad ones, and one that flags what is good enough for anyone."""
    features, chrf, is_plain = examples()
    fitted = fit_confidence(features, chrf, is_plain)
    confidences = [fitted.confidence(row) for row in features.tolist()]
    good = [c for c, score, plain in zip(confidences, chrf, is_plain, strict=True) if plain and score >= GOOD]
    n_flagged = sum(c < fitted.threshold for c in good)
    assert n_flagged == int(0.035 * len(good)) > 0
    easy = fit_confidence(features, np.maximum(chrf, 0.9), is_plain)
    assert easy.threshold == MAX_THRESHOLD
    assert easy.auc is None


def test_features_and_flags_of_lines(tiny_run: Path) -> None:
    """Catches a score that is not of one token, and copied and empty lines that get the confidence of a translation."""
    translator = load_translator(tiny_run, workers=1, calibration=Calibration({"float32 greedy": NOTHING}))
    lines = ["one two", "7", "", "one"]
    checked = translator.finish_checked(translator.begin(lines))
    n_tokens = len(checked[0].translation.alternatives[0].tokens[0]) + 1
    assert features_of(checked[0])[0] == pytest.approx(math.exp(checked[0].translation.score / n_tokens))
    assert features_of(checked[0])[1] == pytest.approx(math.log(len(checked[0].translation.sources[0])))
    translations = translator.translations(lines)
    assert [translation.confidence for translation in translations] == [0.5, 1.0, None, 0.5]
    assert [flag for flag in translations[0].flags if "unsure" in flag] == ["unsure (confidence 0.50)"]
    assert translations[1].flags == ()
    for search in (Search(beam=2), Search(sampling=Sampling(seed=1))):  # neither has a model
        assert translator.translations(["one"], search=search)[0].confidence is None
    with pytest.warns(UserWarning, match="^lines? 1 and 1 other: unsure"):
        translator(["one", "two"])


def test_the_model_of_another_precision_stands_in() -> None:
    """Catches a translator in int8 without a confidence because the run was calibrated in float32."""
    other = replace(NOTHING, threshold=0.2)
    calibration = Calibration({"bf16 beam": NOTHING, "int8 beam": other}, "int8")
    assert calibration.model_for(Search(beam=5)) is other
    assert replace(calibration, precision="float32").model_for(Search(beam=5)) is NOTHING
    assert calibration.model_for(Search()) is None


def test_a_thousand_confidences_are_one_note() -> None:
    """Catches a note for each value, and a summary that counts them as other notes."""
    summary = FlagSummary()
    for number in range(1, 1001):
        summary.add(number, [f"unsure (confidence {number / 10000:.4f})"])
    (note,) = summary.notes()
    assert note.startswith("line 1 and 999 others: unsure")


def test_spoiled_copies() -> None:
    """Catches copies that differ between calls, are all alike, lose a line, or differ in case alone.

    A line in capitals is translated well, in capitals, and has no chrF with its reference.
    """
    pairs = digit_pairs(50)
    sources, references = [source for source, _ in pairs], [reference for _, reference in pairs]
    spoiled = spoil(sources, references, 3)
    assert spoiled == spoil(sources, references, 3) != spoil(sources, references, 4)
    assert len(spoiled) == len(sources)
    assert sorted(spoiled[0].split()) == sorted(sources[0].split())
    assert sorted("".join(spoiled[3].split())) == sorted("".join(sources[3].split())), "letters are exchanged"
    text = ["the old man gives bread to a young woman there"] * 40
    assert all(sum(map(str.isupper, copy)) == 0 for copy in spoil(text, text, 0))
    assert spoil(["", " "], ["", ""], 0) == ["", ""]


def test_a_calibration_belongs_to_its_model(tiny_run: Path, tmp_path: Path) -> None:
    """Catches a calibration that changes the model's fingerprint, or is read damaged or beside another model."""
    bundle = load_bundle(tiny_run)
    folder = tmp_path / "model"
    save_bundle(folder, bundle)
    before = load_bundle(folder).fingerprint
    entries = Calibration({"int8 greedy": NOTHING}).to_dict()
    write_calibration(folder, entries)
    assert load_bundle(folder).calibration == json.loads(json.dumps(entries))
    assert load_bundle(folder).fingerprint == before
    assert Calibration.from_dict(entries, "int8").model_for(Search()) == NOTHING
    with pytest.raises(BundleError, match="another version; run transformer calibrate"):
        Calibration.from_dict({"int8 greedy": {"weights": [1]}}, "int8")
    path = folder / CALIBRATION
    for old, new, message in (
        ('"threshold": 0.6', '"threshold": 0.7', "does not match its checksum"),
        ("{", "[", "is not a calibration"),
    ):
        text = path.read_text()
        path.write_text(text.replace(old, new))
        with pytest.raises(BundleError, match=message):
            load_bundle(folder)
        path.write_text(text)
    (folder / "manifest.sha256").write_text("0" * 64 + "\n")
    with pytest.raises(BundleError, match="belongs to another model"):
        read_calibration(folder)


def test_a_run_calibrates_its_best_model(digit_corpus: tuple[Path, Path], tmp_path: Path) -> None:
    """Catches a calibration that damages the checkpoint, is stored nowhere, or that a resumption repeats."""
    tree = tiny_recipe(digit_corpus, max_steps=4, warmup_steps=2, batch_tokens=512, validate_every=4, save_every=4)
    sides = zip(*digit_pairs(110, seed=4), strict=True)
    paths = [write_lines(tmp_path / name, side) for name, side in zip("st", sides, strict=True)]
    tree["data"] |= {"validation_source": str(paths[0]), "validation_target": str(paths[1])}
    del tree["data"]["validation_pairs"]
    run_folder = tmp_path / "run"
    train(parse_recipe(tree), run_folder, quiet=True)
    folder = resolve_model(run_folder)
    VerifiedFolder(folder.parent, CHECKPOINT).verify_all()
    stored = read_calibration(folder)
    assert list(stored) == ["float32 beam", "float32 greedy"]
    assert stored["float32 beam"]["lines"] >= 200
    modified = (folder / CALIBRATION).stat().st_mtime_ns
    train(parse_recipe(tree), run_folder, quiet=True)
    assert (folder / CALIBRATION).stat().st_mtime_ns == modified
    assert load_translator(run_folder, workers=1).translations(["one two"])[0].confidence is not None


def test_the_command_and_the_mark(tiny_run: Path, digit_corpus: tuple[Path, Path], tmp_path: Path) -> None:
    """Catches a calibration that is not stored, marks on lines that are sure, and a mark without a confidence."""
    folder = tmp_path / "model"
    save_bundle(folder, load_bundle(tiny_run))
    lines = write_lines(tmp_path / "lines", ["one two three", "7", ""])
    refused = run("translate", folder, "--input", lines, "--min-confidence", 0.5)
    assert "--min-confidence needs a confidence" in refused.stderr
    pairs = [list(side)[:110] for side in zip(*read_all_pairs(*digit_corpus), strict=True)]
    source, reference = (write_lines(tmp_path / name, side) for name, side in zip("st", pairs, strict=True))
    done = run("calibrate", folder, "--source", source, "--reference", reference, "--json")
    assert done.returncode == 0, done.stderr
    assert {name.split()[1] for name in json.loads(done.stdout)} == {"greedy", "beam"}
    records = [json.loads(line) for line in run("translate", folder, "--input", lines, "--json").stdout.splitlines()]
    assert records[1]["confidence"] == 1.0
    assert records[2]["confidence"] is None
    marked = run("translate", folder, "--input", lines, "--min-confidence", 1).stdout.splitlines()
    assert marked == [f"[unsure] {records[0]['translation']}", "7", ""]
    with pytest.raises(ConfigError, match="marks plain text"):
        formatter("jsonl", all_alternatives=False, min_confidence=0.5)


def test_unsure_translations_are_counted_in_evaluations(tiny_run: Path, tmp_path: Path) -> None:
    """Catches a count that is missing in the report, or counts lines that were copied or are sure."""
    folder = tmp_path / "model"
    save_bundle(folder, load_bundle(tiny_run))
    write_calibration(folder, Calibration({"float32 greedy": NOTHING}).to_dict())
    lines, page = write_lines(tmp_path / "lines", ["one two three", "7", "two"]), tmp_path / "page.html"
    options = ("--source", lines, "--reference", lines, "--precision", "float32", "--bootstrap", 0)
    done = run("evaluate", folder, *options, "--report", page, "--translations", lines)
    assert "3 lines, 2 flagged (2 unsure)" in done.stdout, done.stderr
    cells = re.findall(r"<td>([\d,]*)</td></tr>", page.read_text(encoding="utf-8"))
    assert cells[:2] == ["2", ""]  # the other system tells nothing


def test_too_few_lines(tiny_run: Path) -> None:
    """Catches a fit to a handful of lines, which would be trusted."""
    with pytest.raises(DataError, match="too few lines to calibrate with: 99"):
        calibrate_folder(tiny_run, [("one", "1")] * 99)
