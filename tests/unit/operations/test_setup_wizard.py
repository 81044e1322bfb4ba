"""The settings file and the snippets that `coronet setup` writes."""

import io
import json
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import TextType

from service.net.credential_vault import CredentialVault
from service.operations.doctor.report import CheckResult
from service.operations.doctor.xmpp_login_check import UNTRUSTED_CERTIFICATE
from service.operations.setup_wizard import (
    Answers,
    Server,
    SetupRefused,
    Way,
    check_proxy,
    instructions,
    load_answers,
    run,
    snippet,
    values_of,
    write_settings,
)
from service.settings import Settings, SettingsInvalid, load
from tests.support.netns import ROOT


class Dialogue(Console):
    """A console whose user gives prepared answers: for each question that contains a text, the answers in order."""

    def __init__(self, **answers: Sequence[str]) -> None:
        """Take the answers of each question by its keyword; all other questions are answered by Enter."""
        super().__init__(file=io.StringIO(), width=300)
        self._answers = {question: list(given) for question, given in answers.items()}

    def input(self, prompt: TextType = "", **_: object) -> str:
        """Write the question and its answer; return the answer."""
        asked = next((each for each in self._answers if each.replace("_", " ") in str(prompt)), "")
        given = self._answers[asked].pop(0) if asked and self._answers[asked] else ""
        self.print(prompt, given, markup=False)
        return given

    @property
    def text(self) -> str:
        """All questions, answers and other texts."""
        assert isinstance(self.file, io.StringIO)
        return self.file.getvalue()


@pytest.fixture
def xmpp_results(monkeypatch: pytest.MonkeyPatch) -> list[CheckResult]:
    """The results of the checks of the XMPP login, in order; further checks succeed, as those of Redis do."""
    results: list[CheckResult] = []

    async def check_redis(_: Settings) -> list[CheckResult]:
        return []

    async def check_xmpp_logins(_: Settings) -> list[CheckResult]:
        return [results.pop(0)] if results else []

    monkeypatch.setattr("service.operations.setup_wizard.check_redis", check_redis)
    monkeypatch.setattr("service.operations.setup_wizard.check_xmpp_logins", check_xmpp_logins)
    return results


def asked_again(config: Path, **answers: Sequence[str]) -> tuple[Settings, str]:
    """Answer the questions, and return the settings that were written and what was shown."""
    console = Dialogue(Replace=["y"], **answers)
    assert run(config, console, None, overwrite=False)
    return load({"CORONET_CONFIG": str(config)}), console.text


def login(read: Settings) -> tuple[str, str, str, int]:
    return read.xmpp_login, read.xmpp_jid, read.xmpp_host, read.xmpp_port


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


def test_a_key_for_logins_is_made_once(tmp_path: Path) -> None:
    config = tmp_path / "coronet.toml"
    written(config, Answers("example.org"))
    key = load({"CORONET_CONFIG": str(config)}).credentials_key.get_secret_value()
    assert CredentialVault(load({"CORONET_CONFIG": str(config)})).has_key
    assert key not in config.read_text()
    written(config, Answers("example.org"))
    assert load({"CORONET_CONFIG": str(config)}).credentials_key.get_secret_value() == key


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


@pytest.mark.usefixtures("xmpp_results")
def test_another_kind_of_login_is_asked_as_for_a_new_file(tmp_path: Path) -> None:
    config = tmp_path / "coronet.toml"
    written(config, Answers("example.org", xmpp_password="SECRET"))
    read, shown = asked_again(config, logs_in=["account"], Password=["", "own"])
    assert login(read) == ("client", "coronet@example.org", "example.org", 5222)
    assert read.xmpp_password.get_secret_value() == "own"
    assert "adduser coronet@example.org" in shown
    read, shown = asked_again(config, logs_in=["component"])
    assert login(read) == ("component", "coronet@feeds.example.org", "127.0.0.1", 5347)
    assert len(read.xmpp_password.get_secret_value()) >= 32
    assert '"own"' not in shown


@pytest.mark.usefixtures("xmpp_results")
@pytest.mark.parametrize("way", ["component", "account"])
def test_the_same_kind_of_login_keeps_its_answers(tmp_path: Path, way: Way) -> None:
    config = tmp_path / "coronet.toml"
    jid = "bot@news.example.org" if way == "component" else "bot@example.org"
    written(config, Answers("example.org", way, xmpp_jid=jid, xmpp_host="h", xmpp_port=9, xmpp_password="SECRET"))
    read, _ = asked_again(config)
    assert login(read)[1:] == (jid, "h", 9)
    assert read.xmpp_password.get_secret_value() == "SECRET"


