"""Writes a software bill of materials (CycloneDX JSON): packages with versions, licences and package URLs.

    sbom.py wheel FILE           the packages that requirements.lock pins, which the wheel is tested with
    sbom.py image FOLDER FILE    Python's and Debian's packages of the image whose files are in FOLDER

Files that belong to no package, such as a program that was copied into an image, are not listed. SOURCE_DATE_EPOCH is
the time of the document; without it, the document has no time, and is the same for the same packages.
"""

import argparse
import email
import json
import re
import shlex
import subprocess
import sys
import tempfile
import venv
from email.message import Message
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.spdx import is_supported_id
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = "lib/python3.11/site-packages"
"""Folder of the packages in a virtual environment."""

_PIN = re.compile(r"^([a-z0-9-]+)(?:\[[a-z0-9,-]+\])?==(\S+)", re.MULTILINE)
_GNU = re.compile(r"((?:A|L)?GPL|GFDL)-(\d)(?:(\.\d)(?:\.0)?)?(\+?)")
_LICENCE_FIELD = re.compile(r"^License:[ \t]*(\S.*?)\s*$", re.MULTILINE)


def wheel_document() -> dict[str, Any]:
    """Return the CycloneDX document of the packages that requirements.lock pins.

    Raises ValueError if this environment has other versions of these packages.
    """
    pins = dict(_PIN.findall((ROOT / "requirements.lock").read_text(encoding="utf-8")))
    document = python_document(Path(sys.prefix))
    found = {canonicalize_name(each["name"]): each for each in document["components"]}
    if missing := [name for name, version in pins.items() if found.get(name, {}).get("version") != version]:
        raise ValueError(f"This environment has other versions than requirements.lock of {', '.join(missing)}.")
    keep(document, [found[name] for name in pins])
    return document


def image_document(root: Path) -> dict[str, Any]:
    """Return the CycloneDX document of the packages in the image whose files are in ``root``."""
    with tempfile.TemporaryDirectory() as environment:  # a link to the image's packages, for the tool
        venv.create(environment, symlinks=True)
        (Path(environment) / PACKAGES).rmdir()
        (Path(environment) / PACKAGES).symlink_to(root / "opt/coronet" / PACKAGES)
        document = python_document(Path(environment))
    document["metadata"]["component"]["type"] = "container"
    release = dict(word.split("=", 1) for word in shlex.split((root / "etc/os-release").read_text(encoding="utf-8")))
    system = f"{release['ID']}-{release['VERSION_ID']}"
    document["components"] += [debian_component(package, root, system) for package in debian_packages(root)]
    return document


def python_document(environment: Path) -> dict[str, Any]:
    """Return the CycloneDX document of the packages in a virtual environment, made by the tool ``cyclonedx-py``."""
    tool = Path(sys.executable).with_name("cyclonedx-py")
    options = ["--short-PURLs", "--output-reproducible", "--no-validate", "--spec-version", "1.6"]
    argv: list[str | Path] = [tool, "environment", "--pyproject", ROOT / "pyproject.toml", *options, environment]
    return dict(json.loads(subprocess.run(argv, check=True, capture_output=True).stdout))  # noqa: S603 - our arguments


def keep(document: dict[str, Any], components: list[dict[str, Any]]) -> None:
    """Remove all components from ``document`` except ``components``, and the dependencies on removed ones."""
    kept = {each["bom-ref"] for each in [document["metadata"]["component"], *components]}
    document["components"] = components
    document["dependencies"] = [
        {"ref": each["ref"], "dependsOn": [ref for ref in each.get("dependsOn", []) if ref in kept]}
        for each in document["dependencies"]
        if each["ref"] in kept
    ]


def debian_packages(root: Path) -> list[Message]:
    """Return the control fields of each Debian package that is installed in the image whose files are in ``root``."""
    stanzas = (root / "var/lib/dpkg/status").read_text(encoding="utf-8").strip().split("\n\n")
    packages = [email.message_from_string(stanza) for stanza in stanzas]
    return [package for package in packages if package["Status"].endswith(" installed")]


def debian_component(package: Message, root: Path, system: str) -> dict[str, Any]:
    """Return the CycloneDX component of the Debian package with the control fields ``package``.

    ``root`` has the files of the image, and ``system`` is its distribution, such as ``debian-12``.
    """
    name, version = package["Package"], package["Version"]
    qualifiers = {"arch": package["Architecture"], "distro": system}
    url = PackageURL("deb", "debian", name, version, qualifiers).to_string()
    file = Path("usr/share/doc") / name / "copyright"
    licences = debian_licences((root / file).read_text(encoding="utf-8", errors="replace"))
    return {
        "bom-ref": url,
        "type": "library",
        "name": name,
        "version": version,
        "description": package["Description"].partition("\n")[0],
        "licenses": [{"license": each} for each in licences or [{"name": f"see /{file}"}]],
        "purl": url,
    }


def debian_licences(text: str) -> list[dict[str, str]]:
    """Return the licences in the fields of a Debian copyright file; empty for an old file, which has no fields."""
    fields = _LICENCE_FIELD.findall(text) if text.startswith("Format:") else []
    return list({json.dumps(each): each for each in map(licence, sorted(set(fields)))}.values())


def licence(name: str) -> dict[str, str]:
    """Return the CycloneDX licence with Debian's name ``name``: its SPDX identifier if there is one, else the name."""
    identifier = {"Expat": "MIT", "BSD-3-clause": "BSD-3-Clause", "BSD-2-clause": "BSD-2-Clause"}.get(name, name)
    if gnu := _GNU.fullmatch(name):
        family, major, minor, later = gnu.groups()
        identifier = f"{family}-{major}{minor or '.0'}-{'or-later' if later else 'only'}"
    return {"id": identifier} if is_supported_id(identifier) else {"name": name}


def write(document: dict[str, Any], file: Path) -> None:
    """Write ``document`` to ``file``. Raises ValueError if it is invalid according to the CycloneDX schema."""
    text = json.dumps(document, indent=2, sort_keys=True)
    if problem := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise ValueError(f"{file} would not be valid: {problem}")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n", encoding="utf-8")
    sys.stdout.write(f"{file}: {len(document['components'])} packages\n")


def main() -> None:
    """Write the document that the command-line arguments request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    wheel, image = kinds.add_parser("wheel"), kinds.add_parser("image")
    image.add_argument("folder", type=Path)
    for kind in (wheel, image):
        kind.add_argument("file", type=Path)
    given = parser.parse_args()
    write(wheel_document() if given.kind == "wheel" else image_document(given.folder), given.file)


if __name__ == "__main__":
    main()
