"""The project's source files for architecture tests."""

import ast
import io
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("service", "bots", "workers")

Finding = tuple[int, str]
"""A line number and a description of the breach."""


def python_files(*places: str) -> list[Path]:
    """Return the Python files of packages and modules, given as paths relative to the root without ``.py``."""
    found = [path for place in places for path in (ROOT / place).rglob("*.py")]
    found += [path for place in places if (path := ROOT / f"{place}.py").exists()]
    return sorted(found)


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def comments(path: Path) -> Iterator[Finding]:
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def imported(node: ast.AST) -> list[str]:
    """Return the full names that a statement imports: ``from os import path`` gives ``os.path``."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def breaches(files: list[Path], rule: Callable[[ast.Module], Iterator[Finding]]) -> list[str]:
    """Return the breaches of ``rule`` in these files, as ``path:line: description``."""
    return [f"{path.relative_to(ROOT)}:{line}: {what}" for path in files for line, what in rule(parsed(path))]
