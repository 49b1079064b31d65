"""Releases a bundled model: quantizes the best model of a run, fits its confidence, and writes its package.

    python models/release.py en-de --run runs/en-de --version 2.0.0 --results benchmarks/results/HARDWARE
    python models/release.py en-de --results benchmarks/results/HARDWARE

The first command writes the model, its license, its sources, its recipe and its `pyproject.toml` to `models/en-de`,
scores it with the programs of `benchmarks/translation`, adds its translations of the everyday sentences to their table,
and writes the card. The second one keeps the model and the scores that are there, and writes the card again: after the
everyday sentences were rated, or after the first command was stopped. Both run in the folder of the project, and need
the corpora in `../shared/data`, or `TRANSFORMER_DATA`, and those that `models/build_corpora.py` writes.
"""

import argparse
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any, Final

from build_corpora import PACKAGES, Packages
from transformer.bundle import load_bundle
from transformer.cli.quantize import print_comparisons
from transformer.data.config import as_list
from transformer.data.readers import read_all_pairs
from transformer.errors import ConfigError, DataError, TransformerError
from transformer.options.search import Search
from transformer.pipelines.translation.calibration import calibrate_folder
from transformer.pipelines.translation.quantization import quantize_model

ROOT: Final = Path(__file__).parents[1]
MODELS: Final = ROOT / "models"
CORPORA: Final = MODELS / "corpus"
DATA: Final = Path(os.environ.get("TRANSFORMER_DATA", "../shared/data"))
BENCHMARKS: Final = ROOT / "benchmarks" / "translation"
LICENSE_TEXTS: Final = Path("/usr/share/common-licenses")
"""Texts of licenses, as every Debian has them."""
TEXT_OF: Final = {
    "GPL-3.0-or-later": "GPL-3",
    "GPL-3.0-only": "GPL-3",
    "MPL-2.0": "MPL-2.0",
    "GFDL-1.2-no-invariants-or-later": "GFDL-1.2",
}
"""Files of license texts, by identifiers of SPDX; Creative Commons licenses are named by their address."""
LANGUAGES: Final = {"en": "English", "de": "German"}
QUESTIONS: Final = {"en": "Where is the station?", "de": "Wo ist der Bahnhof?"}
MAX_BYTES: Final = 20_000_000
"""Largest size of a model."""
SCORED: Final = ("domains", "odd_lines", "number_sentences")
"""Benchmarks whose results are in the card."""
PRECISIONS: Final = ("int8", "bf16", "float32")
CALIBRATION_PAIRS: Final = 1000
"""Pairs of each text that the confidence is fitted to."""
RECIPES: Final = ("recipe.toml", "second.toml", "third.toml")
"""Recipes of the trainings of a model, each of which begins with the model of the one before."""
FOLLOWING: Final = ("next.toml", "next-second.toml", "next-third.toml")
"""The same of the next version."""
SOURCES: Final = {
    "train": ("sentences of [Tatoeba](https://tatoeba.org), as paired by manythings.org/anki", "CC BY 2.0 FR"),
    "examples": ("example sentences of the dictionary [Ding](https://www-user.tu-chemnitz.de/~fri/ding/)", "GPL-2+"),
    "dictionary": ("words and phrases of the dictionary Ding", "GPL-2+"),
    "phrases": ("everyday phrases, written for this project", "MIT"),
    "introductions": ("sentences with given names, written for this project", "MIT"),
    "messages": ("messages of programs", "GPL and LGPL in several versions, MPL-2.0"),
    "documents": ("help of LibreOffice, GIMP, GNOME and Debian", "MPL-2.0, GFDL-1.2+, CC BY-SA 3.0, GPL-2+"),
}
"""What each corpus holds, and its license, by the beginning of its name."""
TEST_SETS: Final = {
    "Tatoeba": "Tatoeba, 2,000 held-out sentences",
    "Tatoeba, beam of 4": "the same with `--beam 4`",
    "Multi30k test_2016_flickr": "Multi30k test_2016_flickr, captions of photographs",
    "newstest2014": "newstest2014, news",
    "software": "2,000 messages of programs that are held out",
}


