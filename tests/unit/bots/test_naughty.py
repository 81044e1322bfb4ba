"""Strings that have broken programs before: said to the bot, and as titles, in every language."""

import pytest

from bots.notifications import notification
from bots.voice import LANGUAGES, voice
from service.feeds.urls import channel_id
from service.habits import Habits
from service.model import Change, Channel, Delta, Entry
from tests.support.naughty import STRINGS
from tests.unit.bots.safety import safe
from tests.unit.bots.visiting import visitor

VERBS = ("", "subscribe ", "list ", "find ", "watch ", "language ", "timezone ", "quiet ", "digest ", "help ")


@pytest.mark.parametrize("language", LANGUAGES)
def test_whatever_is_said_is_answered_safely(language: str) -> None:
    person = visitor()
    person.habits = Habits(client_language=language)
    for verb in VERBS:
        for words in STRINGS:
            assert safe(person.say(f"{verb}{words}")), (verb, words)


@pytest.mark.parametrize("language", LANGUAGES)
def test_whatever_a_title_is_it_is_told_safely(language: str) -> None:
    for number, title in enumerate(STRINGS):
        url = f"https://example.org/{number}"
        channel = Channel(channel_id(url), url, title)
        entry = Entry("k", title, url, title)
        changes = (Change("addition", entry), Change("replacement", entry))
        assert safe(notification([channel], [Delta(channel.id, 1, 2, 0.0, changes)], {}, {}, voice(language))), title
