"""The rules of the house that a program can check."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import get_args, get_type_hints

import pytest

import transformer
from samples import ROOT
from transformer.pipelines.translation.terminology import Terminology

SOURCE = ROOT / "src" / "transformer"

# Package or module -> what it may import beside itself and `errors`.
ARROWS = {
    "errors": set(),
    "style": set(),
    "config": set(),
    "interfaces": set(),
    "options": set(),
    "blocks": set(),
    "kernels": set(),
    "evaluation": {"text"},
    "text": set(),
    "documents": {"text"},
    "recipes": set(),
    "demo": set(),
    "transformer": {"blocks"},
    "storage": {"config"},
    "runtime": {"kernels"},
    "sharding": {"config", "storage", "text"},
    "launching": set(),
    "tokenizers": {"config", "text"},
    "inference": {"blocks", "kernels"},
    "models": {"blocks", "config", "text", "tokenizers", "transformer"},
    "data": {"config", "documents", "interfaces", "runtime", "storage", "text", "tokenizers"},
    "decoding": {"blocks", "interfaces", "kernels", "options", "runtime", "storage", "tokenizers"},
    "bundle": {"config", "inference", "kernels", "models", "storage", "text", "tokenizers"},
    "training": {
        "blocks", "config", "data", "interfaces", "kernels", "runtime", "storage", "tokenizers", "transformer",
    },
    "pipelines": {
        "blocks", "bundle", "config", "data", "decoding", "documents", "evaluation", "inference", "interfaces",
        "kernels", "models", "options", "runtime", "storage", "text", "tokenizers", "transformer",
    },
    "inspection": {
        "blocks", "bundle", "config", "models", "pipelines", "reporting", "storage", "style", "text", "tokenizers",
        "training",
    },
    "plot": {"inspection", "reporting", "style"},
    "ray": {"options", "pipelines"},
    "reporting": {"bundle", "data", "evaluation", "models", "pipelines", "storage", "style"},
    "run": {
        "bundle", "config", "data", "decoding", "evaluation", "interfaces", "models", "pipelines", "recipes",
        "reporting", "runtime", "sharding", "storage", "tokenizers", "training", "transformer",
    },
    "serving": {
        "bundle", "config", "decoding", "documents", "options", "pipelines", "runtime", "storage", "style", "text",
    },
    "cli": {
        "bundle", "config", "data", "decoding", "demo", "documents", "evaluation", "inspection", "kernels", "models",
        "launching", "options", "pipelines", "plot", "ray", "recipes", "reporting", "run", "runtime", "serving",
        "sharding", "storage", "text", "tokenizers", "training",
    },
    "__init__": {"errors", "options", "pipelines", "run", "transformer"},
    "__main__": {"cli"},
}  # fmt: skip


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative imports hide their arrow"
            names.extend(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            names.extend(alias.name for alias in node.names)
    parts = [name.split(".") for name in names]
    return {part[1] for part in parts if part[0] == "transformer" and len(part) > 1}


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path: Path) -> None:
    """Catches a block that knows a family, or training that knows the command line."""
    assert imported_rooms(path) - {room(path), "errors"} <= ARROWS[room(path)]


def test_the_architecture_page_shows_the_arrows() -> None:
    """Catches a table of packages that differs from what is checked here."""
    page = (ROOT / "docs" / "development" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|$", page.partition("## Packages")[2], re.MULTILINE)
    shown = {name: set(re.findall(r"`(\w+)`", imports)) for name, imports in rows}
    assert shown == {name: imports for name, imports in ARROWS.items() if not name.startswith("__")}


def test_blocks_import_torch_and_jaxtyping_alone() -> None:
    """Catches a block that needs more than the student has open."""
    for path in (SOURCE / "blocks").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            module = node.module if isinstance(node, ast.ImportFrom) else None
            names = [module] if module else [a.name for a in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                top = name.split(".")[0]
                assert top in {"torch", "jaxtyping", "transformer"} or top in sys.stdlib_module_names


def test_a_translator_loads_nothing_of_the_other_families() -> None:
    """Catches what would slow the first translation: pyarrow alone takes 150 ms."""
    heavy = {"pyarrow", "PIL", "transformer.pipelines.classification"}
    code = f"import sys, transformer.pipelines.auto; print({heavy} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "set()"


def test_every_name_is_defined() -> None:
    """Catches a missing import; ruff does not look for it where annotations of shapes have names such as `B T`."""
    ruff = [sys.executable, "-m", "ruff", "check", "--select", "F821", "--output-format", "concise", "--exit-zero"]
    result = subprocess.run(
        [*ruff, "src", "tests", "tools", "benchmarks"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    undefined = re.findall(r"^(\S+) F821 Undefined name `(\w{3,})`", result.stdout, re.MULTILINE)
    shapes = {"heads", "length", "batch", "vocabulary"}
    assert [(place, name) for place, name in undefined if name not in shapes] == []


def test_nothing_of_ours_reads_or_writes_a_pickle() -> None:
    """Catches torch.save, torch.load and the pickle modules.

    Forks of a process send pickles to each other, and one file reads published weights in a process of its own.
    """
    own = {SOURCE / "runtime" / "function_pool.py", SOURCE / "bundle" / "pickled_weights.py"}
    for path in set(SOURCE.rglob("*.py")) - own:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"(?<!safetensors\.)torch\.(save|load)\b|import (pickle|joblib|dill)", text), path


def test_colours_are_defined_once() -> None:
    """Catches a plot, a drawing or a page with a colour of its own, so that one thing has two colours."""
    own = {SOURCE / "style.py", SOURCE / "serving" / "page" / "style.css"}
    folders = SOURCE, ROOT / "tools" / "figures", ROOT / "docs" / "_static", ROOT / "docs" / "_extensions"
    files = {file for folder in folders for file in folder.rglob("*.*")}
    for path in {file for file in files if file.suffix in (".py", ".css", ".js", ".jinja", ".html")} - own:
        literal = re.search(r"[^&\w]#(?:[0-9a-f]{3}){1,2}\b|\brgba?\(\d|cmap=\"|\"tab:|\"C\d", path.read_text("utf-8"))
        assert not literal, f"{path}: {literal}"


COMMANDS = [
    "", "train", "prepare", "translate", "evaluate", "info", "demo", "average", "report", "check", "filter",
    "backtranslate", "distill", "score",
    "quantize", "calibrate", "shortlist", "import", "export", "generate", "perplexity", "classify", "embed", "fill",
    "serve", "launch", "preflight",
]  # fmt: skip
SHOW_HELP = """
import os, sys, traceback
from transformer.cli import main
for command in sys.argv[1:]:
    if not (child := os.fork()):
        sys.argv = ["transformer", *command.split(), "--help"]
        try:
            main()
        except SystemExit as end:
            heavy = {"torch", "sacrebleu", "pyarrow", "tokenizers", "matplotlib"} & set(sys.modules)
            if end.code or heavy:
                print(f"{command!r} ended with {end.code} and loaded {heavy}", file=sys.stderr)
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_help_loads_no_torch() -> None:
    """Catches a heavy import at the top of a command, and a help that fails; each command in a process of its own."""
    call = [sys.executable, "-c", SHOW_HELP, *COMMANDS]
    result = subprocess.run(call, capture_output=True, text=True, check=True)
    assert result.stderr == ""
    assert result.stdout.count("Usage") == len(COMMANDS)


