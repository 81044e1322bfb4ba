"""Logging: one line per event in the configured format, without secrets."""

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from service import settings
from service.observability import log_configuration


@pytest.fixture(autouse=True)
def restore_logging() -> Iterator[None]:
    """Restore the logging configuration after each test."""
    root = logging.getLogger()
    before = (root.level, root.handlers[:])
    yield
    root.setLevel(before[0])
    root.handlers[:] = before[1]
    structlog.reset_defaults()


def test_events_and_warnings_of_libraries_are_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    log_configuration.configure(settings.load({}))
    structlog.get_logger("workers.node").info("joined", node="abc")
    logging.getLogger("a.library").warning("look %s", "here")
    logging.getLogger("a.library").info("chatter")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["event"], line["level"]) for line in lines] == [("joined", "info"), ("look here", "warning")]
    assert lines[0]["node"] == "abc"


def test_events_below_the_level_are_not_logged(capsys: pytest.CaptureFixture[str]) -> None:
    log_configuration.configure(settings.load({}, log_level="warning"))
    structlog.get_logger("workers.node").info("joined")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("log_json", [True, False])
def test_secrets_are_redacted_in_all_events(capsys: pytest.CaptureFixture[str], *, log_json: bool) -> None:
    log_configuration.configure(settings.load({}, xmpp_password="hush-hush", log_json=log_json))
    log = structlog.get_logger("bots.xmpp")
    log.info("login", password="hush-hush", url="redis://me:whisper@example.org/0")
    try:
        int("hush-hush")
    except ValueError:
        log.exception("failed")
    output = capsys.readouterr().err
    assert "login" in output
    assert "ValueError" in output
    assert "hush-hush" not in output
    assert "whisper" not in output


@pytest.mark.parametrize("log_json", [True, False])
def test_tracebacks_contain_no_local_variables(capsys: pytest.CaptureFixture[str], *, log_json: bool) -> None:
    log_configuration.configure(settings.load({}, log_json=log_json))
    message = "what Alice wrote"
    try:
        len(message) / 0
    except ZeroDivisionError:
        structlog.get_logger("bots.sessions.chat_session").exception("failed")
    output = capsys.readouterr().err
    assert "ZeroDivisionError" in output
    assert "what Alice wrote" not in output
