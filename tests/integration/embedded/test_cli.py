"""The command line: help, settings files, one line for each error, and hidden secrets."""

import json
import os
import socket
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


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"]])
def test_help_lists_all_commands_by_purpose(call: Call, arguments: list[str]) -> None:
    status, out, _ = call(*arguments)
    assert status == 0
    first, *sections = out.split(f"\n{cli.RUN}:\n")
    assert "--version" in first
    (commands,) = sections
    assert [heading for heading in (cli.OPERATE, cli.EXPLORE) if f"\n{heading}:\n" not in commands] == []
    names = [each.name or getattr(each.callback, "__name__", "") for each in cli.app.registered_commands]
    assert [name for name in names if f"\n  {name.replace('_', '-')} " not in f"\n{commands}"] == []
    assert "..." not in commands


@pytest.mark.parametrize("command", ["worker", "inspect", "admin", "simulate", "simulate corona"])
def test_every_command_has_a_short_and_a_long_option_for_help(call: Call, command: str) -> None:
    short, long = call(*command.split(), "-h"), call(*command.split(), "--help")
    assert short == long
    assert (short[0], short[1][:7]) == (0, "Usage: ")


def test_the_version_is_shown(call: Call) -> None:
    status, out, _ = call("--version")
    assert (status, out.split()[0]) == (0, "coronet")
    assert out.split()[1].replace(".", "").isdigit()


def test_a_shell_completes_commands() -> None:
    """The variables are those of click's script for bash, which ``--show-completion`` prints."""
    environ = {**os.environ, "_CORONET_COMPLETE": "complete_bash", "COMP_WORDS": "coronet do", "COMP_CWORD": "1"}
    coronet = Path(sys.executable).with_name("coronet")
    found = subprocess.run([coronet], env=environ, capture_output=True, text=True, check=False).stdout
    assert "doctor" in found
    assert "worker" not in found


@pytest.mark.parametrize(
    ("command", "works"),
    [
        ("inspect https://example.org", "service.operations.feed_inspection.inspect"),
        ("simulate schedulers --json", "service.simulate.schedulers.experiment.run"),
    ],
)
def test_an_interrupted_command_has_the_status_130(
    call: Call, monkeypatch: pytest.MonkeyPatch, command: str, works: str
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(works, interrupt)
    status, _, err = call(*command.split())
    assert (status, err) == (130, "")


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


def test_the_command_line_module_does_not_import_numpy() -> None:
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


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "No such file"),
        ("a = [", "not valid TOML"),
        ("colour = 'red'", "colour (settings file): there is no such setting"),
        ("redis_url = 'localhost:6379'", "redis_url (settings file)"),
        ("allowed_users = 3", "allowed_users (settings file)"),
    ],
)
@pytest.mark.parametrize("command", ["worker", "bot", "console", "doctor"])
def test_a_bad_settings_file_is_reported_in_one_line(
    call: Call, tmp_path: Path, command: str, content: str | None, text: str
) -> None:
    file = tmp_path / "coronet.toml"
    if content is not None:
        file.write_text(content)
    status, out, err = call(command, "--config", str(file))
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert text in err


def test_the_environment_overrides_a_settings_file(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "named.toml").write_text("console_port = 1111\nlog_level = 'debug'\nmax_watches_per_user = 7\n")
    (tmp_path / "other.toml").write_text("console_port = 2222\n")
    monkeypatch.setenv("CORONET_CONFIG", str(tmp_path / "other.toml"))
    monkeypatch.setenv("CORONET_LOG_LEVEL", "error")
    _, out, _ = call("doctor", "--settings", "--config", str(tmp_path / "named.toml"))
    shown = {words[0]: words[1:] for line in out.splitlines() if (words := line.split())}
    assert shown["console_port"] == ["1111", "settings", "file"]
    assert shown["max_watches_per_user"] == ["7", "settings", "file"]
    assert shown["log_level"] == ["error", "environment"]
    _, out, _ = call("doctor", "--settings")
    assert " 2222 " in out


def test_doctor_takes_either_a_state_directory_or_a_settings_file(call: Call, tmp_path: Path) -> None:
    status, _, err = call("doctor", "--state", str(tmp_path), "--config", str(tmp_path / "coronet.toml"))
    assert (status, err.count("\n")) == (2, 1)


@pytest.mark.parametrize(("program", "setting"), [("console", "CONSOLE_PORT"), ("worker", "METRICS_PORT")])
def test_a_port_in_use_is_reported_in_one_line(program: str, setting: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        environ = {**os.environ, f"CORONET_{setting}": str(port), "CORONET_REDIS_URL": "redis://127.0.0.1:1/0"}
        line = [sys.executable, "-m", "service.cli", program]
        ended = subprocess.run(line, env=environ, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 1
    assert f"Cannot listen at 127.0.0.1, port {port}: address already in use. Stop" in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr + ended.stdout


def test_a_plot_in_a_missing_folder_is_refused_before_the_experiment(call: Call, tmp_path: Path) -> None:
    status, _, err = call("simulate", "schedulers", "--plot", str(tmp_path / "none" / "plot.png"))
    assert (status, err.count("\n")) == (2, 1)


def test_settings_are_shown_with_their_source_and_without_secrets(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORONET_XMPP_PASSWORD", "hush-hush")
    monkeypatch.setenv("CORONET_REDIS_URL", "redis://me:whisper@example.org/0")
    status, out, _ = call("doctor", "--settings")
    assert status == 0
    assert "hush-hush" not in out
    assert "whisper" not in out
    (line,) = [line for line in out.splitlines() if "redis_url" in line]
    assert "environment" in line


def test_doctor_without_settings_mentions_the_state_directory(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORONET_REDIS_URL", "redis://127.0.0.1:1/0")
    status, out, err = call("doctor")
    assert (status, "BAD  Redis" in out, "--state" in err) == (1, True, True)


def test_doctor_rejects_a_directory_without_state(call: Call, tmp_path: Path) -> None:
    status, _, err = call("doctor", "--state", str(tmp_path))
    assert status == 1
    assert "no state directory" in err


def test_inspect_rejects_loopback_without_allow_private(call: Call) -> None:
    status, out, err = call("inspect", "http://127.0.0.1:9/feed.xml")
    assert (status, out) == (1, "")
    assert "not a public address" in err
    assert "--allow-private" in err
