"""The stanzas we write, as text. Pure; no slixmpp objects.

Writing text instead of building element trees is what keeps a fan-out near the server's own speed.
"""

import datetime as dt
import re
from collections.abc import Mapping
from typing import Final
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape, quoteattr

RECEIPTS: Final = "urn:xmpp:receipts"
MARKERS: Final = "urn:xmpp:chat-markers:0"
DELAY: Final = "urn:xmpp:delay"
OUT_OF_BAND: Final = "jabber:x:oob"
CHAT_STATES: Final = "http://jabber.org/protocol/chatstates"
MUC: Final = "http://jabber.org/protocol/muc"
_ERRORS: Final = "{urn:ietf:params:xml:ns:xmpp-stanzas}"

REQUEST: Final = f"<request xmlns='{RECEIPTS}'/>"
"""Asks for a receipt (XEP-0184)."""
ACTIVE: Final = f"<active xmlns='{CHAT_STATES}'/>"
"""Ends what :func:`composing` began (XEP-0085)."""

LONGEST_TOKEN: Final = 256
"""Characters of an id or thread that an answer repeats: an answer longer than the server takes ends the stream."""

_RDF: Final = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_OPEN_GRAPH: Final = "https://ogp.me/ns#"

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""XML 1.0 §2.2. One such character would end the stream for everybody, so this is checked here once more."""
_LANGUAGE: Final = "{http://www.w3.org/XML/1998/namespace}lang"


def clean(text: str) -> str:
    """Return the text without what would end the stream."""
    return _NOT_XML.sub("", text)


def payload(text: str) -> str:
    """Return the body of a chat message."""
    return f"<body>{escape(clean(text))}</body>"


def file(url: str) -> str:
    """Return the content of a message that is nothing but a file (XEP-0066, as XEP-0363 §7 has it)."""
    return f"{payload(url)}<x xmlns='{OUT_OF_BAND}'><url>{escape(clean(url))}</url></x>"


def link_metadata(url: str, properties: Mapping[str, str]) -> str:
    """Return what a message says of a link (XEP-0511), by names of Open Graph."""
    told = "".join(f"<og:{name}>{escape(clean(value))}</og:{name}>" for name, value in properties.items())
    about = quoteattr(clean(url))
    return f"<rdf:Description xmlns:rdf='{_RDF}' xmlns:og='{_OPEN_GRAPH}' rdf:about={about}>{told}</rdf:Description>"


def replace(message_id: str) -> str:
    """Return what makes a message the correction of an earlier one (XEP-0308 §3: of the original, however often)."""
    return f"<replace xmlns='urn:xmpp:message-correct:0' id={quoteattr(message_id)}/>"


def delay(sender: str, at_s: float) -> str:
    """Return what says when a message was sent first (Unix s), in one that is sent again (XEP-0203)."""
    stamp = dt.datetime.fromtimestamp(at_s, dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return f"<delay xmlns='{DELAY}' from={quoteattr(sender)} stamp='{stamp}'/>"


def message(sender: str, to: str, message_id: str, content: str, thread: str = "", *, kind: str = "chat") -> str:
    """Return a message whose id is also its origin id (XEP-0359); ``kind`` is "groupchat" for all in a room.

    ``content`` is what :func:`payload` or :func:`file` returned, and perhaps :func:`link_metadata`, :func:`replace`,
    ``REQUEST`` and ``ACTIVE``.
    """
    ident = quoteattr(message_id)
    return (
        f"<message from={quoteattr(sender)} to={quoteattr(to)} type='{kind}' id={ident}>"
        f"{content}{_within(thread)}<origin-id xmlns='urn:xmpp:sid:0' id={ident}/></message>"
    )


def receipt(sender: str, to: str, message_id: str) -> str:
    """Return the receipt for a message."""
    return _signal(sender, to, f"<received xmlns='{RECEIPTS}' id={quoteattr(message_id)}/>")


def displayed(sender: str, to: str, message_id: str, thread: str) -> str:
    """Return the marker of a message that was read (XEP-0333), in the thread in which that was said."""
    return _signal(sender, to, f"<displayed xmlns='{MARKERS}' id={quoteattr(message_id)}/>{_within(thread)}")


def composing(sender: str, to: str) -> str:
    """Return the sign that we are at work on an answer (XEP-0085)."""
    return _signal(sender, to, f"<composing xmlns='{CHAT_STATES}'/>")


def _signal(sender: str, to: str, content: str) -> str:
    return f"<message from={quoteattr(sender)} to={quoteattr(to)} type='chat'>{content}</message>"


def presence(sender: str, to: str = "", kind: str = "", *, content: str = "") -> str:
    """Return a presence for one person, or for all contacts; ``kind`` is empty for "available"."""
    whom = f" to={quoteattr(to)}" if to else ""
    stated = f" type={quoteattr(kind)}" if kind else ""
    return f"<presence from={quoteattr(sender)}{whom}{stated}>{content}</presence>"


def entering(sender: str, room: str, nick: str, password: str, content: str) -> str:
    """Return the presence that enters a room (XEP-0045), without its history."""
    secret = f"<password>{escape(clean(password))}</password>" if password else ""
    asked = f"<x xmlns='{MUC}'><history maxstanzas='0'/>{secret}</x>"
    return presence(sender, f"{room}/{nick}", content=asked + content)


def declining(sender: str, room: str, to: str, reason: str) -> str:
    """Return what has a room tell who invited us through it why we do not come (XEP-0045 §7.8.3)."""
    told = f"<decline to={quoteattr(to)}><reason>{escape(clean(reason))}</reason></decline>"
    return f"<message from={quoteattr(sender)} to={quoteattr(room)}><x xmlns='{MUC}#user'>{told}</x></message>"


def no_contact(sender: str, jid: str, ident: str, *, is_account: bool) -> list[str]:
    """Return what ends both presence subscriptions; an account's server has a roster to take the person out of."""
    if not is_account:
        return [presence(sender, jid, "unsubscribe"), presence(sender, jid, "unsubscribed")]
    item = f"<item jid={quoteattr(jid)} subscription='remove'/>"
    return [request(sender, sender, ident, "set", f"<query xmlns='jabber:iq:roster'>{item}</query>")]