def test_public_names() -> None:
    """Catches a public name that is added, lost or moved without being noticed."""
    assert sorted(transformer.__all__) == [
        "Generator", "ImageClassifier", "Recipe", "RunResult", "Search", "TextEncoder", "Transformer",
        "TransformerError", "Translation", "Translator", "build_transformer", "load", "load_recipe", "train",
    ]  # fmt: skip
    for name in transformer.__all__:
        assert getattr(transformer, name).__name__ == name
        assert getattr(transformer, name).__doc__
    assert dir(transformer) == sorted(transformer.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Tokenizer'"):
        transformer.Tokenizer  # noqa: B018


def test_importing_the_package_loads_nothing_heavy() -> None:
    """Catches an eager import in `__init__`."""
    heavy = {"torch", "pydantic", "numpy", "langcodes", "py3langid"}
    code = f"import sys, transformer; assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_module_imports_and_says_what_it_is() -> None:
    """Catches a module that only works when another was imported first."""
    for path in SOURCE.rglob("*.py"):
        name = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
        if not name.endswith("__main__"):
            assert importlib.import_module(name).__doc__, name


WRITERS = {
    "storage/tensor_files.py", "storage/verified_folder.py",  # the way to write, with `storage/atomic.py`
    "bundle/bundle.py", "bundle/huggingface.py", "training/checkpoint.py",  # into a folder that is not in place yet
    "data/duplicates.py", "data/prepare.py", "data/token_store.py", "data/tokens.py",
    "run/tasks/text.py",
    "data/cache.py", "run/run_folder.py", "sharding/leases.py",  # lock files
    "training/monitoring/reporter.py",  # a log that grows
    "training/planning/memory.py",  # a file of the system
    "pipelines/translation/alignment_output.py",  # a part of an archive whose file is given
    "cli/streams.py",  # standard streams
}  # fmt: skip
WRITES = re.compile(
    r"""\.write_(?:text|bytes)\(|open\([^()]*["'][wax]b?t?\+?["']|\bnp\.save\(|\.savefig\(|\bsave_file\("""
)


def test_files_are_written_whole_or_not_at_all() -> None:
    """Catches a writer that leaves a cut file under its final name on a full disk."""
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if WRITES.search(line) and not re.search(r"\.savefig\(file,|np\.save\(array,", line)
    }
    assert found == WRITERS