@pytest.mark.usefixtures("xmpp_results")
def test_a_component_cannot_have_the_domain_of_the_server(tmp_path: Path) -> None:
    given = ["coronet@example.org", "coronet@bot.example.org"]
    read, shown = asked_again(tmp_path / "coronet.toml", Address_of=given)
    assert read.xmpp_jid == "coronet@bot.example.org"
    assert "Choose an address such as coronet@feeds.example.org" in shown


@pytest.mark.usefixtures("xmpp_results")
def test_an_account_needs_a_password(tmp_path: Path) -> None:
    read, shown = asked_again(tmp_path / "coronet.toml", logs_in=["account"], Password=["", "pw"])
    assert read.xmpp_password.get_secret_value() == "pw"
    assert "coronet@example.org needs a password" in shown


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        ({"xmpp": "account"}, "password"),
        ({"xmpp_jid": "coronet@example.org"}, "coronet@feeds.example.org"),
    ],
)
def test_answers_from_a_file_that_cannot_log_in_are_refused(tmp_path: Path, answers: dict[str, str], text: str) -> None:
    file = tmp_path / "answers.json"
    file.write_text(json.dumps({"domain": "example.org", **answers}))
    with pytest.raises(SetupRefused, match=text):
        load_answers(file)


def test_a_failed_login_can_be_changed(tmp_path: Path, xmpp_results: list[CheckResult]) -> None:
    xmpp_results.append(CheckResult("XMPP login", ok=False, details="refused", advice="Correct it."))
    read, shown = asked_again(tmp_path / "coronet.toml", Check_again=["change"], Host=["wrong", "right"], Port=["1"])
    assert (read.xmpp_host, read.xmpp_port) == ("right", 1)
    assert "Host of the server (wrong)" in shown


def test_a_private_ca_is_asked_for_and_replaced(tmp_path: Path, xmpp_results: list[CheckResult]) -> None:
    config = tmp_path / "coronet.toml"
    untrusted = CheckResult("XMPP login", ok=False, details=f"there: {UNTRUSTED_CERTIFICATE}: x", advice="Trust it.")
    xmpp_results.extend([untrusted, untrusted])
    answers = {"logs_in": ["account"], "Password": ["pw"], "CA_file": ["/a.pem", "/b.pem"]}
    assert asked_again(config, **answers)[0].xmpp_ca_file == "/b.pem"
    assert asked_again(config)[0].xmpp_ca_file == "/b.pem"
    xmpp_results.append(untrusted)
    assert asked_again(config, Check_again=["keep"])[0].xmpp_ca_file == ""


@pytest.mark.usefixtures("xmpp_results")
@pytest.mark.parametrize(
    ("installed", "server"),
    [((), "prosody"), (("ejabberdctl",), "ejabberd"), (("ejabberdctl", "prosodyctl"), "prosody")],
)
def test_the_installed_server_is_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: Sequence[str], server: str
) -> None:
    monkeypatch.setattr("shutil.which", lambda name, **_: name if name in installed else None)
    _, shown = asked_again(tmp_path / "coronet.toml")
    assert f"({server})" in shown


@pytest.mark.parametrize(
    ("way", "server", "texts"),
    [
        ("component", "prosody", ("/etc/prosody/prosody.cfg.lua", "systemctl restart prosody")),
        ("component", "ejabberd", ("/etc/ejabberd/ejabberd.yml", "ejabberdctl reload_config")),
        ("account", "prosody", ("adduser", "docs/xmpp.md")),
        ("account", "ejabberd", ("register", "docs/xmpp.md")),
    ],
)
def test_instructions_name_the_file_and_the_next_command(way: Way, server: Server, texts: tuple[str, str]) -> None:
    shown = instructions(Answers("example.org", way, server, xmpp_password="SECRET").completed())
    assert [text in shown for text in texts] == [True, True]


async def test_the_answer_can_be_kept_if_the_proxy_comes_later() -> None:
    (result,) = await check_proxy(load({}, console_public_url="http://127.0.0.1:1"))
    assert "If the proxy comes later, keep the answer." in result.advice
