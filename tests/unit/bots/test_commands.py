"""What people write becomes the command they mean."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.commands.parser import (
    MOST_SHOWN,
    Answer,
    Command,
    Pick,
    Subscribe,
    Target,
    Unknown,
    Verb,
    count,
    parse,
)


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("subscribe https://example.org/feed", Subscribe("https://example.org/feed")),
        ("https://example.org/feed", Subscribe("https://example.org/feed")),
        ("example.org/feed", Subscribe("example.org/feed")),
        ("  SUB\n<https://example.org/feed>, please", Subscribe("https://example.org/feed")),
        ("follow example.org", Subscribe("example.org")),
        ("subscribe example.org/prices #list", Subscribe("example.org/prices", "#list")),
        ("sub <https://example.org/>  main  >  table", Subscribe("https://example.org/", "main > table")),
        ("https://example.org/ is worth reading", Subscribe("https://example.org/")),
        ("ftp://example.org/", Subscribe("ftp://example.org/")),
        ("add", Subscribe("")),
        ("unsubscribe #3", Verb("unsubscribe", Target(number=3))),
        ("rm 3", Verb("unsubscribe", Target(number=3))),
        ("Remove https://example.org/", Verb("unsubscribe", Target(url="https://example.org/"))),
        (
            "unsubscribe example.org/prices #list",
            Verb("unsubscribe", Target(url="example.org/prices", selector="#list")),
        ),
        ("unsubscribe #3 please", Verb("unsubscribe", Target(number=3))),
        ("unsub ALL", Verb("unsubscribe", Target(everything=True))),
        ("unsubscribe", Verb("unsubscribe", Target())),
        ("ls", Verb("list")),
        ("list  Big news", Verb("list", words="Big news")),
        ("show #2", Verb("show", Target(number=2))),
        ("why #2", Verb("why", Target(number=2))),
        ("Why news.example", Verb("why", Target(url="news.example"))),
        ("show #2 5", Verb("show", Target(number=2), "5")),
        ("show 2 999", Verb("show", Target(number=2), "999")),
        ("/status", Verb("status")),
        ("?", Verb("help")),
        ("help sub", Verb("help", words="subscribe")),
        ("Hello!", Verb("hello")),
        ("hi there", Verb("hello", words="there")),
        ("mute #3", Verb("set", Target(number=3), "mute on")),
        ("unmute all", Verb("set", Target(everything=True), "mute off")),
        ("tag=python lang=en", Unknown("tag=python lang=en", "find tag=python lang=en")),
        ("colour=red", Unknown("colour=red")),
        ("Yes", Answer(yes=True)),
        ("nope", Answer(yes=False)),
        ("2", Pick(2)),
        ("#12", Pick(12)),
        ("2.", Pick(2)),
        ("cancel", Verb("cancel")),
        ("subscrbe example.org", Unknown("subscrbe example.org", "subscribe example.org")),
        ("unsubcribe #3", Unknown("unsubcribe #3", "unsubscribe #3")),  # codespell:ignore
        ("what is the weather", Unknown("what is the weather")),
        ("", Unknown("")),
    ],
)
def test_text_is_read_as_meant(text: str, command: Command) -> None:
    assert parse(text) == command


@given(st.text())
def test_any_text_is_some_command(text: str) -> None:
    assert isinstance(parse(text), Command)


@given(st.sampled_from(["subscribe", "show", "unsubscribe", "help", "list", ""]), st.text())
def test_any_text_after_a_verb_is_some_command(verb: str, rest: str) -> None:
    assert isinstance(parse(f"{verb} {rest}"), Command)


@pytest.mark.parametrize(("words", "shown"), [("", 3), ("5", 5), ("#5", 5), ("0", 1), ("999", MOST_SHOWN), ("all", 3)])
def test_how_many_entries_are_shown(words: str, shown: int) -> None:
    assert count(words) == shown