def test_a_plan_leaves_nothing_open() -> None:
    """Catches an optional field of a plan, and an assert where a type should tell what exists."""
    from transformer.run.plan import TrainingPlan
    from transformer.training.config import TrainingSettings

    fields = {**get_type_hints(TrainingPlan), **get_type_hints(TrainingSettings)}
    assert not [name for name, kind in fields.items() if type(None) in get_args(kind)]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in SOURCE.rglob("*.py")]
    assert sum(isinstance(node, ast.Assert) for tree in trees for node in ast.walk(tree)) <= 3


STAGES = SOURCE / "pipelines" / "translation"


def calls_between_files(translator: transformer.Translator, line: str) -> list[tuple[str, str]]:
    """Returns which file of `STAGES` calls which other one while a line is translated, each pair once, in order.

    Calls from packages below, such as a callback, special methods of classes and properties of records do not count.
    """
    calls: dict[tuple[str, str], None] = {}

    def record(frame: FrameType, event: str, _: object) -> None:
        called = Path(frame.f_code.co_filename)
        name, owner = frame.f_code.co_name, type(frame.f_locals.get("self"))
        is_reading = name.startswith("__") or isinstance(getattr(owner, name, None), property)
        if event != "call" or called.parent != STAGES or is_reading:
            return
        before = frame.f_back
        while before is not None and not before.f_code.co_filename.startswith(str(SOURCE)):  # the check of shapes
            before = before.f_back
        caller = Path(before.f_code.co_filename) if before else called
        if caller != called and caller.parent == STAGES:
            calls[caller.name, called.name] = None

    sys.setprofile(record)
    try:
        translator.translations([line])
    finally:
        sys.setprofile(None)
    return [*calls]


def test_a_line_goes_one_way(tiny_run: Path) -> None:
    """Catches stages that hand a line back and forth: a file is entered from a second place few times.

    The second line has what adds a way: numbers that change, two sentences, an unknown character. Tags add the files
    that align words.
    """
    translator = transformer.load(tiny_run, workers=1, terminology=Terminology(banned=["zero"]))
    stages = ["segment.py", "search.py", "assemble.py", "checks.py", "retry.py", "confidence.py"]
    for line in ("one two", "one 512 two; three ¶ 7,000. Four 88 five."):
        calls = calls_between_files(translator, line)
        assert [called for caller, called in calls if caller == "translator.py"] == stages
        files = {"translator.py", *(called for _, called in calls)}
        assert len(files) <= 12, files
        assert len(calls) - (len(files) - 1) <= 8, calls
