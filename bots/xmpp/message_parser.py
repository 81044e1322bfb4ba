"""What the messages that we get mean. Pure.

A reaction (XEP-0444) is a short way to write a command under a message; a reply (XEP-0461) names its message, and what
it quotes for old clients (XEP-0428) is not part of what was said. A file (XEP-0066) is a list of feeds to import.
"""

import datetime as dt
import hashlib
import re
from typing import Final
from xml.etree.ElementTree import Element

from bots.commands.parser import VERB_OF, cut, reaction
from bots.xmpp.events import (
    MessageBounced,
    MessageReceived,
    OccupantPresence,
    Receipt,
    RoomInvitation,
    RoomJoinRefused,
    RoomMessageReceived,
)
from bots.xmpp.stanzas import LONGEST_TOKEN, MARKERS, MUC, OUT_OF_BAND, RECEIPTS, bare, clean, condition_of

_REPLY: Final = "urn:xmpp:reply:0"
_FALLBACK: Final = "urn:xmpp:fallback:0"
_REACTIONS: Final = "urn:xmpp:reactions:0"
_OCCUPANT: Final = "{urn:xmpp:occupant-id:0}occupant-id"
_STANZA_ID: Final = "{urn:xmpp:sid:0}stanza-id"
_USER: Final = f"{{{MUC}#user}}"
_DIRECT: Final = "{jabber:x:conference}x"
_LONGEST_JID: Final = 3_071
_MOST_REACTIONS: Final = 10
_UNNAMED_S: Final = 10.0
_BY_ARCHIVE: Final = "a "
_LONG_AGO_S: Final = 1.0
_LANGUAGE: Final = "{http://www.w3.org/XML/1998/namespace}lang"
_DELAYED: Final = ("{urn:xmpp:delay}delay", "{jabber:x:delay}x")
"""XEP-0203: what a server kept while nobody of us was there; in a room it is history, which concerned others."""
STALE_S: Final = 86_400.0
"""What was said so long ago is not answered any more."""
CLOCKS_DIFFER_S: Final = 10.0
"""How far the server's clock, Redis's and ours may be apart."""
SAME_WITHIN_S: Final = 1_800.0
"""Some clients count their ids anew in each session: afterwards the same id and words are another message."""
_QUOTED_LINES: Final = re.compile(r"\A\s*(?:>[> ]* [^\n]*(?:\n|\Z))+")
"""What somebody quotes at the beginning (XEP-0393 §5.1.3) was said by others; what is only quoted is said by nobody."""
_CARBONS: Final = ("{urn:xmpp:carbons:2}received", "{urn:xmpp:carbons:2}sent")
"""XEP-0280: we never ask for them, so these are forged."""
_MARKS: Final = tuple(f"{{{MARKERS}}}{mark}" for mark in ("displayed", "acknowledged", "received"))


def read(stanza: Element) -> MessageReceived | RoomMessageReceived | Receipt | MessageBounced | None:
    """Return what an incoming ``<message/>`` means to us, or None if nothing."""
    sender, ident, kind = stanza.get("from", ""), stanza.get("id", ""), stanza.get("type", "normal")
    if kind == "error":
        return MessageBounced(bare(sender), ident, condition_of(stanza), sender.partition("/")[2])
    if (
        kind not in ("chat", "normal", "groupchat")
        or not sender
        or any(stanza.find(tag) is not None for tag in _CARBONS)
    ):
        return None
    if kind != "groupchat" and (has_come := _receipt(stanza, bare(sender))) is not None:
        return has_come
    at_s = _kept_since(stanza)
    if kind == "groupchat":
        return None if at_s else _in_room(stanza)
    invited = _invitation(stanza)
    if invited is not None:
        return MessageReceived(
            bare(sender), sender, ident, "", "", wants_receipt=False, sent_s=at_s, invitation=invited
        )
    return _said(stanza, at_s)


def _receipt(stanza: Element, jid: str) -> Receipt | None:
    received = stanza.find(f"{{{RECEIPTS}}}received")
    if received is not None:
        return Receipt(jid, received.get("id", ""))
    marked = next((mark for mark in map(stanza.find, _MARKS) if mark is not None), None)
    if marked is not None and stanza.find("{*}body") is None:
        return Receipt(jid, marked.get("id", ""), is_marker=True)
    return None


