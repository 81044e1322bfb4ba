"""Logging: one line per event, in the form asked for, without secrets."""

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from service import settings
from service.observability import logs


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Put logging back as it was."""
    root = logging.getLogger()
    before = (root.level, root.handlers[:])
    yield
    root.setLevel(before[0])
    root.handlers[:] = before[1]
    structlog.reset_defaults()


def test_events_and_libraries_warnings_are_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(settings.load({}))
    structlog.get_logger("workers.node").info("joined", node="abc")
    logging.getLogger("a.library").warning("look %s", "here")
    logging.getLogger("a.library").info("chatter")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["event"], line["level"]) for line in lines] == [("joined", "info"), ("look here", "warning")]
    assert lines[0]["node"] == "abc"


def test_below_the_level_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(settings.load({}, log_level="warning"))
    structlog.get_logger("workers.node").info("joined")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("log_json", [True, False])
def test_no_secret_gets_out_whoever_says_it(capsys: pytest.CaptureFixture[str], *, log_json: bool) -> None:
    logs.configure(settings.load({}, xmpp_password="hush-hush", log_json=log_json))
    log = structlog.get_logger("bots.xmpp")
    log.info("login", password="hush-hush", url="redis://me:whisper@example.org/0")
    try:
        int("hush-hush")
    except ValueError:
        log.exception("failed")
    said = capsys.readouterr().err
    assert "login" in said
    assert "ValueError" in said
    assert "hush-hush" not in said
    assert "whisper" not in said


@pytest.mark.parametrize("log_json", [True, False])
def test_a_traceback_does_not_tell_what_people_wrote(capsys: pytest.CaptureFixture[str], *, log_json: bool) -> None:
    logs.configure(settings.load({}, log_json=log_json))
    written = "what Alice wrote"
    try:
        len(written) / 0
    except ZeroDivisionError:
        structlog.get_logger("bots.sessions.chat_session").exception("failed")
    said = capsys.readouterr().err
    assert "ZeroDivisionError" in said
    assert "what Alice wrote" not in said
