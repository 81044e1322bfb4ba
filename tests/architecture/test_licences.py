"""Whatever Coronet is installed with may be used under Apache-2.0, and the files of others keep their licences."""

import re
import tomllib
from importlib.metadata import Distribution, PackageNotFoundError, distribution

import pytest
from packaging.licenses import canonicalize_license_expression
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.architecture.sources import ROOT

# Licences without copyleft, and those (MPL, PSF) whose conditions apply to their own files only.
COMPATIBLE = frozenset(
    {
        *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "CNRI-Python", "ISC", "MIT", "MIT-0"),
        *("MIT-CMU", "MPL-1.1", "MPL-2.0", "PSF-2.0", "Unlicense", "Zlib"),
    }
)

# What older metadata call these licences, in the field License or in classifiers.
FORMER_NAMES = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache 2": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "bsd": "BSD-3-Clause",
    "bsd license": "BSD-3-Clause",
    "isc license": "ISC",
    "mit, bsd": "MIT AND BSD-3-Clause",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "python software foundation license": "PSF-2.0",
    "the bsd 2-clause license": "BSD-2-Clause",
}

VENDORED = (
    "service/console/static/vendor",
    "tests/browser/vendor",
    "tests/support/vendor",
)
EXTRAS = ("embedded", "experiments", "otel")


def licence(found: Distribution) -> str:
    """Return the SPDX expression of a distribution; raise ValueError if its metadata name none that is known here."""
    metadata = found.metadata
    fields = [*metadata.get_all("License-Expression", []), *metadata.get_all("License", []), ""]
    declared = str(fields[0])
    if not declared or "\n" in declared or len(declared) > 50:  # the text instead of the name
        classifiers = [each.split(" :: ")[-1] for each in metadata.get_all("Classifier", []) if "License ::" in each]
        declared = classifiers[0] if classifiers else ""
    return canonicalize_license_expression(FORMER_NAMES.get(declared.lower(), declared))


def is_compatible(expression: str) -> bool:
    """Return whether every part of an SPDX expression is compatible, or with OR at least one alternative."""
    return any(
        all(part.strip("() ") in COMPATIBLE for part in alternative.split(" AND "))
        for alternative in expression.split(" OR ")
    )


def runtime_distributions() -> dict[str, Distribution]:
    """Return what ``pip install coronet`` with its extras for operators brings along, by name."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    waiting = [(Requirement(text), "") for text in pyproject["dependencies"]]
    waiting += [(Requirement(text), "") for extra in EXTRAS for text in pyproject["optional-dependencies"][extra]]
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        requirement, extra = waiting.pop()
        name, extras = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if (name, extras) in seen or (requirement.marker and not requirement.marker.evaluate({"extra": extra})):
            continue
        seen.add((name, extras))
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            pytest.fail(f"{name} is required but not installed: run `make setup`.")
        waiting += [(Requirement(text), each) for text in found[name].requires or () for each in {"", *extras}]
    return found


def test_the_licences_of_all_runtime_dependencies_are_compatible() -> None:
    found = runtime_distributions()
    assert len(found) > 40  # the walk reached indirect dependencies
    unknown, incompatible = [], {}
    for name, each in found.items():
        try:
            expression = licence(each)
        except ValueError:
            unknown.append(name)
            continue
        if not is_compatible(expression):
            incompatible[name] = expression
    assert (unknown, incompatible) == ([], {})


@pytest.mark.parametrize(
    "expression", ["GPL-3.0-or-later", "MIT AND LGPL-3.0-or-later", "AGPL-3.0-only OR GPL-2.0-only"]
)
def test_copyleft_licences_are_rejected(expression: str) -> None:
    assert not is_compatible(expression)
    assert is_compatible(f"{expression} OR BSD-3-Clause")


def test_the_project_is_under_apache_2() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["license"] == "Apache-2.0"
    assert not [each for each in project["classifiers"] if each.startswith(("License ::", "Private ::"))]
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert re.sub(r"\s+", " ", text).strip().startswith("Apache License Version 2.0, January 2004")
    assert (ROOT / "service/console/static/vendor/swagger-ui/LICENSE").read_text(encoding="utf-8") == text


@pytest.mark.parametrize("place", VENDORED)
def test_vendored_files_have_a_licence_beside_them_and_are_in_the_notice(place: str) -> None:
    notice, table = (ROOT / "NOTICE").read_text(encoding="utf-8"), (ROOT / place / "README.md").read_text("utf-8")
    assert place in notice
    for folder in (each for each in (ROOT / place).iterdir() if each.is_dir()):
        assert (folder / "LICENSE").exists(), folder
        assert f"{folder.name}/" in notice
        assert f"`{folder.name}/" in table
    versions = re.findall(r"\d+\.\d+\.\d+", table)
    assert [version for version in versions if version not in notice] == []


def test_the_licences_of_vendored_files_are_in_the_wheel() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {path for pattern in project["license-files"] for path in ROOT.glob(pattern)}
    texts = {
        path
        for path in (ROOT / "service").rglob("*")
        if path.name in {"LICENSE", "NOTICE", "OFL.txt"} or path.name.endswith(".LICENSE.txt")
    }
    assert texts | {ROOT / "LICENSE", ROOT / "NOTICE"} == declared
