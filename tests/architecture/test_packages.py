"""The packages' names are literal and plain, so nothing else may carry them."""

import json
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

from tests.architecture.sources import PROGRAMS, ROOT


def test_the_arrows_between_rooms_hold() -> None:
    """The contracts stand in pyproject.toml."""
    linter = Path(sys.executable).with_name("lint-imports")
    checked = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_from_any_directory_the_packages_are_ours(tmp_path: Path) -> None:
    code = f"import json, {', '.join(PROGRAMS)}; print(json.dumps([p.__file__ for p in ({', '.join(PROGRAMS)})]))"
    found = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(found.stdout) == [str(ROOT / name / "__init__.py") for name in PROGRAMS]


def test_no_other_distribution_carries_our_packages_names() -> None:
    carriers = packages_distributions()
    assert {name: set(carriers.get(name, [])) - {"coronet"} for name in PROGRAMS} == {name: set() for name in PROGRAMS}


def test_no_room_is_named_like_a_module_it_could_hide() -> None:
    """A program started by its path has its own folder first on the import path."""
    rooms = {path.stem for program in PROGRAMS for path in (ROOT / program).iterdir() if path.stem != "__init__"}
    assert rooms & (sys.stdlib_module_names | packages_distributions().keys()) == set()