@dataclass(frozen=True)
class Release:
    """A version of a bundled model.

    Attributes:
        name: Direction, such as `en-de`, which is the name of the model.
        version: Version of the package.
        results: Folder of the results of benchmarks.
    """

    name: str
    version: str
    results: Path

    @property
    def languages(self) -> tuple[str, str]:
        """Codes of the source and the target language."""
        source, _, target = self.name.partition("-")
        return source, target

    @property
    def short_version(self) -> str:
        """Version without the patch number, by which results are named."""
        return self.version.rpartition(".")[0]

    @property
    def folder(self) -> Path:
        """Folder of the package."""
        return MODELS / self.name

    @property
    def package(self) -> str:
        """Name of the Python package."""
        return f"transformer_model_{self.name.replace('-', '_')}"

    @property
    def bundle(self) -> Path:
        """Folder of the model."""
        return self.folder / self.package / "bundle"

    def result(self, benchmark: str) -> Path:
        """Returns the file of a benchmark's result."""
        return self.results / f"{benchmark}-{self.name}-{self.short_version}.json"


def build_bundle(release: Release, run: Path, tolerance: float) -> None:
    """Quantizes the best model of a run and calibrates it; replaces the model of the package when both are done.

    Args:
        release: The version.
        run: Run folder, or model folder in float32.
        tolerance: Maximum loss of int8, in BLEU points.

    Raises:
        ConfigError: The model is too large, or int8 loses too much.
    """
    built = ROOT / "build" / f"release-{release.name}"
    shutil.rmtree(built, ignore_errors=True)
    tatoeba = read_pairs(release, DATA / "tatoeba-en-de" / "valid")
    software = read_pairs(release, CORPORA / "software-valid")
    quantize_model(run, built, tatoeba, search=Search(), tolerance=tolerance, on_result=print_comparisons)
    (built / "calibration.json").unlink(missing_ok=True)  # of the model in float32
    pairs = tatoeba[:CALIBRATION_PAIRS] + software[:CALIBRATION_PAIRS]
    for precision in PRECISIONS:
        calibration = calibrate_folder(built, pairs, precision=precision, device="cpu")
        for kind, fitted in calibration.models.items():
            print(f"confidence in {kind}: threshold {fitted.threshold:.3f}, AUC {fitted.auc or 0:.3f}", flush=True)
    load_bundle(built, dequantize=True)
    if (size := folder_bytes(built)) > MAX_BYTES:
        raise ConfigError(f"the model has {size / 1e6:.1f} MB, more than {MAX_BYTES / 1e6:.0f}; train a smaller one")
    shutil.rmtree(release.bundle, ignore_errors=True)
    shutil.move(built, release.bundle)


def read_pairs(release: Release, path: Path) -> list[tuple[str, str]]:
    """Reads a held-out text, given without the language at the end of its name."""
    source, target = (Path(f"{path}.{language}") for language in release.languages)
    return list(read_all_pairs(source, target))


