"""Every exception to a rule says why."""

import re

import pytest

from tests.architecture.sources import PROGRAMS, ROOT, comments, python_files

EXCEPTION = re.compile(r"#.*?(noqa|type: ?ignore|pragma: ?no cover)", re.IGNORECASE)
EXPLAINED = re.compile(
    r"# ((ruff: )?noqa: [A-Z]+\d+(, ?[A-Z]+\d+)*|type: ignore\[[\w, -]+\]|pragma: no cover)\s+[-#] ?\w+"
)


def unexplained(comment: str) -> bool:
    return bool(EXCEPTION.search(comment)) and not EXPLAINED.search(comment)


def test_every_silenced_checker_has_its_reason_beside_it() -> None:
    files = python_files(*PROGRAMS, "tests", "compose")
    silent = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in files
        for line, text in comments(path)
        if unexplained(text)
    ]
    assert not silent, "\n".join(silent)


@pytest.mark.parametrize(
    "comment", ["# noqa", "# noqa: S101", "# type: ignore", "# type: ignore[misc]", "# pragma: no cover"]
)
def test_an_exception_without_a_reason_is_noticed(comment: str) -> None:
    assert unexplained(comment)


@pytest.mark.parametrize(
    "comment",
    ["# noqa: S104 - inside containers", "# noqa: C901, PLR0911 - a table", "# type: ignore[misc]  # untyped driver"],
)
def test_an_exception_with_a_reason_may_stay(comment: str) -> None:
    assert not unexplained(comment)


def test_every_rule_that_is_switched_off_says_why() -> None:
    lines = (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    codes = [line for line in lines if re.match(r'\s+"[A-Z]+\d*"', line)]
    assert codes
    assert [line for line in codes if not re.search(r"# \w+", line)] == []
