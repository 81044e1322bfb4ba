"""The settings file and the snippets that `coronet setup` writes."""

import io
import json
import stat
from pathlib import Path

import pytest
from rich.console import Console

from service.operations.setup_wizard import (
    Answers,
    Server,
    SetupRefused,
    Way,
    load_answers,
    run,
    snippet,
    values_of,
    write_settings,
)
from service.settings import SettingsInvalid, load
from tests.support.netns import ROOT


def written(config: Path, answers: Answers) -> None:
    write_settings(config, values_of(answers.completed()))


def test_written_settings_are_loaded_with_secrets_from_separate_files(tmp_path: Path) -> None:
    config = tmp_path / "coronet.toml"
    answers = Answers(
        "example.org", xmpp_password="s€cret", redis_password="r", public_url="https://example.org/coronet"
    )
    written(config, answers)
    read = load({"CORONET_CONFIG": str(config)})
    assert (read.xmpp_jid, read.xmpp_host, read.xmpp_port) == ("coronet@feeds.example.org", "127.0.0.1", 5347)
    assert (read.xmpp_password.get_secret_value(), read.redis_password.get_secret_value()) == ("s€cret", "r")
    assert (read.who_may_use, read.allowed_users) == ("listed", ("example.org",))
    assert (read.console_base_path, str(read.trusted_proxies[0])) == ("/coronet", "127.0.0.1/32")
    assert "s€cret" not in config.read_text()
    assert {stat.S_IMODE(each.stat().st_mode) for each in tmp_path.rglob("*") if each.is_file()} == {0o600}


def test_writing_again_keeps_other_settings(tmp_path: Path) -> None:
    config = tmp_path / "coronet.toml"
    written(config, Answers("example.org"))
    config.write_text(config.read_text() + 'poll_interval_s = 60.5\nallowed_networks = ["10.0.0.0/8"]\n')
    written(config, Answers("example.org", "account", xmpp_password="x", who_may_use="open"))
    read = load({"CORONET_CONFIG": str(config)})
    assert (read.poll_interval_s, len(read.allowed_networks)) == (60.5, 1)
    assert (read.xmpp_login, read.xmpp_jid, read.who_may_use, read.allowed_users) == (
        "client",
        "coronet@example.org",
        "open",
        (),
    )


def test_writing_again_keeps_settings_that_are_false_or_zero(tmp_path: Path) -> None:
    config = tmp_path / "coronet.toml"
    config.write_text(
        'weekly_rhythm = false\nmetrics_port = 0\ntrusted_proxies = ["10.0.0.7"]\ncontact_addresses = ["xmpp:🦀@a"]\n'
    )
    written(config, Answers("example.org", public_url="https://example.org"))
    read = load({"CORONET_CONFIG": str(config)})
    assert (read.weekly_rhythm, "metrics_port = 0" in config.read_text()) == (False, True)
    assert ([str(each) for each in read.trusted_proxies], read.contact_addresses) == (["10.0.0.7/32"], ("xmpp:🦀@a",))


def test_an_invalid_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    config = tmp_path / "coronet.toml"
    config.write_text("redis_url =")
    with pytest.raises(SetupRefused, match="cannot be read"):
        written(config, Answers("example.org"))
    assert config.read_text() == "redis_url ="


def test_a_component_without_a_password_gets_a_new_one() -> None:
    first, second = (Answers("example.org").completed().xmpp_password for _ in range(2))
    assert len(first) >= 32
    assert first != second


def test_invalid_answers_are_refused_with_their_reason(tmp_path: Path) -> None:
    file = tmp_path / "answers.json"
    for text in ("", "{}", '{"domain": "example.org", "colour": 1}', '{"domain": "example.org", "xmpp": "pigeon"}'):
        file.write_text(text)
        with pytest.raises(SetupRefused, match=r"answers\.json cannot be used"):
            load_answers(file)


def test_a_secret_file_that_is_missing_is_an_invalid_setting(tmp_path: Path) -> None:
    config = tmp_path / "coronet.toml"
    config.write_text('xmpp_password_file = "nowhere"\n')
    with pytest.raises(SettingsInvalid, match="No such file"):
        load({"CORONET_CONFIG": str(config)})


@pytest.mark.parametrize("server", ["prosody", "ejabberd"])
@pytest.mark.parametrize("way", ["component", "account"])
def test_the_xmpp_guide_contains_the_configuration_snippets(server: Server, way: Way) -> None:
    answers = Answers("example.org", way, server, xmpp_password="SECRET").completed()
    assert f"\n{snippet(answers)}```" in (ROOT / "docs" / "xmpp.md").read_text(encoding="utf-8")


def test_answers_from_a_file_are_written_and_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    config, file = tmp_path / "coronet.toml", tmp_path / "answers.json"
    answers = {
        "domain": "localhost",
        "redis_url": "redis://127.0.0.1:1",
        "xmpp_port": 1,
        "public_url": "http://127.0.0.1:1",
    }
    file.write_text(json.dumps(answers))
    shown = Console(file=io.StringIO(), width=200)
    assert not run(config, shown, file, overwrite=False)
    assert load({"CORONET_CONFIG": str(config)}).redis_url == "redis://127.0.0.1:1"
    assert isinstance(shown.file, io.StringIO)
    assert [name in shown.file.getvalue() for name in ("BAD Redis", "BAD XMPP login", "BAD Public URL")] == [True] * 3
    with pytest.raises(SetupRefused, match="exists"):
        run(config, shown, file, overwrite=False)
