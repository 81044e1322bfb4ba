"""Parsing of commands."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.commands.parser import (
    MAX_ENTRY_COUNT,
    AnswerCommand,
    Command,
    SubscribeCommand,
    SubscriptionTarget,
    UnknownCommand,
    VerbCommand,
    parse,
    parse_entry_count,
)
from bots.commands.verb_synonyms import _SYNONYMS, VERB_OF
from bots.dialogue.settings_parser import OFF_WORDS, ON_WORDS
from service.feeds.credentials import Credential


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("subscribe https://example.org/feed", SubscribeCommand("https://example.org/feed")),
        ("https://example.org/feed", SubscribeCommand("https://example.org/feed")),
        ("example.org/feed", SubscribeCommand("example.org/feed")),
        ("  SUB\n<https://example.org/feed>, please", SubscribeCommand("https://example.org/feed")),
        ("follow example.org", SubscribeCommand("example.org")),
        ("subscribe example.org/prices #list", SubscribeCommand("example.org/prices", "#list")),
        ("sub <https://example.org/>  main  >  table", SubscribeCommand("https://example.org/", "main > table")),
        ("https://example.org/ is worth reading", SubscribeCommand("https://example.org/")),
        ("subscribe example.org css=.price", SubscribeCommand("example.org", "css=.price")),
        ('sub example.org xpath=//a[@id = "x"]', SubscribeCommand("example.org", 'xpath=//a[@id = "x"]')),
        ("example.org/api json=$.items[*].price", SubscribeCommand("example.org/api", "json=$.items[*].price")),
        ("subscribe example.org .price when < 20", SubscribeCommand("example.org", ".price", (("when", "< 20"),))),
        (
            "subscribe example.org css=.price when changes by 5 % with mute=on title=My price",
            SubscribeCommand(
                "example.org", "css=.price", (("when", "changes by 5 %"), ("mute", "on"), ("title", "My price"))
            ),
        ),
        ("abo example.org wenn >= 1.299,00 €", SubscribeCommand("example.org", "", (("when", ">= 1.299,00 €"),))),
        ("subscribe example.org when it rains", SubscribeCommand("example.org", "when it rains")),
        ("ftp://example.org/", SubscribeCommand("ftp://example.org/")),
        (
            "subscribe example.org/feed token abc",
            SubscribeCommand("example.org/feed", credential=Credential("Authorization", "Bearer abc")),
        ),
        (
            "sub example.org/feed header X-Key: with mute=on when < 20",
            SubscribeCommand("example.org/feed", credential=Credential("X-Key", "with mute=on when < 20")),
        ),
        ("subscribe example.org/feed login alice", SubscribeCommand("example.org/feed", credential=Credential())),
        ("subscribe example.org .price token abc", SubscribeCommand("example.org", credential=Credential())),
        ("subscribe example.org header h1", SubscribeCommand("example.org", "header h1")),
        ("example.org login if you like", SubscribeCommand("example.org")),
        ("add", SubscribeCommand("")),
        ("śledź example.org z mute=on", SubscribeCommand("example.org", settings=(("mute", "on"),))),
        ("volg example.org met mute=aan", SubscribeCommand("example.org", settings=(("mute", "aan"),))),
        ("assinar example.org com mute=sim", SubscribeCommand("example.org", settings=(("mute", "sim"),))),
        *(
            (words, VerbCommand("forget", words=words.split(maxsplit=1)[1]))
            for words in ("vergeet mij", "zapomnij o mnie")
        ),
        ("esqueça-me", VerbCommand("forget")),
        ("dimentica la lista", VerbCommand("help", words="forget")),
        ("unsubscribe #3", VerbCommand("unsubscribe", SubscriptionTarget(number=3))),
        ("rm 3", VerbCommand("unsubscribe", SubscriptionTarget(number=3))),
        ("Remove https://example.org/", VerbCommand("unsubscribe", SubscriptionTarget(url="https://example.org/"))),
        (
            "unsubscribe example.org/prices #list",
            VerbCommand("unsubscribe", SubscriptionTarget(url="example.org/prices", selector="#list")),
        ),
        ("unsubscribe #3 please", VerbCommand("unsubscribe", SubscriptionTarget(number=3))),
        ("unsub ALL", VerbCommand("unsubscribe", SubscriptionTarget(everything=True))),
        ("unsubscribe", VerbCommand("unsubscribe", SubscriptionTarget())),
        ("ls", VerbCommand("list")),
        ("list  Big news", VerbCommand("list", words="Big news")),
        ("show #2", VerbCommand("show", SubscriptionTarget(number=2))),
        ("why #2", VerbCommand("why", SubscriptionTarget(number=2))),
        ("Why news.example", VerbCommand("why", SubscriptionTarget(url="news.example"))),
        ("show #2 5", VerbCommand("show", SubscriptionTarget(number=2), "5")),
        ("show 2 999", VerbCommand("show", SubscriptionTarget(number=2), "999")),
        ("/status", VerbCommand("status")),
        ("?", VerbCommand("help")),
        ("help sub", VerbCommand("help", words="subscribe")),
        ("help nonsense", VerbCommand("help", words="nonsense")),
        ("Hello!", VerbCommand("hello")),
        ("hi there", VerbCommand("hello", words="there")),
        ("pause World news", VerbCommand("pause", SubscriptionTarget(url="World", folder="World news"))),
        ("mute News", VerbCommand("set", SubscriptionTarget(url="News", folder="News"), "mute on")),
        ("set World news mute on", VerbCommand("set", SubscriptionTarget(everything=True), "World news mute on")),
        ("mute #3", VerbCommand("set", SubscriptionTarget(number=3), "mute on")),
        ("unmute all", VerbCommand("set", SubscriptionTarget(everything=True), "mute off")),
        ("tag=python lang=en", UnknownCommand("tag=python lang=en", "find tag=python lang=en")),
        ("colour=red", UnknownCommand("colour=red")),
        ("Yes", AnswerCommand("yes")),
        ("nope", AnswerCommand("no")),
        ("2", AnswerCommand("2")),
        ("#12", AnswerCommand("12")),
        ("2.", AnswerCommand("2")),
        ("cancel", VerbCommand("cancel")),
        ("subscrbe example.org", UnknownCommand("subscrbe example.org", "subscribe example.org")),
        ("unsubcribe #3", UnknownCommand("unsubcribe #3", "unsubscribe #3")),  # codespell:ignore
        ("what is the weather", UnknownCommand("what is the weather")),
        ("", UnknownCommand("")),
    ],
)
def test_text_is_parsed_to_the_expected_command(text: str, command: Command) -> None:
    assert parse(text) == command


@given(st.text())
def test_any_text_is_parsed_to_a_command(text: str) -> None:
    assert isinstance(parse(text), Command)


@given(st.sampled_from(["subscribe", "show", "unsubscribe", "help", "list", ""]), st.text())
def test_any_text_after_a_verb_is_parsed_to_a_command(verb: str, rest: str) -> None:
    assert isinstance(parse(f"{verb} {rest}"), Command)


@pytest.mark.parametrize(
    ("words", "shown"), [("", 3), ("5", 5), ("#5", 5), ("0", 1), ("999", MAX_ENTRY_COUNT), ("all", 3)]
)
def test_the_entry_count_is_parsed_and_limited(words: str, shown: int) -> None:
    assert parse_entry_count(words) == shown


def test_no_word_means_two_things() -> None:
    assert sum(1 + len(synonyms) for synonyms in _SYNONYMS.values()) == len(VERB_OF)
    assert not ON_WORDS & OFF_WORDS