def name(stanza: Element, account: str, wall_s: float) -> str:
    """Return what names a message to an account for all sessions that it is brought to.

    That is its id in the account's archive (XEP-0359; only the account's own server can write that). If there is none,
    the sender's id and words; and if there is no such id, either, the words within some seconds.
    A message that the server kept has the name that it had when it was brought at once.
    """
    found = (each.get("id", "") for each in stanza.iterfind(_STANZA_ID) if each.get("by") == account)
    own = next(found, "")
    if own:
        return archived(own)
    ident = stanza.get("id", "") or f"{(_kept_since(stanza) or wall_s) // _UNNAMED_S:.0f}"
    told = (part for child in stanza if child.tag not in _DELAYED for part in child.itertext())
    words = "\0".join((stanza.get("from", ""), ident, *told))
    return hashlib.sha256(words.encode()).hexdigest()[:32]


def archived(ident: str) -> str:
    """Return what names the message with this id in the account's archive."""
    return f"{_BY_ARCHIVE}{ident[:LONGEST_TOKEN]}"


def same_since_s(said: MessageReceived, now_s: float) -> float:
    """Return since when (Unix s) a message of this name is this one; one that was heard before that is another."""
    if said.dedup_key.startswith(_BY_ARCHIVE):
        return 0.0
    return said.sent_s - CLOCKS_DIFFER_S if said.sent_s else now_s - SAME_WITHIN_S


def is_stale(said: MessageReceived, now_s: float) -> bool:
    """Whether this was said too long ago to be answered."""
    return 0.0 < said.sent_s < now_s - STALE_S


def said_at_s(element: Element) -> float:
    """Return the moment (Unix s) that a ``<delay/>`` names; 1 for none that can be read: long ago."""
    try:
        stamp = dt.datetime.fromisoformat(element.get("stamp", "")[:LONGEST_TOKEN])
        return max(stamp.replace(tzinfo=stamp.tzinfo or dt.UTC).timestamp(), _LONG_AGO_S)
    except (ValueError, OverflowError):
        return _LONG_AGO_S


def _kept_since(stanza: Element) -> float:
    """Return when a message was given to a server that kept it, the last one if several did; 0 if none did."""
    return max((said_at_s(found) for tag in _DELAYED for found in stanza.iterfind(tag)), default=0.0)


def room_presence(stanza: Element) -> OccupantPresence | RoomJoinRefused | None:
    """Return what a ``<presence/>`` says of a room (XEP-0045), or None if it is nobody's in a room."""
    room, _, nick = stanza.get("from", "").partition("/")
    kind = stanza.get("type", "")
    if kind == "error" and stanza.find(f"{{{MUC}}}x") is not None:
        return RoomJoinRefused(room, condition_of(stanza))
    told = stanza.find(f"{_USER}x")
    if told is None or not nick or kind not in ("", "unavailable"):
        return None
    statuses = frozenset(status.get("code", "") for status in told.iterfind(f"{_USER}status"))
    found = told.find(f"{_USER}item")
    item = found if found is not None else Element("item")
    destroyed = told.find(f"{_USER}destroy") is not None
    affiliation, jid = item.get("affiliation", "none"), bare(item.get("jid", ""))
    return OccupantPresence(room, nick, affiliation, kind == "", statuses, destroyed, jid)


def _invitation(stanza: Element) -> RoomInvitation | None:
    """Return the room that a ``<message/>`` invites us to (XEP-0045 §7.8.2, XEP-0249), or None."""
    sender = bare(stanza.get("from", ""))
    invite, direct = stanza.find(f"{_USER}x/{_USER}invite"), stanza.find(_DIRECT)
    if invite is not None:
        through = invite.get("from", "")[:_LONGEST_JID] or sender
        found = RoomInvitation(sender, bare(through), stanza.findtext(f"{_USER}x/{_USER}password", ""), through)
    elif direct is not None:
        found = RoomInvitation(bare(direct.get("jid", "")).lower(), sender, direct.get("password", ""), is_vouched=True)
    else:
        return None
    sane = 0 < len(found.room) <= _LONGEST_JID and len(found.password) <= _LONGEST_JID and "@" in found.room
    return found if sane and clean(found.room) == found.room else None


