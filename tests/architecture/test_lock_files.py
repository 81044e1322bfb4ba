"""The lock files agree with pyproject.toml and with each other, and name no package index."""

import re
import tomllib
from importlib.metadata import distributions
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.architecture.sources import ROOT

GROUPS = {group: f"requirements-{group}.lock" for group in ("publish", "containers")}
LOCKS = ("requirements.lock", "requirements-build.lock", "requirements-dev.lock", *GROUPS.values())
PIN = re.compile(r"(?P<name>[a-z0-9-]+)(?:\[(?P<extras>[a-z0-9,_-]+)\])?==(?P<version>\S+)( ;[^\\]*)? \\")
HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")


def pin_lines(lock: str) -> list[re.Match[str]]:
    lines = (ROOT / lock).read_text(encoding="utf-8").splitlines()
    return [found for line in lines if (found := PIN.fullmatch(line))]


def pins(lock: str) -> dict[str, str]:
    return {found["name"]: found["version"] for found in pin_lines(lock)}


def unsatisfied(requirements: list[str], lock: str) -> list[str]:
    locked = pins(lock)
    parsed = [Requirement(text) for text in requirements]
    return [str(each) for each in parsed if locked.get(canonicalize_name(each.name), "none") not in each.specifier]


@pytest.fixture(scope="module")
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_contains_only_pins_and_hashes(lock: str) -> None:
    """It has no index URL and no options: these are the machine's configuration."""
    lines = (ROOT / lock).read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not PIN.fullmatch(line) and not HASH.fullmatch(line)] == []
    pinned = [number for number, line in enumerate(lines) if PIN.fullmatch(line)]
    assert pinned
    assert [lines[number] for number in pinned if not HASH.fullmatch(lines[number + 1])] == []


def test_all_requirements_are_locked(pyproject: dict[str, Any]) -> None:
    """If this fails, run ``make lock``."""
    project = pyproject["project"]
    extras = project["optional-dependencies"]
    assert unsatisfied(project["dependencies"] + extras["embedded"], "requirements.lock") == []
    assert unsatisfied(pyproject["build-system"]["requires"], "requirements-build.lock") == []
    everything = project["dependencies"] + extras["experiments"] + extras["otel"] + extras["dev"]
    assert unsatisfied(everything, "requirements-dev.lock") == []
    for group, lock in GROUPS.items():
        assert unsatisfied(pyproject["dependency-groups"][group], lock) == []


def test_extras_that_packages_need_are_locked_by_name() -> None:
    """Otherwise pip takes the newest version of such a package, which has no hash in the lock."""
    locked = {
        found["name"]: set(map(canonicalize_name, (found["extras"] or "").split(",")))
        for found in pin_lines("requirements-dev.lock")
    }
    needed = [
        requirement
        for package in distributions()
        if canonicalize_name(package.name) in locked
        for requirement in map(Requirement, package.requires or [])
        if requirement.extras and (requirement.marker is None or requirement.marker.evaluate({"extra": ""}))
    ]
    assert needed
    missing = [
        str(each)
        for each in needed
        if not set(map(canonicalize_name, each.extras)) <= locked[canonicalize_name(each.name)]
    ]
    assert missing == []


@pytest.mark.parametrize("lock", LOCKS[:2])
def test_tests_use_the_shipped_versions(lock: str) -> None:
    assert pins(lock).items() <= pins("requirements-dev.lock").items()


@pytest.mark.parametrize("lock", GROUPS.values())
def test_optional_lock_files_pin_the_tested_versions(lock: str) -> None:
    tested = pins("requirements-dev.lock")
    differing = {name: pin for name, pin in pins(lock).items() if tested.get(name, pin) != pin}
    assert differing == {}
