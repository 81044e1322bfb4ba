"""Recognises duplicates among received messages, and messages that are too old to be answered.

An account's server can deliver the same message to several sessions, and again from its archive. For all copies of a
message, :func:`dedup_key` returns the same key.
"""

import datetime as dt
import hashlib
from typing import Final
from xml.etree.ElementTree import Element

from bots.xmpp import events, stanzas

MAX_AGE_S: Final = 86_400.0
"""Maximum age at which a message is still answered."""
MAX_CLOCK_SKEW_S: Final = 10.0
"""Maximum expected difference between the clocks of the XMPP server, of Redis and of this process."""
ID_REUSE_AFTER_S: Final = 1_800.0
"""Time after which a message with the same sender, id and text counts as a new message rather than a duplicate. Some
clients use the same ids again in each session."""

STANZA_ID: Final = "{urn:xmpp:sid:0}stanza-id"

_DELAYS: Final = ("{urn:xmpp:delay}delay", "{jabber:x:delay}x")
"""Elements with which a server marks a message that it stored before delivery (XEP-0203, XEP-0091)."""

_ARCHIVE_KEY_PREFIX: Final = "a "
_KEY_WINDOW_S: Final = 10.0
"""Length of the time windows for messages without any id. Two such messages are duplicates if they have the same sender
and text, and if their times are in the same window."""
_UNKNOWN_TIME_S: Final = 1.0
"""The Unix time, long past, that is used if a delay stamp cannot be parsed."""


def dedup_key(stanza: Element, account: str, now_s: float) -> str:
    """Return a key that is the same for all copies of a message that the sessions of one account receive.

    - ``account``: the bare JID of the account.
    - ``now_s``: the current time (Unix seconds).

    The key is derived from the first of these that is available:

    - the message's id in the account's archive, if the account's own server has set it (XEP-0359);
    - the sender, the text, and the message id that the sender has set;
    - the sender, the text, and the time, in windows of ``_KEY_WINDOW_S`` seconds. For a delayed message, the time is
      when a server stored it; otherwise it is ``now_s``.
    """
    archive_ids = (each.get("id", "") for each in stanza.iterfind(STANZA_ID) if each.get("by") == account)
    archive_id = next(archive_ids, "")
    if archive_id:
        return archive_dedup_key(archive_id)
    ident = stanza.get("id", "") or f"{(delayed_since_s(stanza) or now_s) // _KEY_WINDOW_S:.0f}"
    texts = (text for child in stanza if child.tag not in _DELAYS for text in child.itertext())
    content = "\0".join((stanza.get("from", ""), ident, *texts))
    return hashlib.sha256(content.encode()).hexdigest()[:32]


def archive_dedup_key(archive_id: str) -> str:
    """Return the key of the message whose id in the account's archive is ``archive_id``."""
    return f"{_ARCHIVE_KEY_PREFIX}{archive_id[: stanzas.MAX_TOKEN_CHARS]}"


def duplicates_since_s(message: events.MessageReceived, now_s: float) -> float:
    """Return since when a stored message with the same key counts as a duplicate of ``message`` (Unix time).

    If a message with the same key was stored before this time, it is a different message: the sender has used the
    same id again. ``now_s`` is the current Unix time.
    """
    if message.dedup_key.startswith(_ARCHIVE_KEY_PREFIX):
        return 0.0
    return message.sent_s - MAX_CLOCK_SKEW_S if message.sent_s else now_s - ID_REUSE_AFTER_S


def is_too_old(message: events.MessageReceived, now_s: float) -> bool:
    """Return whether a message is too old to be answered: a server stored it more than ``MAX_AGE_S`` seconds ago."""
    return 0.0 < message.sent_s < now_s - MAX_AGE_S


def delay_stamp_s(element: Element) -> float:
    """Return the time in a ``<delay/>`` element (Unix seconds); 1.0, a time long past, if it cannot be parsed."""
    try:
        stamp = dt.datetime.fromisoformat(element.get("stamp", "")[: stanzas.MAX_TOKEN_CHARS])
        return max(stamp.replace(tzinfo=stamp.tzinfo or dt.UTC).timestamp(), _UNKNOWN_TIME_S)
    except (ValueError, OverflowError):
        return _UNKNOWN_TIME_S


def delayed_since_s(stanza: Element) -> float:
    """Return when a server stored the message for later delivery (Unix seconds); 0 if it was delivered at once.

    If several servers stored the message, return the latest time.
    """
    return max((delay_stamp_s(found) for tag in _DELAYS for found in stanza.iterfind(tag)), default=0.0)
