"""Import contracts, and the uniqueness of the top-level package names."""

import json
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

from tests.architecture.sources import PROGRAMS, ROOT


def test_imports_between_packages_keep_the_contracts() -> None:
    """The contracts are in pyproject.toml."""
    linter = Path(sys.executable).with_name("lint-imports")
    checked = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_packages_are_imported_from_this_project_in_any_directory(tmp_path: Path) -> None:
    code = f"import json, {', '.join(PROGRAMS)}; print(json.dumps([p.__file__ for p in ({', '.join(PROGRAMS)})]))"
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(result.stdout) == [str(ROOT / name / "__init__.py") for name in PROGRAMS]


def test_no_other_distribution_has_packages_of_these_names() -> None:
    distributions = packages_distributions()
    assert {name: set(distributions.get(name, [])) - {"coronet"} for name in PROGRAMS} == {
        name: set() for name in PROGRAMS
    }


def test_no_subpackage_has_the_name_of_a_standard_or_installed_module() -> None:
    """A program started by path has its folder first on the import path, where it would hide such a module."""
    names = {path.stem for program in PROGRAMS for path in (ROOT / program).iterdir() if path.stem != "__init__"}
    assert names & (sys.stdlib_module_names | packages_distributions().keys()) == set()
