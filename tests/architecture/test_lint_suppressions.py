"""Every exception to a linter's or type checker's rule has a reason."""

import re

import pytest

from tests.architecture.sources import PROGRAMS, ROOT, comments, python_files

EXCEPTION = re.compile(r"#.*?(noqa|type: ?ignore|pragma: ?no cover)", re.IGNORECASE)
EXPLAINED = re.compile(
    r"# ((ruff: )?noqa: [A-Z]+\d+(, ?[A-Z]+\d+)*|type: ignore\[[\w, -]+\]|pragma: no cover)\s+[-#] ?\w+"
)


def unexplained(comment: str) -> bool:
    return bool(EXCEPTION.search(comment)) and not EXPLAINED.search(comment)


def test_every_suppression_has_a_reason_beside_it() -> None:
    files = python_files(*PROGRAMS, "tests", "compose")
    missing = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in files
        for line, text in comments(path)
        if unexplained(text)
    ]
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize(
    "comment", ["# noqa", "# noqa: S101", "# type: ignore", "# type: ignore[misc]", "# pragma: no cover"]
)
def test_a_suppression_without_a_reason_is_reported(comment: str) -> None:
    assert unexplained(comment)


@pytest.mark.parametrize(
    "comment",
    ["# noqa: S104 - inside containers", "# noqa: C901, PLR0911 - a table", "# type: ignore[misc]  # untyped driver"],
)
def test_a_suppression_with_a_reason_is_accepted(comment: str) -> None:
    assert not unexplained(comment)


def test_every_disabled_rule_has_a_reason() -> None:
    lines = (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    codes = [line for line in lines if re.match(r'\s+"[A-Z]+\d*"', line)]
    assert codes
    assert [line for line in codes if not re.search(r"# \w+", line)] == []