def data_form(kind: str, form_type: str, values: Mapping[str, str]) -> str:
    """Return a form that is filled in (XEP-0004, XEP-0068); ``kind`` is "submit" or "result"."""
    fields = "".join(
        f"<field var='{var}'><value>{escape(clean(value))}</value></field>" for var, value in values.items()
    )
    hidden = f"<field var='FORM_TYPE' type='hidden'><value>{form_type}</value></field>"
    return f"<x xmlns='jabber:x:data' type='{kind}'>{hidden}{fields}</x>"


def request(sender: str, to: str, ident: str, kind: str, content: str) -> str:
    """Return a request of ours, or an answer; ``kind`` is "get", "set", "result" or "error"."""
    known = quoteattr(clean(ident)[:LONGEST_TOKEN])
    return f"<iq from={quoteattr(sender)} to={quoteattr(to)} id={known} type='{kind}'>{content}</iq>"


def result(sender: str, to: str, ident: str, content: str) -> str:
    """Return the answer to a request."""
    return request(sender, to, ident, "result", content)


def refusal(sender: str, to: str, ident: str, error: tuple[str, str], detail: str = "") -> str:
    """Return the answer to a request that cannot be met (RFC 6120 §8.3): its type and condition.

    ``detail`` is what the application says.
    """
    kind, condition = error
    told = f"<error type='{kind}'><{condition} xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/>{detail}</error>"
    return request(sender, to, ident, "error", told)


def _within(thread: str) -> str:
    return f"<thread>{escape(thread)}</thread>" if thread else ""


def bare(jid: str) -> str:
    """Return the JID without its resource."""
    return jid.partition("/")[0]


def condition_of(stanza: Element) -> str:
    """Return the condition of a stanza of the type error (RFC 6120 §8.3.3)."""
    error = stanza.find("{*}error")
    named = [child.tag for child in (error if error is not None else ()) if child.tag.startswith(_ERRORS)]
    return named[0].removeprefix(_ERRORS) if named else "undefined-condition"
