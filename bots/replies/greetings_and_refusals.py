"""Sentences about the conversation itself: greetings, invitations to rooms, access, rate limits and internal errors."""

from collections.abc import Sequence
from typing import Final

from bots.i18n.translator import Translator, gettext_noop
from service.feeds.parsing.html_text import one_line

WELCOME: Final = gettext_noop(
    "Hello! I'm Coronet. I keep an eye on feeds and web pages and message you when something new appears.\n"
    "Send me the address of a site or feed to subscribe to it, e.g. `subscribe example.org`.\n"
    "`help` shows what else I can do. Deutsch: `language de`, français: `language fr`, español: `language es`,\n"
    "italiano: `language it`, português: `language pt`, Nederlands: `language nl`, polski: `language pl`."
)
"""The greeting that each user gets once, before the first reply."""
ROOM_WELCOME: Final = gettext_noop(
    "Hello! I'm Coronet. I keep an eye on feeds and web pages and post here when something new appears.\n"
    "Talk to me by name, e.g. `{nick}: subscribe example.org`; `{nick}: help` shows what else I can do.\n"
    "The owners and admins of this room decide what I post; `{nick}: leave` sends me away."
)
"""The greeting that the bot sends once to each room; ``nick`` is the bot's nick in the room."""
WELCOME_BACK: Final = gettext_noop(
    "Welcome back! My messages hadn't reached you for 14 days, so I stopped sending them. A short recap of your "
    "subscriptions follows."
)
"""The greeting for a user who writes again after deliveries to this user were suspended."""
_BY_INVITATION_ONLY: Final = gettext_noop(
    "This bot is by invitation only. If you have an invitation code, send me `invite` followed by the code."
)
_LISTED_PEOPLE_ONLY: Final = gettext_noop("Only people whom the operator has listed may use this bot.")
SUSPENDED: Final = gettext_noop("You can't use this bot at the moment.")
"""The reply to a form that a suspended user opens; messages of suspended users get no reply."""
INTERNAL_ERROR: Final = gettext_noop(
    "Something went wrong on my side, and it has been logged. Please try again later, or try something else."
)
"""The reply to a command that failed because of a bug."""
SILENCE_NOTICE: Final = gettext_noop(
    "I still don't understand, so I'll be quiet until you send me a command. `help` lists them all."
)
"""The reply to the last of several consecutive messages that are not commands; after it, the bot is silent."""

_REASONS_NOT_TO_ENTER: Final = {
    "refused": gettext_noop(
        "{room} didn't let me in. If it is for members only or has a password, please ask its owner to let me in."
    ),
    "no group chat": gettext_noop(
        "I found no group chat at {room}. Please check the address. If the room is hidden, its owner has to make it "
        "visible."
    ),
    "too many rooms": gettext_noop("I can't join {room}: I'm in too many rooms already. Please invite me again later."),
    "not vouched for": gettext_noop(
        "This bot isn't open to everybody, and I can't verify who invited me to {room}. Please invite me directly, if "
        "your client can do that, or ask whoever runs this bot."
    ),
}

NICK_SEPARATORS: Final = ":,; \n\t"
"""Characters that separate the nick of the addressee from the rest of a message."""


def access_denied_text(who_may_use: str, contact_addresses: Sequence[str], translator: Translator) -> str:
    """Return the reply to people who may not use the bot: who may use it, and whom they can ask.

    ``who_may_use`` and ``contact_addresses`` are the settings of these names.
    """
    reason = _BY_INVITATION_ONLY if who_may_use == "invited" else _LISTED_PEOPLE_ONLY
    return "\n".join([translator.gettext(reason), contact_text(contact_addresses, translator)]).strip()


def contact_text(contact_addresses: Sequence[str], translator: Translator) -> str:
    """Return the sentence that tells people where to contact the operators, or "" if there are no addresses.

    ``contact_addresses`` are URIs, such as ``mailto:abuse@example.org``.
    """
    if not contact_addresses:
        return ""
    addresses = translator.format_list([uri.removeprefix("mailto:") for uri in contact_addresses])
    return translator.gettext(
        "Questions or complaints? Contact the people who run this service: {addresses}", addresses=addresses
    )


def declined_invitation_text(reason: str, room: str, translator: Translator) -> str:
    """Return the message that tells the inviter why the bot does not enter ``room``.

    ``reason`` is a key of ``_REASONS_NOT_TO_ENTER``.
    """
    return translator.gettext(_REASONS_NOT_TO_ENTER[reason], room=one_line(room, 300))


def too_many_commands_text(per_minute: int, translator: Translator) -> str:
    """Return the reply to the first command that exceeds the limit of ``per_minute`` commands per minute.

    Further commands that exceed the limit get no reply.
    """
    return translator.ngettext(
        "That's more than {count} command a minute. I'll ignore what you send in the next minute, then I'm back.",
        "That's more than {count} commands a minute. I'll ignore what you send in the next minute, then I'm back.",
        per_minute,
    )


def quote_nick(nick: str) -> str:
    """Return a nick as it is written at the beginning of a reply in a room.

    A nick that contains a separator is put in quotation marks.
    """
    return f"“{nick}”" if any(char in nick for char in NICK_SEPARATORS) else nick
