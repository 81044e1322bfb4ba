"""What a release consists of: one version, and every data file in the wheel."""

import re
import tomllib

from hatchling.builders.wheel import WheelBuilder

from tests.architecture.sources import PROGRAMS, ROOT

VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


def test_every_file_of_the_packages_is_in_the_wheel() -> None:
    """Lua scripts, catalogs, templates and static files are data that the programs read."""
    included = {each.distribution_path for each in WheelBuilder(str(ROOT)).recurse_included_files()}
    files = {
        str(path.relative_to(ROOT))
        for program in PROGRAMS
        for path in (ROOT / program).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {".lua", ".po", ".html", ".css", ".j2"} <= {"." + name.rpartition(".")[2] for name in files}
    assert files - included == set()


def test_images_of_containers_have_the_version_of_the_project() -> None:
    files = (ROOT / "compose").glob("*.yaml")
    tags = {tag for path in files for tag in re.findall(r"image: coronet[a-z-]*:(\S+)", path.read_text("utf-8"))}
    assert tags == {VERSION}


def test_the_changelog_begins_with_the_version_of_the_project() -> None:
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0].strip("[]") == VERSION


def test_the_image_build_copies_all_files_of_programs_and_licences() -> None:
    """Units of systemd, which the wheel has as well, are of no use in a container."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {"pyproject.toml", project["readme"], *project["license-files"], *PROGRAMS}
    recipe = (ROOT / "compose/Dockerfile").read_text(encoding="utf-8")
    sources = {word for line in re.findall(r"^COPY (?!--)(.+) \S+$", recipe, re.MULTILINE) for word in line.split()}
    sent = (ROOT / "compose/Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    assert {name.partition("/")[0] for name in named} - sources == set()
    assert sources - {line.removeprefix("!") for line in sent if line.startswith("!")} == set()
