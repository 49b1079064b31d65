"""What a newcomer does first, in a new environment with an empty home: ours, Eole, JoeyNMT and transformers.

Installs, translates one sentence, trains on two text files to the first step and evaluates on 200 lines; every program
by its own documented way, with the least that a user can write: the commands and files in `startup/newcomer/PROGRAM`.
Where a program does not start as its documentation installs it, the error is noted and the repair is part of the stage.

Seconds are those of the commands, from the start of the first to the end of the last; of training, to the line of the
first step in the program's own log, which shows every step here. Peak memory is that of all processes of a stage
together (what n of them share counts one nth), sampled twenty times a second. Lines to write are those of the user's
files without comments and without what only the measurement needs. All have the same torch, by a constraint.

The programs train the model and search the translation that their documentation or defaults choose: the seconds are
what a newcomer waits, not a comparison of speed. A figure counts if nothing else ran and if all wheels lay in pip's
cache (`--fill-cache`, or a second run with the same `--cache`).

Usage: python benchmarks/first_minute.py --cache FOLDER [--fill-cache] [--programs ours,eole,joeynmt,transformers]
       [--rounds 1] [--timeout 1800] [--keep FOLDER] [--out FILE]
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any, Final

import torch

sys.path.insert(1, str(Path(__file__).parent / "training"))
sys.path.insert(1, str(Path(__file__).parent / "startup"))
from report import command_line, hardware
from stage import run_stage

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parent
PROGRAMS: Final = ("ours", "eole", "joeynmt", "transformers")
STAGES: Final = ("install", "translate", "train", "evaluate")
TRAINING_LINES: Final = 20_000
OTHER_LINES: Final = 200
CERTIFICATES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
MEASUREMENT: Final = "# measurement"
COLUMNS: Final = (
    "install", "on disk", "first translation", "install and translate", "commands, lines to write",
    "to the first step", "its memory", "evaluate", "its memory",
)  # fmt: skip


def environment(work: Path, arguments: argparse.Namespace) -> dict[str, str]:
    """Returns the variables of a new user whose home is empty, with pip's settings and certificates of this machine."""
    passed = {name: os.environ[name] for name in os.environ if name.startswith("PIP_") or name in CERTIFICATES}
    constraint = work / "constraint.txt"
    constraint.write_text(f"torch=={arguments.torch}\n")
    (work / "home").mkdir()
    python = Path(sys.base_prefix) / "bin"
    return passed | {
        "PATH": f"{work / 'environment' / 'bin'}:{python}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(work / "home"),
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "PIP_CONSTRAINT": str(constraint),
        "PIP_CACHE_DIR": str(arguments.cache.resolve()),
    }


def write_corpus(folder: Path, data: Path) -> None:
    """Writes the texts of the newcomer: a.en and a.de, dev and test."""
    for name, source, count in (
        ("a", "train", TRAINING_LINES),
        ("dev", "valid", OTHER_LINES),
        ("test", "test", OTHER_LINES),
    ):
        for language in ("en", "de"):
            lines = (data / "tatoeba-en-de" / f"{source}.{language}").read_bytes().split(b"\n")[:count]
            (folder / f"{name}.{language}").write_bytes(b"\n".join(lines) + b"\n")


def lines_to_write(files: list[Path]) -> int:
    """Counts lines that are neither empty nor comment nor docstring nor only for the measurement."""
    lines = [line.strip() for path in files for line in path.read_text(encoding="utf-8").splitlines()]
    return sum(bool(line) and not line.startswith(("#", '"""')) and MEASUREMENT not in line for line in lines)


