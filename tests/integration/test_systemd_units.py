"""The systemd units as systemd's own tools judge them; tests/e2e/test_systemd_service.py runs one."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from service.settings import Settings

FOLDER = Path(__file__).resolve().parents[2] / "compose" / "systemd"
UNITS = sorted(path.name for path in FOLDER.glob("*.service"))
TIMERS = sorted(path.name for path in FOLDER.glob("*.timer"))
LARGEST_EXPOSURE = 2.0

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")


def _lines(unit: str) -> list[str]:
    return [line for line in (FOLDER / unit).read_text().splitlines() if line and not line.startswith("#")]


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Return a folder with the units, whose program is one that exists."""
    for unit in (*UNITS, *TIMERS):
        text = (FOLDER / unit).read_text().replace("ExecStart=/opt/coronet/bin/coronet", "ExecStart=/bin/true")
        (tmp_path / unit).write_text(text)
    return tmp_path


def test_there_is_a_unit_for_each_program_and_for_backups() -> None:
    programs = ["coronet-bot@.service", "coronet-console.service", "coronet-worker@.service", "coronet.service"]
    assert sorted([*programs, "coronet-backup.service"]) == UNITS
    assert TIMERS == ["coronet-backup.timer"]


@needs_systemd
def test_systemd_accepts_the_units_without_a_warning(installed: Path) -> None:
    units = [str(installed / unit) for unit in (*UNITS, *TIMERS)]
    result = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@needs_systemd
@pytest.mark.parametrize("unit", UNITS)
def test_the_security_exposure_of_a_unit_is_low(installed: Path, unit: str) -> None:
    argv = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(installed / unit)]
    output = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    found = re.search(r"Overall exposure level for \S+: (\d+\.\d+)", output)
    assert found is not None, output
    assert float(found[1]) <= LARGEST_EXPOSURE, output


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_sets_only_existing_settings(unit: str) -> None:
    names = re.findall(r"^Environment=CORONET_(\w+?)(?:_FILE)?=", "\n".join(_lines(unit)), re.MULTILINE)
    names = [name if name != "STORE_IDENTITY" else "STORE_IDENTITY_FILE" for name in names]
    assert {name.lower() for name in names} <= {*Settings.model_fields, "config"}


@pytest.mark.parametrize("unit", UNITS)
def test_each_secret_is_an_optional_credential(unit: str) -> None:
    lines = _lines(unit)
    for name in re.findall(r"^LoadCredential=(\w+):", "\n".join(lines), re.MULTILINE):
        assert f"LoadCredential={name}:/etc/coronet/secrets/{name}" in lines
        assert rf"SetCredential={name}:\n" in lines
        assert f"Environment=CORONET_{name.upper()}_FILE=%d/{name}" in lines


def test_all_units_have_the_same_confinement() -> None:
    """Only workers, which have parser processes of low priority, may call setpriority."""
    confinements = {}
    for unit in UNITS:
        lines = _lines(unit)
        confinement = lines[lines.index("NoNewPrivileges=yes") :]
        if "[Install]" in confinement:  # a timer starts the service of backups
            confinement = confinement[: confinement.index("[Install]")]
        confinements[unit] = [line for line in confinement if line != "SystemCallFilter=setpriority"]
    assert all(each == confinements["coronet.service"] for each in confinements.values())
    may_set_priority = [unit for unit in UNITS if "SystemCallFilter=setpriority" in _lines(unit)]
    assert may_set_priority == ["coronet-worker@.service", "coronet.service"]
