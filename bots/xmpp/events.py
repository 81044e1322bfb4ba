"""The events that an XMPP connection reports to the bot.

Events describe incoming stanzas without XML or slixmpp types. *Bare JID* and *full JID* are defined in RFC 6120 §1.4.
"""

import msgspec

from service.model import UserId


class RoomInvitation(msgspec.Struct, frozen=True):
    """An invitation to a group chat (XEP-0045 §7.8.2, XEP-0249)."""

    room: str
    """Bare JID of the room."""
    inviter: str
    """Bare JID of the inviter, or of the room if the room does not disclose the inviter."""
    password: str
    relayed_inviter: str = ""
    """JID of the inviter as the room states it (mediated invitation); "" if the inviter sent the invitation itself."""
    is_vouched: bool = False
    """Whether the inviter's own server confirms who the inviter is."""
    is_accepted: bool = False
    """Whether another bot has accepted the invitation and passed it to the bot that serves the room."""


class MessageReceived(msgspec.Struct, frozen=True):
    """A message to the bot, in a one-to-one chat or in a room.

    In a room, ``jid`` is the JID of the room and ``sender`` is the occupant's full JID. The message may also be one
    that the bot itself has sent to the room, and that the room sends back. In a one-to-one chat, the fields about rooms
    and occupants keep their default values.
    """

    jid: str
    """Bare JID of the sender, to which access and settings belong."""
    sender: str
    """Full JID of the sender, to which replies are sent."""
    id: str
    text: str
    thread: str
    wants_receipt: bool
    """Whether the client requests a delivery receipt (XEP-0184)."""
    language: str = ""
    """Language tag of the client (xml:lang), or ""."""
    reply_to_id: str = ""
    """Id of the message that this message replies or reacts to, or ""."""
    is_reaction: bool = False
    """Whether ``text`` is the command that a reaction (XEP-0444) stands for."""
    is_groupchat: bool = False
    """Whether all occupants of a room can read the message, and therefore also the reply."""
    can_manage: bool = True
    """Whether the sender may change the room's subscriptions."""
    dedup_key: str = ""
    """Key that is the same in each process that receives this message from the server; "" if only this process receives
    it."""
    occupant_id: str = ""
    """Id that the room assigned to the sender, independent of the nick (XEP-0421); the nick if the room assigns no such
    ids."""
    wants_marker: bool = False
    """Whether the client requests a "displayed" marker (XEP-0333)."""
    sent_s: float = 0.0
    """When a server stored the message for later delivery (Unix s, XEP-0203); 0 for a message delivered at once."""
    invitation: RoomInvitation | None = None
    """The invitation that the message contains, or None. If there is one, ``text`` is empty, and ``jid`` is the user or
    room that sent it."""
    is_private: bool = False
    """Whether this is a private message from an occupant of a room, sent through the room (XEP-0045 §7.5)."""
    occupant_user_id: UserId = ""
    """User id of the sender in a room that shows JIDs, else ""."""
    room_id: str = ""
    """Id that the room assigned to the message (XEP-0359), or ""."""
    bot_nick: str = ""
    """The bot's nick in the room, if the message is a command that all occupants can read; else ""."""
    sealed_text: str = ""
    """While the message is stored, its encrypted text if that contains a credential, which ``text`` then lacks; else
    ""."""

    @property
    def resource(self) -> str:
        """The resource of the sender; in a room, this is the occupant's nick."""
        return self.sender.partition("/")[2]


class OccupantPresence(msgspec.Struct, frozen=True):
    """A presence that a room sends when an occupant, possibly the bot, joins, leaves or changes (XEP-0045 §7)."""

    room: str
    nick: str
    affiliation: str
    is_present: bool
    statuses: frozenset[str]
    """Status codes (XEP-0045 §15.6)."""
    is_destroyed: bool
    jid: str = ""
    """Bare JID of the occupant, "" if the room hides it."""


class RoomJoinRefused(msgspec.Struct, frozen=True):
    """A room's refusal to admit the bot; ``condition`` is the name of the error (RFC 6120 §8.3.3)."""

    room: str
    condition: str


class AdhocCommandReceived(msgspec.Struct, frozen=True):
    """A request from a client that starts or continues an ad-hoc command (XEP-0050)."""

    jid: str
    """Bare JID of the sender."""
    sender: str
    """Full JID of the sender."""
    id: str
    """Id of the IQ stanza, which the response repeats."""
    node: str
    action: str
    session: str
    """Id of the session of the command; "" if the request starts a new session."""
    values: dict[str, tuple[str, ...]]
    """The submitted values of the form, by field name."""
    language: str
    """Language tag of the client (xml:lang), or ""."""
    receiver: str = ""
    """Full JID of the bot session that received the request and must respond to it; "" if it is this session."""


class Receipt(msgspec.Struct, frozen=True):
    """A delivery receipt (XEP-0184) for a message from the bot; if ``is_marker`` is true, a chat marker (XEP-0333)."""

    jid: str
    message_id: str
    is_marker: bool = False


class MessageBounced(msgspec.Struct, frozen=True):
    """An error response to a message from the bot; ``condition`` is the name of the error (RFC 6120 §8.3.3).

    ``resource`` is the resource of the JID that returned the message. In a room, this is the nick of an occupant.
    """

    jid: str
    message_id: str
    condition: str
    resource: str = ""


class UserPresence(msgspec.Struct, frozen=True):
    """A change of a user's presence, or another sign that the user is online.

    ``is_online`` is true if at least one client is online, and false if the last client has just gone offline.
    """

    jid: str
    is_online: bool = True
    is_free: bool | None = None
    """Whether at least one client is neither away nor busy; None if the event only shows that the user is online."""
    is_new_client: bool = False
    """Whether the client that caused the event was not known to be online before."""


class PresenceChanged(msgspec.Struct, frozen=True):
    """A change of the presence of one client, or of all clients of ``jid`` if ``resource`` is ""."""

    jid: str
    resource: str
    is_online: bool
    is_free: bool
    """Whether the client is online and neither away nor busy."""


class SessionStarted(msgspec.Struct, frozen=True):
    """The start of a new session that did not resume the previous one.

    Stanzas of the previous session that the server did not acknowledge may be lost.
    """


Event = (
    MessageReceived
    | AdhocCommandReceived
    | OccupantPresence
    | RoomJoinRefused
    | Receipt
    | MessageBounced
    | PresenceChanged
    | SessionStarted
)