def _said(stanza: Element, at_s: float) -> MessageReceived | None:
    text, points_at, reacted = _words(stanza)
    if text is None or _QUOTED_LINES.fullmatch(stanza.findtext("{*}body") or ""):
        return None
    sender, ident = stanza.get("from", ""), stanza.get("id", "")
    thread = stanza.findtext("{*}thread") or ""
    names_it = 0 < len(ident) <= LONGEST_TOKEN
    return MessageReceived(
        bare(sender),
        sender,
        ident,
        text,
        thread if len(thread) <= LONGEST_TOKEN else "",
        names_it and stanza.find(f"{{{RECEIPTS}}}request") is not None,
        _language(stanza),
        points_at,
        reacted,
        wants_marker=names_it and stanza.find(f"{{{MARKERS}}}markable") is not None,
        sent_s=at_s,
        is_private=stanza.find(f"{_USER}x") is not None,
    )


def _in_room(stanza: Element) -> RoomMessageReceived | None:
    text, points_at, reacted = _words(stanza)
    room, _, nick = stanza.get("from", "").partition("/")
    if text is None or not nick:
        return None
    named = (found.get("id", "") for found in stanza.iterfind(_STANZA_ID) if found.get("by") == room)
    room_id = next(named, "")[:LONGEST_TOKEN]
    ident, occupant = stanza.get("id", ""), _occupant(stanza)
    return RoomMessageReceived(room, nick, ident, room_id, text, _language(stanza), points_at, reacted, occupant)


def _occupant(stanza: Element) -> str:
    """Return what a room calls who spoke there, for as long as they come there; else their nick."""
    named = stanza.find(_OCCUPANT)
    own = named.get("id", "")[:LONGEST_TOKEN] if named is not None else ""
    return own or stanza.get("from", "").partition("/")[2][:LONGEST_TOKEN]


def _words(stanza: Element) -> tuple[str | None, str, bool]:
    """Return what was said, under which message of ours ("" for none), and whether it is a reaction."""
    reactions = stanza.find(f"{{{_REACTIONS}}}reactions")
    if reactions is not None:
        emojis = tuple((child.text or "").strip()[:16] for child in list(reactions)[:_MOST_REACTIONS])
        return reaction(emojis) or None, reactions.get("id", "")[:LONGEST_TOKEN], True
    body = stanza.find("{*}body")
    shared = _file(stanza, (body.text or "") if body is not None else "")
    if shared:
        return cut(f"import {shared}"), "", False
    if body is None:
        return None, "", False
    reply = stanza.find(f"{{{_REPLY}}}reply")
    points_at = reply.get("id", "")[:LONGEST_TOKEN] if reply is not None else ""
    return cut(_QUOTED_LINES.sub("", _without_quote(stanza, body.text or ""))), points_at, False


def _file(stanza: Element, text: str) -> str:
    """Return the URL of a file that somebody sends (XEP-0066), with nothing said to it but perhaps what it is for.

    A list of feeds is the only file that we can do anything with.
    """
    url = (stanza.findtext(f"{{{OUT_OF_BAND}}}x/{{{OUT_OF_BAND}}}url") or "").strip()
    said = text.strip()
    return url if said in ("", url) or VERB_OF.get(said.lower()) == "import" else ""


def _without_quote(stanza: Element, text: str) -> str:
    """Return a body without the part that repeats what it replies to; its bounds count Unicode characters."""
    fallback = stanza.find(f"{{{_FALLBACK}}}fallback[@for='{_REPLY}']")
    part = fallback.find(f"{{{_FALLBACK}}}body") if fallback is not None else None
    if part is None:
        return text
    start, end = part.get("start", "0"), part.get("end", "0")
    if not (start.isdecimal() and end.isdecimal() and len(start) + len(end) < LONGEST_TOKEN):
        return text
    return text[: int(start)] + text[max(int(start), int(end)) :]


def _language(stanza: Element) -> str:
    body = stanza.find("{*}body")
    own = stanza.get(_LANGUAGE, "")
    return body.get(_LANGUAGE, own) if body is not None else own
