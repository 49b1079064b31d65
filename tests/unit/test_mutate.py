"""The table of deliberate faults."""

import ast
from pathlib import Path

import pytest

import mutate
from mutate import FAULTS, Fault, MutationError, check_import, main, mutated
from samples import ROOT


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_faults_match_the_source_and_name_tests(fault: Fault) -> None:
    """Catches a fault that a change of the source or of a test's name has made void."""
    source = mutated(fault, ROOT)
    ast.parse(source)
    assert source != (ROOT / "src" / "transformer" / fault.file).read_text(encoding="utf-8")
    assert fault.arguments
    for argument in fault.arguments:
        path, _, name = argument.partition("::")
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert not name or name in names


def test_no_fault_is_tried_twice() -> None:
    """Catches a line that was copied and not changed."""
    assert len({(fault.file, fault.old, fault.new) for fault in FAULTS}) == len(FAULTS) >= 60


def test_texts_that_do_not_occur_once_are_refused() -> None:
    """Catches a fault that is put into the wrong one of two places, or into none."""
    for old, count in (("no such text", 0), ("import", 2)):
        with pytest.raises(MutationError, match=rf"blocks/masks\.py has [{count}-9] times '{old}', not once; correct"):
            mutated(Fault("blocks/masks.py", old, "", "unit/blocks/test_blocks.py"), ROOT)


def test_another_package_than_the_copy_is_not_tested(tmp_path: Path) -> None:
    """Catches tests of the installed package, which notice no fault of the copy."""
    with pytest.raises(MutationError, match=r"__init__\.py is imported instead of the copy in"):
        check_import(tmp_path)


def test_survivors_and_the_selection_decide_the_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches a survivor that is not reported, and tests that pass in other code than the copy; pytest is not run."""
    chosen = [fault for fault in FAULTS if fault.file == "storage/atomic.py"]
    statuses = iter([0, 1, 0, 1])
    seen: list[list[str]] = []

    def fake_run(folder: object, arguments: list[str]) -> tuple[int, str]:
        del folder
        seen.append(list(arguments))
        return next(statuses), ""

    monkeypatch.setattr(mutate, "copy_project", lambda folder: mutate.shutil.copytree(ROOT / "src", folder / "src"))
    monkeypatch.setattr(mutate, "run_tests", fake_run)
    monkeypatch.setattr(mutate, "check_import", lambda folder: None)
    assert main(["--only", "storage/atomic.py"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[1:-1]] == [["1/3", "killed"], ["2/3", "SURVIVED"], ["3/3", "killed"]]
    assert seen[1:] == [fault.arguments for fault in chosen]
    assert main(["--only", "no such fault"]) == 2
    assert "no fault is selected" in capsys.readouterr().err
    statuses = iter([1])
    assert main(["--only", "storage/atomic.py"]) == 2
    assert "the tests fail without a fault" in capsys.readouterr().err
