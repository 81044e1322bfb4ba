"""Functions that return outgoing stanzas, and parts of them, as XML text.

Stanzas are formatted as strings instead of being built as element trees, because serialising trees would be the slowest
part of a fan-out. The functions escape their text arguments.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Final
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape, quoteattr

from service.feeds.parsing.html_text import remove_invalid_chars

NS_RECEIPTS: Final = "urn:xmpp:receipts"
NS_MARKERS: Final = "urn:xmpp:chat-markers:0"
NS_DELAY: Final = "urn:xmpp:delay"
NS_OOB: Final = "jabber:x:oob"
NS_CHAT_STATES: Final = "http://jabber.org/protocol/chatstates"
NS_MUC: Final = "http://jabber.org/protocol/muc"
_NS_STANZA_ERRORS: Final = "{urn:ietf:params:xml:ns:xmpp-stanzas}"
_NS_RDF: Final = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_NS_OPEN_GRAPH: Final = "https://ogp.me/ns#"

RECEIPT_REQUEST: Final = f"<request xmlns='{NS_RECEIPTS}'/>"
"""Message content that requests a delivery receipt (XEP-0184)."""
CHAT_ACTIVE: Final = f"<active xmlns='{NS_CHAT_STATES}'/>"
"""Message content that ends the state set by :func:`composing` (XEP-0085)."""

MAX_TOKEN_CHARS: Final = 256
"""Maximum length of an id or thread copied from an incoming stanza.

