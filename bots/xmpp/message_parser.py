"""The parser for incoming messages and room presences, which converts XML elements to events.

The text of an event is the command in the message. A reaction (XEP-0444) is converted to the command that its emoji
stands for. For a reply (XEP-0461), the event contains the id of the original message, and the quotation that is added
for old clients (XEP-0428) is removed. A shared file (XEP-0066) is converted to the command that imports it.
"""

import re
from typing import Final
from xml.etree.ElementTree import Element

import msgspec

from bots.commands.parser import command_of_reaction, truncate_input
from bots.commands.verb_synonyms import VERB_OF
from bots.xmpp import events, stanzas
from bots.xmpp.deduplication import STANZA_ID, delayed_since_s
from service.feeds.parsing.html_text import remove_invalid_chars

_NS_REPLY: Final = "urn:xmpp:reply:0"
_NS_FALLBACK: Final = "urn:xmpp:fallback:0"
_REACTIONS: Final = "{urn:xmpp:reactions:0}reactions"
_REPLY: Final = f"{{{_NS_REPLY}}}reply"
_OCCUPANT_ID: Final = "{urn:xmpp:occupant-id:0}occupant-id"
_MUC_USER: Final = f"{{{stanzas.NS_MUC}#user}}"
_DIRECT_INVITATION: Final = "{jabber:x:conference}x"
_XML_LANG: Final = "{http://www.w3.org/XML/1998/namespace}lang"
_CARBONS: Final = ("{urn:xmpp:carbons:2}received", "{urn:xmpp:carbons:2}sent")
"""Message carbons (XEP-0280). The bot never enables them, so a message that contains one is forged."""
_MARKERS: Final = tuple(f"{{{stanzas.NS_MARKERS}}}{name}" for name in ("displayed", "acknowledged", "received"))

_MAX_JID_CHARS: Final = 3_071
_MAX_REACTIONS: Final = 10
_QUOTED_LINES: Final = re.compile(r"\A\s*(?:>[> ]* [^\n]*(?:\n|\Z))+")
"""Quoted lines at the beginning of a body (XEP-0393 §5.1.3), which are not part of the message itself."""


def parse_message(stanza: Element) -> events.MessageReceived | events.Receipt | events.MessageBounced | None:
    """Return the event for a ``<message/>``; None if the bot ignores the message.

    For example, the bot ignores delayed messages to all occupants of a room, because they are the room's history.
    """
    sender, ident, kind = stanza.get("from", ""), stanza.get("id", ""), stanza.get("type", "normal")
    if kind == "error":
        return events.MessageBounced(
            stanzas.bare_jid(sender), ident, stanzas.error_condition(stanza), sender.partition("/")[2]
        )
    if (
        kind not in ("chat", "normal", "groupchat")
        or not sender
        or any(stanza.find(tag) is not None for tag in _CARBONS)
    ):
        return None
    sent_s = delayed_since_s(stanza)
    if kind == "groupchat":
        return None if sent_s else _parse_text_message(stanza, 0.0, is_groupchat=True)
    receipt = _parse_receipt(stanza, stanzas.bare_jid(sender))
    if receipt is not None:
        return receipt
    invitation = _parse_invitation(stanza)
    if invitation is not None:
        return events.MessageReceived(
            stanzas.bare_jid(sender), sender, ident, "", "", wants_receipt=False, sent_s=sent_s, invitation=invitation
        )
    return _parse_text_message(stanza, sent_s, is_groupchat=False)


def _parse_receipt(stanza: Element, jid: str) -> events.Receipt | None:
    received = stanza.find(f"{{{stanzas.NS_RECEIPTS}}}received")
    if received is not None:
        return events.Receipt(jid, received.get("id", ""))
    marker = next((found for found in map(stanza.find, _MARKERS) if found is not None), None)
    if marker is not None and stanza.find("{*}body") is None:
        return events.Receipt(jid, marker.get("id", ""), is_marker=True)
    return None


# Duplicates.


# Rooms.


def parse_room_presence(stanza: Element) -> events.OccupantPresence | events.RoomJoinRefused | None:
    """Return the event for a ``<presence/>`` from a room (XEP-0045); None for any other presence."""
    room, _, nick = stanza.get("from", "").partition("/")
    kind = stanza.get("type", "")
    if kind == "error" and stanza.find(f"{{{stanzas.NS_MUC}}}x") is not None:
        return events.RoomJoinRefused(room, stanzas.error_condition(stanza))
    extension = stanza.find(f"{_MUC_USER}x")
    if extension is None or not nick or kind not in ("", "unavailable"):
        return None
    statuses = frozenset(status.get("code", "") for status in extension.iterfind(f"{_MUC_USER}status"))
    found = extension.find(f"{_MUC_USER}item")
    item = found if found is not None else Element("item")
    is_destroyed = extension.find(f"{_MUC_USER}destroy") is not None
    affiliation, jid = item.get("affiliation", "none"), stanzas.bare_jid(item.get("jid", ""))
    return events.OccupantPresence(room, nick, affiliation, kind == "", statuses, is_destroyed, jid)


