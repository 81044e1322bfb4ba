"""The command line: usage errors and failures print one line, and secrets are hidden."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from service import cli
from service.embedded import state_directory

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Call ``coronet`` in this process; return its exit status, output and error output."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["coronet", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["fly"], "fly"),
        (["up", "--wings"], "--wings"),
        (["up", "--workers", "0"], "--workers"),
        (["up", "--console-port", "70000"], "--console-port"),
        (["inspect"], "url"),
        (["inspect"], "coronet inspect --help"),
        (["admin", "fly"], "coronet admin --help"),
        (["admin", "add-key"], "coronet admin add-key --help"),
        (["simulate", "flight"], "flight"),
        (["simulate", "schedulers", "--wings"], "--wings"),
        (["simulate", "schedulers", "--publishers", "birds"], "birds"),
        (["simulate", "report", "--only", "flight"], "flight"),
    ],
)
def test_a_usage_error_prints_one_line(call: Call, arguments: list[str], text: str) -> None:
    status, out, err = call(*arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert text in err


def test_without_arguments_help_lists_the_commands(call: Call) -> None:
    status, out, _ = call()
    assert status == 0
    for command in ("up", "worker", "bot", "console", "inspect", "doctor", "admin", "simulate"):
        assert command in out
    assert "..." not in out.partition("Commands:")[2]


def test_an_experiment_prints_json(call: Call) -> None:
    status, out, err = call("simulate", "schedulers", "--json", "--channels", "10", "--weeks", "1", "--seed", "7")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert (found["experiment"], found["seed"], len(found["schedulers"])) == ("schedulers", 7, 7)


def test_the_corona_experiment_accepts_the_papers_parameters(call: Call) -> None:
    small = ("--nodes", "16", "--channels", "50", "--subscriptions", "500")
    paper = ("--base", "4", "--ids", "random", "--bins", "16", "--goal", "fair-log", "--churn", "0.1")
    status, out, err = call("simulate", "corona", "--json", *small, *paper)
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert (found["experiment"], found["setup"]["loss"], len(found["windows"])) == ("corona", 0.02, 12)


def test_the_clash_experiment_accepts_the_papers_map_and_threshold(call: Call) -> None:
    small = ("--servers", "50", "--sources", "500", "--queries", "50", "--stream-packets", "100")
    status, out, err = call("simulate", "clash", "--json", *small, "--map", "chord", "--overload", "0.9")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert (found["experiment"], found["setup"]["map"], len(found["workloads"])) == ("clash", "chord", 3)


def test_too_many_sources_for_the_servers_are_rejected(call: Call) -> None:
    status, _, err = call("simulate", "clash", "--servers", "20")
    assert status == 2
    assert "100,000 sources need more than 20 servers" in err


def test_a_base_that_does_not_divide_ids_is_rejected(call: Call) -> None:
    status, _, err = call("simulate", "corona", "--base", "10")
    assert status == 2
    assert "The base is one of 2, 4, 16, 32, 256." in err


def test_simulate_without_arguments_lists_the_experiments(call: Call) -> None:
    for arguments in ([], ["--help"]):
        status, out, _ = call("simulate", *arguments)
        assert status == 0
        assert "schedulers" in out


def test_other_commands_do_not_import_numpy() -> None:
    code = "import sys, service.cli; sys.exit(sum(name in sys.modules for name in ('numpy', 'service.simulate')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_second_up_in_the_same_directory_is_rejected(call: Call, tmp_path: Path) -> None:
    with state_directory.lock_directory(tmp_path):
        status, _, err = call("up", "--state", str(tmp_path))
    assert status == 1
    assert "in use by another" in err


def test_a_state_directory_that_cannot_be_created_is_rejected(call: Call, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    status, _, err = call("up", "--state", str(tmp_path / "file"))
    assert (status, err.count("\n")) == (1, 1)
    assert "cannot be the state directory" in err


def test_a_program_reports_invalid_settings_by_name(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORONET_LEASE_TTL_S", "never")
    status, _, err = call("worker")
    assert (status, err.count("\n")) == (1, 1)
    assert "lease_ttl_s" in err


def test_settings_are_shown_with_their_source_and_without_secrets(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORONET_XMPP_PASSWORD", "hush-hush")
    monkeypatch.setenv("CORONET_REDIS_URL", "redis://me:whisper@example.org/0")
    status, out, _ = call("doctor", "--settings")
    assert status == 0
    assert "hush-hush" not in out
    assert "whisper" not in out
    (line,) = [line for line in out.splitlines() if "redis_url" in line]
    assert "environment" in line


def test_doctor_rejects_a_directory_without_state(call: Call, tmp_path: Path) -> None:
    status, _, err = call("doctor", "--state", str(tmp_path))
    assert status == 1
    assert "no state directory" in err


def test_inspect_rejects_loopback_without_allow_private(call: Call) -> None:
    status, out, err = call("inspect", "http://127.0.0.1:9/feed.xml")
    assert (status, out) == (1, "")
    assert "not a public address" in err
    assert "--allow-private" in err