A response longer than the server accepts would end the stream.
"""


# Content of messages.


def body(text: str) -> str:
    """Return the ``<body/>`` element of a message, with ``text`` as its content."""
    return f"<body>{escape(remove_invalid_chars(text))}</body>"


def shared_file(url: str) -> str:
    """Return the content of a message that shares a file by its URL (XEP-0066 as used by XEP-0363 §7)."""
    return f"{body(url)}<x xmlns='{NS_OOB}'><url>{escape(remove_invalid_chars(url))}</url></x>"


def link_metadata(url: str, properties: Mapping[str, str]) -> str:
    """Return the element with metadata about a link in a message (XEP-0511).

    The keys of ``properties`` are Open Graph names.
    """
    content = "".join(
        f"<og:{name}>{escape(remove_invalid_chars(value))}</og:{name}>" for name, value in properties.items()
    )
    about = quoteattr(remove_invalid_chars(url))
    return (
        f"<rdf:Description xmlns:rdf='{_NS_RDF}' xmlns:og='{_NS_OPEN_GRAPH}' rdf:about={about}>"
        f"{content}</rdf:Description>"
    )


def correction(message_id: str) -> str:
    """Return the element that marks a message as the correction of an earlier message.

    ``message_id`` is the id of the original message, even if that message has already been corrected (XEP-0308 §3).
    """
    return f"<replace xmlns='urn:xmpp:message-correct:0' id={quoteattr(message_id)}/>"


def delay(sender: str, at_s: float) -> str:
    """Return the element that states when a message was originally sent (XEP-0203).

    The element is added when the message is sent again. ``sender`` first sent the message at ``at_s`` (Unix s).
    """
    stamp = dt.datetime.fromtimestamp(at_s, dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return f"<delay xmlns='{NS_DELAY}' from={quoteattr(sender)} stamp='{stamp}'/>"


# Messages.


def message(sender: str, to: str, message_id: str, content: str, thread: str = "", *, kind: str = "chat") -> str:
    """Return a message; ``message_id`` is also its origin id (XEP-0359).

    ``content`` is the result of :func:`body` or :func:`shared_file`, possibly followed by elements like
    :func:`correction`. ``thread`` is the id of the conversation, or "". ``kind`` is "chat", or "groupchat" for a
    message to all occupants of a room.
    """
    ident = quoteattr(message_id)
    return (
        f"<message from={quoteattr(sender)} to={quoteattr(to)} type='{kind}' id={ident}>"
        f"{content}{_thread(thread)}<origin-id xmlns='urn:xmpp:sid:0' id={ident}/></message>"
    )


def receipt(sender: str, to: str, message_id: str) -> str:
    """Return a delivery receipt for the received message with this id (XEP-0184)."""
    return _message_without_id(sender, to, f"<received xmlns='{NS_RECEIPTS}' id={quoteattr(message_id)}/>")


def displayed_marker(sender: str, to: str, message_id: str, thread: str) -> str:
    """Return the marker that tells the sender of a received message that it was displayed (XEP-0333).

    ``thread`` is the thread of the received message.
    """
    return _message_without_id(
        sender, to, f"<displayed xmlns='{NS_MARKERS}' id={quoteattr(message_id)}/>{_thread(thread)}"
    )


def composing(sender: str, to: str) -> str:
    """Return the notification that the bot is composing a reply (XEP-0085)."""
    return _message_without_id(sender, to, f"<composing xmlns='{NS_CHAT_STATES}'/>")


def invitation_decline(sender: str, room: str, to: str, reason: str) -> str:
    """Return the message to ``room`` that declines an invitation (XEP-0045 §7.8.3).

    ``to`` is the inviter. The room passes the text ``reason`` on to the inviter.
    """
    decline = f"<decline to={quoteattr(to)}><reason>{escape(remove_invalid_chars(reason))}</reason></decline>"
    return f"<message from={quoteattr(sender)} to={quoteattr(room)}><x xmlns='{NS_MUC}#user'>{decline}</x></message>"


def _message_without_id(sender: str, to: str, content: str) -> str:
    return f"<message from={quoteattr(sender)} to={quoteattr(to)} type='chat'>{content}</message>"


def _thread(thread: str) -> str:
    return f"<thread>{escape(thread)}</thread>" if thread else ""


# Presence.


def presence(sender: str, to: str = "", kind: str = "", *, content: str = "") -> str:
    """Return a presence for one JID, or for all contacts if ``to`` is empty; an empty ``kind`` means "available"."""
    to_attribute = f" to={quoteattr(to)}" if to else ""
    type_attribute = f" type={quoteattr(kind)}" if kind else ""
    return f"<presence from={quoteattr(sender)}{to_attribute}{type_attribute}>{content}</presence>"


def room_join(sender: str, room: str, nick: str, password: str, content: str) -> str:
    """Return the presence that joins a room without requesting its history (XEP-0045 §7.2).

    ``password`` is "" for an open room. ``content`` is additional XML to include in the presence.
    """
    secret = f"<password>{escape(remove_invalid_chars(password))}</password>" if password else ""
    join = f"<x xmlns='{NS_MUC}'><history maxstanzas='0'/>{secret}</x>"
    return presence(sender, f"{room}/{nick}", content=join + content)


def contact_removal(sender: str, jid: str, ident: str, *, is_account: bool) -> list[str]:
    """Return the stanzas that end the presence subscriptions between the bot and ``jid``, in both directions.

    - ``ident``: the id of the IQ that removes the contact from the roster.
    - ``is_account``: whether the bot is an account. An account removes the contact from its roster, which ends both
      subscriptions. A component has no roster, so it ends each subscription with a presence.
    """
    if not is_account:
        return [presence(sender, jid, "unsubscribe"), presence(sender, jid, "unsubscribed")]
    item = f"<item jid={quoteattr(jid)} subscription='remove'/>"
    return [iq(sender, sender, ident, "set", f"<query xmlns='jabber:iq:roster'>{item}</query>")]


# Requests and responses.


def iq(sender: str, to: str, ident: str, kind: str, content: str) -> str:
    """Return an IQ stanza with the id ``ident``; ``kind`` is "get", "set", "result" or "error"."""
    id_attribute = quoteattr(remove_invalid_chars(ident)[:MAX_TOKEN_CHARS])
    return f"<iq from={quoteattr(sender)} to={quoteattr(to)} id={id_attribute} type='{kind}'>{content}</iq>"


def error(kind: str, condition: str, detail: str = "") -> str:
    """Return the content of an error response (RFC 6120 §8.3).

    ``kind`` is the type of the error, ``condition`` its name, and ``detail`` an optional element with details.
    """
    return f"<error type='{kind}'><{condition} xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/>{detail}</error>"


def data_form(kind: str, form_type: str, values: Mapping[str, str | Sequence[str]]) -> str:
    """Return a completed data form (XEP-0004) of the type ``form_type`` (XEP-0068).

    ``kind`` is "submit" or "result". ``values`` maps each field to its value, or to a sequence of values.
    """

    def texts(given: str | Sequence[str]) -> str:
        several = (given,) if isinstance(given, str) else given
        return "".join(f"<value>{escape(remove_invalid_chars(value))}</value>" for value in several)

    fields = "".join(f"<field var='{var}'>{texts(given)}</field>" for var, given in values.items())
    hidden = f"<field var='FORM_TYPE' type='hidden'><value>{form_type}</value></field>"
    return f"<x xmlns='jabber:x:data' type='{kind}'>{hidden}{fields}</x>"


# Reading.


def bare_jid(jid: str) -> str:
    """Return a JID without its resource."""
    return jid.partition("/")[0]


def error_condition(stanza: Element) -> str:
    """Return the condition of an error stanza (RFC 6120 §8.3.3), or "undefined-condition" if it states none."""
    error = stanza.find("{*}error")
    conditions = [
        child.tag for child in (error if error is not None else ()) if child.tag.startswith(_NS_STANZA_ERRORS)
    ]
    return conditions[0].removeprefix(_NS_STANZA_ERRORS) if conditions else "undefined-condition"