def _parse_invitation(stanza: Element) -> events.RoomInvitation | None:
    """Return the invitation to a room that a message contains; None if it contains none.

    The invitation may be mediated by the room (XEP-0045 §7.8.2) or direct (XEP-0249).
    """
    sender = stanzas.bare_jid(stanza.get("from", ""))
    mediated, direct = stanza.find(f"{_MUC_USER}x/{_MUC_USER}invite"), stanza.find(_DIRECT_INVITATION)
    if mediated is not None:
        inviter = mediated.get("from", "")[:_MAX_JID_CHARS] or sender
        password = stanza.findtext(f"{_MUC_USER}x/{_MUC_USER}password", "")
        invitation = events.RoomInvitation(sender, stanzas.bare_jid(inviter), password, inviter)
    elif direct is not None:
        room = stanzas.bare_jid(direct.get("jid", "")).lower()
        invitation = events.RoomInvitation(room, sender, direct.get("password", ""), is_vouched=True)
    else:
        return None
    room, password = invitation.room, invitation.password
    is_sane = 0 < len(room) <= _MAX_JID_CHARS and len(password) <= _MAX_JID_CHARS and "@" in room
    return invitation if is_sane and remove_invalid_chars(room) == room else None


# Text.


def _parse_text_message(stanza: Element, sent_s: float, *, is_groupchat: bool) -> events.MessageReceived | None:
    """Return the event for a message with text or a reaction; None if the bot ignores the message.

    ``sent_s`` is the time when a server stored the message for later delivery (Unix s), or 0 if it was delivered at
    once. The bot ignores messages without text or reaction, messages from a room itself, and messages outside a
    groupchat that consist of nothing but quotations.
    """
    text, reply_to_id, is_reaction = _parse_text(stanza)
    sender, ident, body = stanza.get("from", ""), stanza.get("id", ""), stanza.find("{*}body")
    jid, _, resource = sender.partition("/")
    is_ignored = not resource if is_groupchat else _QUOTED_LINES.fullmatch(stanza.findtext("{*}body") or "")
    if text is None or is_ignored:
        return None
    language, thread = stanza.get(_XML_LANG, ""), stanza.findtext("{*}thread") or ""
    has_usable_id = 0 < len(ident) <= stanzas.MAX_TOKEN_CHARS
    message = events.MessageReceived(
        jid,
        sender,
        ident,
        text,
        thread if len(thread) <= stanzas.MAX_TOKEN_CHARS else "",
        has_usable_id and stanza.find(f"{{{stanzas.NS_RECEIPTS}}}request") is not None,
        body.get(_XML_LANG, language) if body is not None else language,
        reply_to_id,
        is_reaction,
        wants_marker=has_usable_id and stanza.find(f"{{{stanzas.NS_MARKERS}}}markable") is not None,
        sent_s=sent_s,
        is_private=stanza.find(f"{_MUC_USER}x") is not None,
    )
    if not is_groupchat:
        return message
    room_ids = (found.get("id", "") for found in stanza.iterfind(STANZA_ID) if found.get("by") == jid)
    return msgspec.structs.replace(
        message,
        is_groupchat=True,
        occupant_id=_id_of(stanza, _OCCUPANT_ID) or resource[: stanzas.MAX_TOKEN_CHARS],
        room_id=next(room_ids, "")[: stanzas.MAX_TOKEN_CHARS],
    )


def _parse_text(stanza: Element) -> tuple[str | None, str, bool]:
    """Return (text, original id, whether the message is a reaction).

    - Text: the message's text, or the command for which its reaction stands; None if there is neither.
    - Original id: the id of the message to which this one replies or reacts; "" if it does neither.

    If the message shares a file (XEP-0066) and says nothing else, or only "import", the file is assumed to be an OPML
    list, and the text is the command that imports it. Other files are ignored.
    """
    reactions, body = stanza.find(_REACTIONS), stanza.findtext("{*}body")
    if reactions is not None:
        emojis = tuple((child.text or "").strip()[:16] for child in list(reactions)[:_MAX_REACTIONS])
        return command_of_reaction(emojis) or None, _id_of(stanza, _REACTIONS), True
    url = (stanza.findtext(f"{{{stanzas.NS_OOB}}}x/{{{stanzas.NS_OOB}}}url") or "").strip()
    words = (body or "").strip()
    if url and (words in ("", url) or VERB_OF.get(words.lower()) == "import"):
        return truncate_input(f"import {url}"), "", False
    if body is None:
        return None, "", False
    return truncate_input(_QUOTED_LINES.sub("", _remove_fallback(stanza, body))), _id_of(stanza, _REPLY), False


def _id_of(stanza: Element, tag: str) -> str:
    """Return the ``id`` attribute of the child element ``tag`` of a stanza; "" if either is missing."""
    element = stanza.find(tag)
    return element.get("id", "")[: stanzas.MAX_TOKEN_CHARS] if element is not None else ""


def _remove_fallback(stanza: Element, body: str) -> str:
    """Return the body of a reply without the quotation of the original message (XEP-0428)."""
    fallback = stanza.find(f"{{{_NS_FALLBACK}}}fallback[@for='{_NS_REPLY}']")
    part = fallback.find(f"{{{_NS_FALLBACK}}}body") if fallback is not None else None
    if part is None:
        return body
    start, end = part.get("start", "0"), part.get("end", "0")
    if not (start.isdecimal() and end.isdecimal() and len(start) + len(end) < stanzas.MAX_TOKEN_CHARS):
        return body
    return body[: int(start)] + body[max(int(start), int(end)) :]
