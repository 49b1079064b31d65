"""Readability statistics of a Python package, in one row for comparison with other projects.

Usage: python benchmarks/code/readability.py [PACKAGE] [TESTS]
"""

import ast
import statistics
import sys
from pathlib import Path


def functions_of(tree: ast.Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method of a module."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def n_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function, its docstring left out."""
    first = function.body[0]
    docstring = first.end_lineno - first.lineno + 1 if ast.get_docstring(function) and first.end_lineno else 0
    return (function.end_lineno or function.lineno) - function.lineno + 1 - docstring


def is_annotated(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Every argument but self and cls has a type."""
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return all(argument.annotation for argument in arguments if argument.arg not in ("self", "cls"))


def share(values: list[bool]) -> str:
    """Percentage of true values."""
    return f"{100 * sum(values) / max(1, len(values)):.0f} %"


def row(package: Path, tests: Path) -> dict[str, object]:
    """The figures of one package."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(package.rglob("*.py"))]
    sizes = [text.count("\n") for text in texts]
    functions = [function for text in texts for function in functions_of(ast.parse(text))]
    lengths = sorted(n_lines(function) for function in functions)
    public = [function for function in functions if not function.name.startswith("_")]
    nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    test_lines = sum(path.read_text(encoding="utf-8").count("\n") for path in tests.rglob("*.py"))
    raises, asserts = (sum(isinstance(node, kind) for node in nodes) for kind in (ast.Raise, ast.Assert))
    return {
        "files": len(texts),
        "median file": statistics.median(sizes),
        "largest file": max(sizes),
        "functions": len(functions),
        "function median/p90/max": f"{statistics.median(lengths):.0f}/{lengths[len(lengths) * 9 // 10]}/{lengths[-1]}",
        "documented": share([ast.get_docstring(function) is not None for function in public]),
        "annotated": share([is_annotated(function) for function in functions]),
        "raise/assert": f"{raises}/{asserts}",
        "getattr+hasattr": sum(isinstance(n, ast.Name) and n.id in ("getattr", "hasattr") for n in nodes),
        "test/source": f"{test_lines / sum(sizes):.2f}",
    }


if __name__ == "__main__":
    paths = [Path(argument) for argument in sys.argv[1:]] + [Path("src"), Path("tests")][len(sys.argv) - 1 :]
    for name, value in row(*paths).items():
        print(f"{name:<24} {value}")
