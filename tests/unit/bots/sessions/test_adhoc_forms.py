"""Forms of ad-hoc commands, and their conversion to text commands."""

from typing import cast
from xml.etree.ElementTree import XML

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.commands import verb_synonyms as commands
from bots.dialogue.read_requests import ReadRequests
from bots.i18n.translator import get_translator
from bots.replies.formatting import SubscribedChannel
from bots.sessions import adhoc_forms
from bots.xmpp import adhoc_stanzas
from bots.xmpp.adhoc_stanzas import Form
from bots.xmpp.service_discovery import NS_COMMANDS
from service.users.preferences import Preferences
from tests.unit.bots.fake_requests import FakeRequests, Person, at_once, feed
from tests.unit.bots.sample_web import BLOG, NEWS, visitor

SPEAKER = get_translator("en")
MINE = (
    SubscribedChannel(1, feed("https://news.example/feed", "The <News>")),
    SubscribedChannel(3, feed("https://b.example/", "")),
)


def opened(verb: str) -> Form:
    """The form with which a command begins, for somebody with two subscriptions."""
    person = Person(follows={one.number: one.channel for one in MINE})
    return at_once(adhoc_forms.command_form(verb, SPEAKER, cast("ReadRequests", FakeRequests(person))))


@pytest.mark.parametrize(
    ("verb", "values", "lines"),
    [
        ("subscribe", {"url": ("example.org",), "selector": ("main table",)}, ["subscribe example.org main table"]),
        (
            "subscribe",
            {"url": ("example.org",), "selector": ("css=.price",), "when": ("< 20",)},
            ["subscribe example.org css=.price when < 20"],
        ),
        (
            "subscribe",
            {"url": ("example.org",), "credential": (" login alice two  spaces ",)},
            ["subscribe example.org login alice two  spaces"],
        ),
        ("subscribe", {"url": ("example.org",), "credential": ("",)}, ["subscribe example.org"]),
        ("unsubscribe", {"channel": ("#1", "#3")}, ["unsubscribe #1", "unsubscribe #3"]),
        ("unsubscribe", {"channel": ("#1", "all")}, ["unsubscribe all"]),
        ("show", {"channel": ("#3",), "count": ("5",)}, ["show #3 5"]),
        ("quiet", {"hours": ("22:00-07:00",), "days": ("mon", "tue")}, ["quiet 22:00-07:00 mon tue"]),
        ("digest", {"every": ("weekly",), "day": ("fri",), "at": ("17:00",)}, ["digest weekly fri 17:00"]),
        ("digest", {"folder": ("My news",), "every": ("daily",), "at": ("08:00",)}, ["digest My news daily 08:00"]),
        ("pause", {"channel": ("#1", "My news")}, ["pause #1", "pause My news"]),
        ("set", {"channel": ("#3",), "setting": ("interval",), "value": ("2 hours",)}, ["set #3 interval 2 hours"]),
        ("set", {"channel": ("all",)}, ["set all"]),
        ("list", {}, ["list"]),
        ("timezone", {"words": ("Berlin",), "nonsense": ("x",)}, ["timezone Berlin"]),
    ],
)
def test_a_form_is_converted_to_equivalent_text_commands(
    verb: str, values: adhoc_forms.Values, lines: list[str]
) -> None:
    assert adhoc_forms.form_to_commands(verb, values) == lines


@given(
    st.sampled_from(commands.VERBS),
    st.dictionaries(st.sampled_from(["url", "words", "channel", "hours", "x"]), st.lists(st.text()).map(tuple)),
)
def test_any_form_values_become_single_line_commands_of_the_verb(verb: str, values: adhoc_forms.Values) -> None:
    for line in adhoc_forms.form_to_commands(verb, values):
        assert line.split(maxsplit=1)[0] == verb
        assert "\n" not in line


@pytest.mark.parametrize("verb", commands.VERBS)
def test_every_form_is_well_formed_xml_with_all_its_fields(verb: str) -> None:
    form = opened(verb)
    element = XML(adhoc_stanzas.response(verb, "s", "executing", form=form, note="a <note>"))
    assert [field.get("var") for field in element.iter("{jabber:x:data}field")] == [field.var for field in form.fields]


def test_subscription_options_show_number_and_title() -> None:
    (channel,) = opened("unsubscribe").fields
    assert channel.options == (("#1", "#1 The <News>"), ("#3", "#3 https://b.example/"), ("all", "All of them"))


def test_forms_offer_the_folders_of_the_user() -> None:
    person = Person(follows={one.number: one.channel for one in MINE}, preferences={3: Preferences(folder="My news")})

    def first_options(verb: str) -> list[str]:
        form = at_once(adhoc_forms.command_form(verb, SPEAKER, cast("ReadRequests", FakeRequests(person))))
        return [value for value, _ in form.fields[0].options]

    assert first_options("digest") == ["My news"]
    assert first_options("pause") == first_options("set") == ["#1", "#3", "all", "My news"]
    assert first_options("unsubscribe") == ["#1", "#3", "all"]
    assert opened("digest").fields[0].var == "every", "without folders, there is no field for them"


def test_form_answers_are_converted_to_chat_answers() -> None:
    person = visitor()
    choose = person.hear("many.example")
    assert adhoc_forms.form_to_answer(choose, {"answer": ("1",)}) == "1"
    assert adhoc_forms.form_to_answer(choose, {}) == "no"
    (answers,) = adhoc_forms.question_form(choose, choose.text, SPEAKER).fields
    assert answers.options == (("1", f"News: {NEWS}"), ("2", f"Blog: {BLOG}"))
    confirm = person.hear("forget me")
    assert adhoc_forms.form_to_answer(confirm, {"answer": ("true",)}) == "yes"
    assert adhoc_forms.form_to_answer(confirm, {"answer": ("0",)}) == "no"
    (answers,) = adhoc_forms.question_form(person.hear("find type=entry news"), "", SPEAKER).fields
    assert [value for value, _ in answers.options] == ["1", "2", "3", "4", "5", "more"]
    assert "more" not in dict(adhoc_forms.question_form(person.hear("find rust"), "", SPEAKER).fields[0].options)


def test_excess_and_oversized_form_values_are_ignored() -> None:
    field = "<field var='f{}'><value>{}</value></field>"
    many = "".join(field.format(number, "x") for number in range(1_000))
    order = "<iq from='a@b/c' id='1'><command xmlns='{}' node='n'><x xmlns='jabber:x:data'>{}</x></command></iq>"
    read = adhoc_stanzas.parse_command(XML(order.format(NS_COMMANDS, many)))
    assert read is not None
    assert len(read.values) == adhoc_stanzas.MAX_FORM_VALUES
    long = adhoc_stanzas.parse_command(XML(order.format(NS_COMMANDS, field.format("f", "x" * 300_000))))
    assert long is not None
    assert long.values == {}


def test_a_repeated_form_does_not_contain_the_credential() -> None:
    values = {"url": ("example.org",), "credential": ("login alice s3cret",)}
    again = adhoc_forms.repeated_form(opened("subscribe"), values, "That login was refused.")
    shown = adhoc_stanzas.response("subscribe", "1", "executing", form=again)
    assert "example.org" in shown
    assert "s3cret" not in shown