def prepare(program: str, work: Path, arguments: argparse.Namespace) -> tuple[dict[str, Any], list[Path]]:
    """Fills the working folder of a program; returns its description and the files that a user writes."""
    folder = HERE / "startup" / "newcomer" / program
    described = tomllib.loads((folder / "program.toml").read_text(encoding="utf-8"))
    files = sorted(path for path in folder.iterdir() if path.suffix in {".yaml", ".py"})
    work.mkdir(parents=True)
    for path in files:
        shutil.copy(path, work)
    write_corpus(work, arguments.data)
    if program == "ours":
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
        (work / "checkout").mkdir()
        subprocess.run(["tar", "x"], cwd=work / "checkout", input=archive, check=True)
        if list((work / "checkout" / "models" / "en-de").glob("*/bundle")):
            described["install"] = [f"{described['install'][0]} ./checkout/models/en-de"]
        else:
            described["no_model"] = "this checkout has no model"
    return described, files


def installed(work: Path, variables: dict[str, str], packages: list[str]) -> dict[str, Any]:
    """Returns versions of packages, and number and size of all in the environment."""
    command = [str(work / "environment" / "bin" / "python"), "-m", "pip", "list", "--format", "json"]
    listed = json.loads(subprocess.run(command, env=variables, capture_output=True, check=True, text=True).stdout)
    versions = {entry["name"]: entry["version"] for entry in listed}
    used = subprocess.run(["du", "-sm", work / "environment"], capture_output=True, check=True, text=True).stdout
    return {
        "versions": {name: versions.get(name) for name in packages},
        "packages": len(versions),
        "environment_mib": int(used.split()[0]),
    }


def check(
    install: dict[str, Any], described: dict[str, Any], work: Path, variables: dict[str, str], log: Path, *,
    timeout: float,
) -> None:  # fmt: skip
    """Starts the program; if it does not start as it was installed, notes why and adds what repairs it to the stage."""
    started = run_stage([described["check"]], work, variables, log, timeout=timeout)
    if "error" not in started:
        return
    if "repair" not in described:
        install |= {"seconds": None, "error": started["error"], "failed_command": described["check"]}
        return
    install["error_as_documented"] = started["error"]
    repaired = run_stage([described["repair"]], work, variables, log, timeout=timeout)
    if "error" in repaired:
        install |= {"seconds": None, "error": repaired["error"], "failed_command": described["repair"]}
        return
    install["commands"] = [*install["commands"], described["repair"]]
    install["seconds"] += repaired["seconds"]
    install["peak_mib"] = max(install["peak_mib"], repaired["peak_mib"])


def try_program(program: str, work: Path, arguments: argparse.Namespace, stages: tuple[str, ...]) -> dict[str, Any]:
    """Runs the stages of a program, each only if those that it needs have worked."""
    described, files = prepare(program, work, arguments)
    variables = environment(work, arguments)
    log = work / "output.log"
    result: dict[str, Any] = {"name": described["name"], "trains": described["trains"]}
    result["lines_to_write"] = {
        "train": lines_to_write([path for path in files if path.name != "translate.py"]),
        "evaluate": lines_to_write([path for path in files if path.name == "translate.py"]),
    }
    failed = ""
    for stage in stages:
        print(f"{described['name']}: {stage}", flush=True)
        if failed:
            result[stage] = {"seconds": None, "reason": f"{failed} failed"}
            continue
        if stage == "translate" and "no_model" in described:
            result[stage] = {"seconds": None, "reason": described["no_model"]}
            continue
        commands, sign = list(described[stage]), None
        if stage == "install":
            commands.insert(0, "python3 -m venv environment")
        elif stage == "train":
            commands[-1] = f"{commands[-1]} {described.get('train_options', '')}".strip()
            sign = described["first_step"]
        result[stage] = run_stage(commands, work, variables, log, timeout=arguments.timeout, sign=sign)
        result[stage]["printed"] = [line.replace(f"{work}/", "") for line in result[stage]["printed"]]
        result[stage]["load_average_after"] = os.getloadavg()[0]
        if stage == "install" and "error" not in result[stage]:
            del result[stage]["printed"]  # names of packages
            check(result[stage], described, work, variables, log, timeout=arguments.timeout)
            result |= installed(work, variables, described["packages"])
        if "error" in result[stage] and stage != "translate":
            failed = stage
    return result


