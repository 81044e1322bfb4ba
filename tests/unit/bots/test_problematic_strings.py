"""Strings that have broken programs before: as commands, as titles, and as nicks in rooms, in every language."""

import html
import json
from collections.abc import Callable, Sequence
from xml.etree import ElementTree as ET

import msgspec
import pytest

from bots.delivery.notification_text import render_notification
from bots.i18n.translator import LANGUAGES, get_translator
from bots.rooms.room_membership import RoomMemberships
from bots.xmpp import message_parser, stanzas
from bots.xmpp.events import MessageReceived, OccupantPresence
from service.feeds.canonical_urls import channel_id
from service.feeds.parsing.html_text import remove_invalid_chars
from service.feeds.sandbox.parser_handlers import detect_changes
from service.feeds.sandbox.protocol import DetectChanges, Document
from service.model import Change, Channel, Delta, Entry
from service.store.people.bot_rooms import Room
from service.users.user_settings import UserSettings
from tests.support.naughty_strings import STRINGS
from tests.unit.bots.sample_web import visitor
from tests.unit.bots.text_safety import safe

ROOM = "room@rooms.example.org"
MUC_USER = "http://jabber.org/protocol/muc#user"
VERBS = ("", "subscribe ", "list ", "find ", "watch ", "language ", "timezone ", "quiet ", "digest ", "help ")


@pytest.mark.parametrize("language", LANGUAGES)
def test_replies_to_problematic_commands_are_safe(language: str) -> None:
    person = visitor()
    person.user_settings = UserSettings(client_language=language)
    for verb in VERBS:
        for words in STRINGS:
            assert safe(person.say(f"{verb}{words}")), (verb, words)


@pytest.mark.parametrize("language", LANGUAGES)
def test_notifications_with_problematic_titles_are_safe(language: str) -> None:
    for number, title in enumerate(STRINGS):
        url = f"https://example.org/{number}"
        channel = Channel(channel_id(url), url, title)
        entry = Entry("k", title, url, title)
        changes = (Change("addition", entry), Change("replacement", entry))
        assert safe(
            render_notification([channel], [Delta(channel.id, 1, 2, 0.0, changes)], {}, {}, get_translator(language))
        ), title


def rss(titles: Sequence[str], write: Callable[[str], str]) -> str:
    """RSS with these titles, for the feed as well as for its entries."""
    items = (f"<item><guid>{n}</guid><title>{write(title)}</title></item>" for n, title in enumerate(titles))
    return f"<rss version='2.0'><channel><title>{write(''.join(titles))}</title>{''.join(items)}</channel></rss>"


def atom(titles: Sequence[str]) -> str:
    """Atom with these titles, as HTML, and their own authors."""
    entries = (
        f"<entry><id>urn:{n}</id><title type='html'>{html.escape(title)}</title>"
        f"<author><name>{html.escape(title)}</name></author><link href='{html.escape(title)}'/></entry>"
        for n, title in enumerate(titles)
    )
    return f"<feed xmlns='http://www.w3.org/2005/Atom'><title>Atom</title>{''.join(entries)}</feed>"


def jsonfeed(titles: Sequence[str]) -> str:
    """A JSON Feed with these titles, to the letter."""
    items = [{"id": str(n), "title": title, "tags": [title], "url": title} for n, title in enumerate(titles)]
    return json.dumps({"version": "https://jsonfeed.org/version/1.1", "title": titles[-1][:50], "items": items})


DOCUMENTS: dict[str, Callable[[Sequence[str]], str]] = {
    "RSS": lambda titles: rss(titles, html.escape),
    "RSS with CDATA": lambda titles: rss(titles, lambda title: f"<![CDATA[{title}]]>"),
    "RSS that is no XML": lambda titles: rss(titles, str),
    "Atom": atom,
    "JSON Feed": jsonfeed,
}


@pytest.mark.parametrize("dialect", DOCUMENTS)
def test_notifications_of_parsed_problematic_feeds_are_well_formed_xml(dialect: str) -> None:
    """The way of a change: from a document's bytes to the stanza, with nothing of it made up."""
    url = "https://example.org/feed"

    def document(titles: Sequence[str]) -> Document:
        return Document(DOCUMENTS[dialect](titles).encode("utf-8", "surrogatepass"), url, {})

    told = 0
    for first in range(0, len(STRINGS), 50):
        titles = STRINGS[first : first + 50]
        before = detect_changes(DetectChanges((document(["before"]),), b"", url, "feed", 0.0))
        found = detect_changes(DetectChanges((document(titles),), before.baseline, url, "feed", 60.0))
        channel = Channel(channel_id(url), url, found.title)
        for change in found.changes:
            body = render_notification(
                [channel], [Delta(channel.id, 1, 2, 0.0, (change,))], {}, {}, get_translator("en")
            )
            assert safe(body), change.entry.title
            stanza = stanzas.message("bot@example.org", "a@example.org", "1", stanzas.body(body))
            assert ET.fromstring(stanza).findtext("body") == body  # noqa: S314 - we wrote it
            told += 1
    assert told >= (1 if dialect == "RSS that is no XML" else len(STRINGS) * 9 // 10)


def test_replies_to_occupants_with_problematic_nicks_are_well_formed_xml() -> None:
    """A server lets fewer names through than these; what it lets through is XML."""
    states = RoomMemberships()
    states.load({ROOM: Room("Coronet")}, {}, 0.0)
    states.on_address_checked(ROOM, is_group_chat=True)
    states.on_occupant_presence(
        OccupantPresence(ROOM, "Coronet", "none", is_present=True, statuses=frozenset(["110"]), is_destroyed=False),
        0.0,
    )
    states.confirm(ROOM)
    for nick in filter(None, map(remove_invalid_chars, STRINGS)):
        come = ET.Element("presence", {"from": f"{ROOM}/{nick}"})
        ET.SubElement(ET.SubElement(come, f"{{{MUC_USER}}}x"), f"{{{MUC_USER}}}item", {"affiliation": "owner"})
        there = message_parser.parse_room_presence(come)
        assert isinstance(there, OccupantPresence)
        states.on_occupant_presence(there, 0.0)
        spoken = ET.Element("message", {"from": f"{ROOM}/{nick}", "type": "groupchat"})
        ET.SubElement(spoken, "body").text = f"{nick}: status"
        said = message_parser.parse_message(spoken)
        assert isinstance(said, MessageReceived)
        assert said.resource == nick
        private = states.private_command(said)
        assert private is not None
        assert private.can_manage
        states.on_occupant_presence(msgspec.structs.replace(there, is_present=False), 0.0)
        states.addressed_command(said)
        answer = stanzas.message(
            "bot@example.org", ROOM, "1", stanzas.body(f"{said.resource}: hello"), kind="groupchat"
        )
        assert ET.fromstring(answer).findtext("body") == f"{nick}: hello"  # noqa: S314 - we wrote it