def folder_bytes(folder: Path) -> int:
    """Returns the size of the files of a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def write_package(release: Release) -> None:
    """Writes everything of a package but its model and its card.

    Raises:
        ConfigError: The text of a license is not on this machine.
        DataError: The list of the corpora's packages is missing.
    """
    license_name = recorded(release)["recipe"]["data"]["license"]
    source, target = (LANGUAGES[language] for language in release.languages)
    values = {
        "name": release.name, "package": release.package, "version": release.version, "license": license_name,
        "source": source, "target": target,
    }  # fmt: skip
    for name in ("pyproject.toml", "LICENSE"):
        (release.folder / name).write_text(filled(f"{name}.in", values), encoding="utf-8")
    texts = release.folder / "licenses"
    shutil.rmtree(texts, ignore_errors=True)
    texts.mkdir()
    for text in sorted({TEXT_OF[part] for part in license_name.split(" AND ") if part in TEXT_OF}):
        if not (LICENSE_TEXTS / text).is_file():
            raise ConfigError(
                f"{LICENSE_TEXTS / text} does not exist; release models on Debian, or copy the text there"
            )
        shutil.copyfile(LICENSE_TEXTS / text, texts / f"{text}.txt")
    rows = ["package\tlicense\tmessages", *("\t".join(row) for row in source_packages())]
    (release.folder / "SOURCES.tsv").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    promote_recipes(release.folder, recorded(release)["recipe"]["training"]["max_steps"])


def source_packages() -> list[list[str]]:
    """Returns name, license and number of messages of each package that the model was trained on.

    Raises:
        DataError: The list is missing.
    """
    path = CORPORA / "sources.tsv"
    if not path.is_file():
        raise DataError(f"{path} does not exist; run python models/build_corpora.py")
    held_out = set(Packages.read(PACKAGES).test)
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if row[0] not in held_out]


def promote_recipes(folder: Path, steps: int) -> None:
    """Makes the recipes of the next version those of this one, and removes those of the version before.

    Args:
        folder: Folder of the package.
        steps: Length of the last training, which may have been changed on the command line.
    """
    promoted = {folder / old: new for old, new in zip(FOLLOWING, RECIPES, strict=True) if (folder / old).exists()}
    if not promoted:
        return
    for name in (*RECIPES, "short.toml"):
        (folder / name).unlink(missing_ok=True)
    for following, name in promoted.items():
        lines = following.read_text(encoding="utf-8").splitlines(keepends=True)
        text = "".join(line for line in lines if not line.startswith("# It is the recipe of the next version"))
        if following == [*promoted][-1]:
            text = re.sub(r"^max_steps = .*$", f"max_steps = {steps}", text, flags=re.MULTILINE)
        for old, new in zip(FOLLOWING, RECIPES, strict=True):
            text = text.replace(old, new)
        (folder / name).write_text(text, encoding="utf-8")
        following.unlink()


def measure(release: Release) -> None:
    """Scores the model of the package, and adds its translations to the table of the everyday sentences.

    Scores that are there are kept.
    """
    bundle, name = str(release.bundle.relative_to(ROOT)), release.name
    language = release.languages[0]
    commands: dict[str, list[object]] = {
        "domains": [bundle, "--direction", name, "--data", DATA],
        "odd_lines": [bundle, "--language", language, "--data", DATA],
        "number_sentences": [f"{name}={bundle}"],
        "everyday": [name, "--version", release.short_version, "--path", bundle],
    }
    release.results.mkdir(parents=True, exist_ok=True)
    for benchmark, arguments in commands.items():
        result = release.result(benchmark)
        if benchmark != "everyday":
            arguments += ["--output", result.absolute()]
        if not result.exists():
            command = [*map(str, (BENCHMARKS / f"{benchmark}.py", *arguments))]
            print(" ".join(command), flush=True)
            subprocess.run([sys.executable, *command], cwd=ROOT, check=True)


def write_card(release: Release) -> None:
    """Writes the card of a package from its model and the results of the benchmarks.

    Raises:
        DataError: A corpus is not described here.
    """
    results = {name: json.loads(release.result(name).read_text(encoding="utf-8")) for name in SCORED}
    everyday = runpy.run_path(str(BENCHMARKS / "everyday.py"))
    ratings = everyday["ratings"](everyday["TABLES"] / f"{release.name}.tsv")[release.short_version]["all"]
    if unrated := ratings[""]:
        print(f"note: {unrated} everyday sentences are not rated; rate them, then run the command without --run")
    text = filled("README.md.in", card_values(release, recorded(release), results, ratings))
    (release.folder / "README.md").write_text(text, encoding="utf-8")


def card_values(
    release: Release, record: Mapping[str, Any], results: Mapping[str, Any], ratings: Mapping[str, int]
) -> dict[str, str]:
    """Returns the values of the card's placeholders.

    Args:
        release: The version.
        record: Provenance of the model.
        results: Results of the benchmarks, by their names.
        ratings: Number of everyday sentences with each rating, and with none (""); all are "?" until none is left.
    """
    source, target = (LANGUAGES[language] for language in release.languages)
    recipe, domains = record["recipe"], results["domains"]
    config = json.loads((release.bundle / "config.json").read_text(encoding="utf-8"))
    model = load_bundle(release.bundle, dequantize=True).model
    numbers = results["number_sentences"][release.name]["counts"]
    return {
        "name": release.name, "source": source, "target": target, "question": QUESTIONS[release.languages[0]],
        "parameters": f"{sum(parameter.numel() for parameter in model.parameters()) / 1e6:.1f}",
        "d_model": str(config["d_model"]), "encoder_layers": str(config["encoder_layers"]),
        "decoder_layers": str(config["decoder_layers"]), "vocabulary": f"{config['src_vocab_size']:,}",
        "megabytes": f"{folder_bytes(release.bundle) / 1e6:.1f}",
        "scores": "\n".join(score_row(TEST_SETS[name], scores) for name, scores in domains["scores"].items()),
        "bleu_signature": domains["signatures"]["BLEU"], "chrf_signature": domains["signatures"]["chrF"],
        "seconds": f"{2000 / record['quantized']['int8']['lines_per_second']:.1f}",
        "machine": f"{domains['machine']['cores']} cores of an {domains['machine']['processor']}",
        **{rating: "?" if ratings[""] else str(ratings[rating]) for rating in ("good", "usable", "wrong")},
        "numbers_right": str(numbers["right"]), "numbers_silent": str(numbers.get("silent", 0)),
        "odd_faults": str(len(results["odd_lines"]["examples"])),
        "training": training(release, record), "data": data_table(card_corpora(release, record)),
        "packages": str(len(source_packages())), "license": recipe["data"]["license"],
    }  # fmt: skip


def training(release: Release, record: Mapping[str, Any]) -> str:
    """Describes the training of a model, and those of the models that it began with, first to last."""
    stages = [record]
    while start := stages[0].get("start"):
        stages.insert(0, start)
    described = [
        f"by `models/{release.name}/{name}` for {stage['step']:,} steps, in {stage['seconds'] / 3600:.1f} hours"
        for name, stage in zip(RECIPES, stages, strict=False)
    ]
    tokens = record["recipe"]["training"]["batch_tokens"]
    return f"Trained {', then '.join(described)}, with at most {tokens:,} tokens a side and step, on"


def score_row(name: str, scores: Mapping[str, float]) -> str:
    """Returns a row of the table of scores."""
    return f"| {name} | {scores['BLEU']:.1f} ± {scores['interval']:.1f} | {scores['chrF']:.1f} |"


@dataclass(frozen=True)
class CorpusRow:
    """A corpus of the card.

    Attributes:
        name: Name of the source file.
        pairs: Number of its pairs.
        weights: Its weight in each training or stage, in their order; 0 where it was left out.
    """

    name: str
    pairs: int
    weights: Sequence[float]


def card_corpora(release: Release, record: Mapping[str, Any]) -> list[CorpusRow]:
    """Returns the corpora of all trainings of a model.

    Args:
        release: The version.
        record: Provenance of the model, which names the files of the last training alone.
    """
    mixtures: list[dict[str, float]] = []
    for recipe in (release.folder / name for name in RECIPES if (release.folder / name).exists()):
        data = tomllib.loads(recipe.read_text(encoding="utf-8")).get("data", {})
        names = [Path(source).name for source in as_list(data.get("source"))]
        weights = [stage["weights"] for stage in data.get("stages", [])] or [data.get("weights", [1.0] * len(names))]
        mixtures += [dict(zip(names, mixture, strict=True)) for mixture in weights if names]
    pairs = {Path(file["name"]).name: int(file["read"]) for file in record["data"]["files"]}
    mixtures = mixtures or [{Path(file["name"]).name: file["weight"] for file in record["data"]["files"]}]
    names = [*dict.fromkeys(name for mixture in mixtures for name in mixture)]
    return [
        CorpusRow(name, pairs.get(name) or count_pairs(name), [m.get(name, 0.0) for m in mixtures]) for name in names
    ]


def count_pairs(name: str) -> int:
    """Returns the number of pairs of a corpus that `models/build_corpora.py` wrote."""
    with (CORPORA / name).open("rb") as file:
        return sum(1 for _ in file)


def data_table(rows: Sequence[CorpusRow]) -> str:
    """Returns the table of the corpora.

    Raises:
        DataError: A corpus is not described.
    """
    header = "weight" if len(rows[0].weights) == 1 else "weight in each training or stage"
    lines = [f"| text | pairs | {header} | license |", "|---|---|---|---|"]
    for row in rows:
        found = [facts for start, facts in SOURCES.items() if row.name.startswith(start)]
        if not found:
            raise DataError(f"{row.name} is not described; add it to SOURCES in models/release.py")
        text, license_name = found[0]
        weights = ", ".join(f"{weight:g}" for weight in row.weights)
        lines.append(f"| {text} | {row.pairs:,} | {weights} | {license_name} |")
    return "\n".join(lines)


def recorded(release: Release) -> dict[str, Any]:
    """Returns the provenance of the package's model."""
    return json.loads((release.bundle / "provenance.json").read_text(encoding="utf-8"))


def filled(template: str, values: Mapping[str, str]) -> str:
    """Returns a template of `models/templates` with its placeholders filled."""
    return Template((MODELS / "templates" / template).read_text(encoding="utf-8")).substitute(values)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=["en-de", "de-en"])
    parser.add_argument(
        "--run", type=Path, help="run folder, or model folder in float32; without it, the package keeps its model"
    )
    parser.add_argument("--version", help="version of the package, e.g. 2.0.0; that of the package if omitted")
    parser.add_argument("--tolerance", type=float, default=0.5, help="maximum loss of int8, in BLEU points")
    parser.add_argument("--results", type=Path, required=True, help="folder of the results of benchmarks")
    arguments = parser.parse_args()
    project = tomllib.loads((MODELS / arguments.model / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    release = Release(arguments.model, arguments.version or project["version"], arguments.results)
    try:
        if arguments.run:
            build_bundle(release, arguments.run, arguments.tolerance)
            write_package(release)
            for benchmark in SCORED:  # of another model
                release.result(benchmark).unlink(missing_ok=True)
        measure(release)
        write_card(release)
    except TransformerError as error:
        sys.exit(f"error: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)


if __name__ == "__main__":
    main()