def median(rounds: list[dict[str, Any]], program: str, stage: str, key: str) -> float | None:
    """Returns the median of a figure over the rounds; None if any has none."""
    values = [entry[program].get(stage, {}).get(key) for entry in rounds]
    return None if None in values else statistics.median(values)


def print_table(rounds: list[dict[str, Any]]) -> None:
    """Prints one row a program, of medians, and why a figure is missing."""
    print(f"\n| | {' | '.join(COLUMNS)} |\n|{'---|' * (len(COLUMNS) + 1)}")
    for program, result in rounds[0].items():
        install, translate, evaluate, memory = (
            median(rounds, program, stage, key)
            for stage, key in (
                ("install", "seconds"), ("translate", "seconds"), ("evaluate", "seconds"), ("evaluate", "peak_mib")
            )
        )  # fmt: skip
        step, step_memory = (median(rounds, program, "train", f"{key}_to_sign") for key in ("seconds", "peak_mib"))
        both = None if install is None or translate is None else install + translate
        written = [len(result[stage].get("commands", [])) for stage in ("install", "train")]
        cells = [
            shown(install, " s"), shown(result.get("environment_mib"), " MiB"), shown(translate, " s"),
            shown(both, " s"),
            f"{sum(written)}, {result['lines_to_write']['train']}", shown(step, " s"), shown(step_memory, " MiB"),
            shown(evaluate, " s"), shown(memory, " MiB"),
        ]  # fmt: skip
        print(f"| {result['name']} | {' | '.join(cells)} |")
    notes = (
        f"{result['name']}, {stage}: {result[stage][key]}"
        for entry in rounds
        for result in entry.values()
        for stage in STAGES
        for key in ("error_as_documented", "error", "reason")
        if key in result[stage]
    )
    print("\n".join(dict.fromkeys(notes)))


def shown(value: float | None, unit: str) -> str:
    """Writes a figure with its unit, or a dash."""
    return "-" if value is None else f"{value:,.{1 if unit == ' s' else 0}f}{unit}"


def parsed() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True, help="pip's cache, outside the repository")
    parser.add_argument("--fill-cache", action="store_true", help="install every program once before it is measured")
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=1800, help="seconds that one command may take")
    parser.add_argument("--torch", default="2.13.0+cpu", help="version of torch for all programs")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("TRANSFORMER_DATA", ROOT / "../shared/data")))
    parser.add_argument("--keep", type=Path, help="folder for environments, runs and logs, which are kept")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    arguments.programs = arguments.programs.split(",")
    if unknown := set(arguments.programs) - set(PROGRAMS):
        parser.error(f"--programs={','.join(sorted(unknown))}; choose from {','.join(PROGRAMS)}")
    return arguments


def main() -> None:
    """Tries the programs in turn, round by round; prints the table and writes the file."""
    arguments = parsed()
    started = time.time()
    rounds: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        work = arguments.keep or Path(temporary)
        if arguments.fill_cache:
            for program in arguments.programs:
                try_program(program, work / "cache" / program, arguments, ("install",))
                shutil.rmtree(work / "cache" / program)
        for index in range(arguments.rounds):
            rounds.append({})
            for program in arguments.programs:
                place = work / f"round-{index + 1}" / program
                rounds[-1][program] = try_program(program, place, arguments, STAGES)
                if not arguments.keep:
                    shutil.rmtree(place)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, check=True, text=True
    )
    result = {
        "command": command_line(),
        "commit": commit.stdout.strip(),
        "hardware": hardware(torch.device("cpu")),
        "versions": {"python": platform.python_version(), "torch": arguments.torch},
        "corpus": f"tatoeba-en-de, first {TRAINING_LINES:,} lines; {OTHER_LINES} lines of its test set",
        "minutes": (time.time() - started) / 60,
        "rounds": rounds,
    }
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    print_table(rounds)


if __name__ == "__main__":
    main()
