"""Rooms on the wire: entering, leaving, who is there (XEP-0045), invitations (also 0249), bookmarks (0402). Pure."""

from typing import Final
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape, quoteattr

from bots.bounces import condition_of
from bots.introduction import NAME
from bots.link import InRoom, Invited, RoomRefused
from bots.stanzas import bare, clean
from service.net.sites import site_of

BOOKMARKS: Final = "urn:xmpp:bookmarks:1"
CREATED: Final = "201"
MYSELF: Final = "110"
RENAMED: Final = "210"
"""The room gave us another nick than we asked for."""
TURNED_OUT: Final = frozenset(("301", "307", "321", "322"))
"""Banned, kicked, no longer a member, or no longer open to strangers."""

_MUC: Final = "http://jabber.org/protocol/muc"
_USER: Final = f"{_MUC}#user"
_DISCO_INFO: Final = "http://jabber.org/protocol/disco#info"
_DIRECT: Final = "jabber:x:conference"
_LONGEST_JID: Final = 3_071
_AFTER_NICK: Final = ":,; \n\t"
"""What stands between the nick of whom a message is for and the rest."""
_PUBSUB: Final = "http://jabber.org/protocol/pubsub"


QUESTION: Final = f"<query xmlns='{_DISCO_INFO}'/>"
"""Asks an address what it is; the answer is for :func:`is_group_chat`."""


def is_group_chat(answer: Element) -> bool | None:
    """Return whether an address says that it is a room, or a service with rooms (XEP-0045 §6); None for an error."""
    told = answer.find(f"{{{_DISCO_INFO}}}query")
    if answer.get("type") != "result" or told is None:
        return None
    identities = [(each.get("category"), each.get("type")) for each in told.iterfind(f"{{{_DISCO_INFO}}}identity")]
    features = [each.get("var") for each in told.iterfind(f"{{{_DISCO_INFO}}}feature")]
    return ("conference", "text") in identities and _MUC in features


def entering(sender: str, room: str, nick: str, password: str, content: str) -> str:
    """Return the presence that enters a room, without its history."""
    secret = f"<password>{escape(clean(password))}</password>" if password else ""
    asked = f"<x xmlns='{_MUC}'><history maxstanzas='0'/>{secret}</x>"
    return f"<presence from={quoteattr(sender)} to={quoteattr(f'{room}/{nick}')}>{asked}{content}</presence>"


def leaving(sender: str, room: str, nick: str) -> str:
    """Return the presence that leaves a room."""
    return f"<presence from={quoteattr(sender)} to={quoteattr(f'{room}/{nick}')} type='unavailable'/>"


def presence(stanza: Element) -> InRoom | RoomRefused | None:
    """Return what a ``<presence/>`` says of a room, or None if it is nobody's in a room."""
    room, _, nick = stanza.get("from", "").partition("/")
    kind = stanza.get("type", "")
    if kind == "error" and stanza.find(f"{{{_MUC}}}x") is not None:
        return RoomRefused(room, condition_of(stanza))
    told = stanza.find(f"{{{_USER}}}x")
    if told is None or not nick or kind not in ("", "unavailable"):
        return None
    statuses = frozenset(status.get("code", "") for status in told.iterfind(f"{{{_USER}}}status"))
    item = told.find(f"{{{_USER}}}item")
    affiliation = item.get("affiliation", "none") if item is not None else "none"
    jid = bare(item.get("jid", "")) if item is not None else ""
    destroyed = told.find(f"{{{_USER}}}destroy") is not None
    return InRoom(room, nick, affiliation, kind == "", statuses, destroyed, jid)


def invitation(stanza: Element) -> Invited | None:
    """Return the room that a ``<message/>`` invites us to, or None."""
    sender = bare(stanza.get("from", ""))
    told = stanza.find(f"{{{_USER}}}x")
    invite = told.find(f"{{{_USER}}}invite") if told is not None else None
    if told is not None and invite is not None:
        through = invite.get("from", "")[:_LONGEST_JID] or sender
        found = Invited(sender, bare(through), told.findtext(f"{{{_USER}}}password", ""), through)
    elif (direct := stanza.find(f"{{{_DIRECT}}}x")) is not None:
        found = Invited(bare(direct.get("jid", "")).lower(), sender, direct.get("password", ""), is_vouched=True)
    else:
        return None
    sane = 0 < len(found.room) <= _LONGEST_JID and len(found.password) <= _LONGEST_JID and "@" in found.room
    return found if sane and clean(found.room) == found.room else None


def declining(sender: str, room: str, to: str, reason: str) -> str:
    """Return what has a room tell who invited us through it why we do not come (XEP-0045 §7.8.3)."""
    told = f"<decline to={quoteattr(to)}><reason>{escape(clean(reason))}</reason></decline>"
    return f"<message from={quoteattr(sender)} to={quoteattr(room)}><x xmlns='{_USER}'>{told}</x></message>"


def can_vouch(room: str, jid: str) -> bool:
    """Say whether a room is on a service of a person's own server, if it is a service: its domain is below theirs.

    Not on their very domain: it has accounts. Nor below a domain under which anybody can have one.
    """
    service, home = room.rpartition("@")[2], jid.rpartition("@")[2]
    return service.endswith(f".{home}") and ("." not in home or site_of(service) == site_of(home))


def addressed(text: str, nick: str) -> str | None:
    """Return what was said to ``nick``, without their name; None if it was said to nobody, or somebody else."""
    rest = text.strip().removeprefix("@")
    if not rest.lower().startswith(nick.lower()):
        return None
    after = rest[len(nick) :]
    if after and after[0] not in _AFTER_NICK:
        return None
    return after.lstrip(_AFTER_NICK)


def quoted(nick: str) -> str:
    """Return a nick as an answer begins with it: in quotation marks if it could be another's nick and a command."""
    return f"“{nick}”" if any(char in nick for char in _AFTER_NICK) else nick


def named(attempt: int) -> str:
    """Return our name in a room, the next one if others have the first ones."""
    return NAME if attempt == 0 else f"{NAME}-{attempt + 1}"


def bookmark(room: str, nick: str) -> str:
    """Return the request that bookmarks a room for our account."""
    conference = f"<conference xmlns='{BOOKMARKS}' autojoin='true'><nick>{escape(nick)}</nick></conference>"
    options = {
        "FORM_TYPE": f"{_PUBSUB}#publish-options", "pubsub#persist_items": "true", "pubsub#max_items": "max",
        "pubsub#send_last_published_item": "never", "pubsub#access_model": "whitelist",
    }  # fmt: skip
    fields = "".join(f"<field var='{var}'><value>{value}</value></field>" for var, value in options.items())
    return (
        f"<pubsub xmlns='{_PUBSUB}'><publish node='{BOOKMARKS}'>"
        f"<item id={quoteattr(room)}>{conference}</item></publish>"
        f"<publish-options><x xmlns='jabber:x:data' type='submit'>{fields}</x></publish-options></pubsub>"
    )


def no_bookmark(room: str) -> str:
    """Return the request that takes a room's bookmark away."""
    return (
        f"<pubsub xmlns='{_PUBSUB}'><retract node='{BOOKMARKS}' notify='true'><item id={quoteattr(room)}/></retract>"
        "</pubsub>"
    )
