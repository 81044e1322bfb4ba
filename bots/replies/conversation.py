"""Replies about the conversation itself: greetings, rooms, access, rate limits, unrecognized input and errors."""

from typing import Final

from bots.i18n.translator import Translator, gettext_noop
from bots.replies.base import FailureReply, QuestionReply, Reply
from bots.replies.errors import error_text
from bots.replies.help import MissingArgument
from bots.replies.search import NoMoreResults
from service.errors import CoronetError
from service.feeds.parsing.html_text import one_line


def welcome_text(translator: Translator) -> str:
    """Return the greeting that each user gets once, before the first reply."""
    return translator.gettext(
        "Hello! I'm Coronet. I keep an eye on feeds and web pages and message you when something new appears.\n"
        "Send me the address of a site or feed to subscribe to it, e.g. `subscribe example.org`.\n"
        "`help` shows what else I can do. Deutsch: `language de`, français: `language fr`, español: `language es`."
    )


def room_welcome_text(nick: str, translator: Translator) -> str:
    """Return the greeting that the bot sends once to a room; ``nick`` is the bot's nick in the room."""
    return translator.gettext(
        "Hello! I'm Coronet. I keep an eye on feeds and web pages and post here when something new appears.\n"
        "Talk to me by name, e.g. `{nick}: subscribe example.org`; `{nick}: help` shows what else I can do.\n"
        "The owners and admins of this room decide what I post; `{nick}: leave` sends me away.",
        nick=nick,
    )


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
        "I'm not open to everyone, and I only know from {room} who invited me. Please invite me directly, if your "
        "client can do that, or ask whoever runs this bot."
    ),
}


def declined_invitation_text(reason: str, room: str, translator: Translator) -> str:
    """Return the message to an inviter that states why the bot does not enter ``room``.

    ``reason`` is a key of ``_REASONS_NOT_TO_ENTER``.
    """
    return translator.gettext(_REASONS_NOT_TO_ENTER[reason], room=one_line(room, 300))


def welcome_back_text(translator: Translator) -> str:
    """Return the greeting for a user who writes again after deliveries to this user were suspended."""
    return translator.gettext(
        "Welcome back! My messages hadn't reached you for 14 days, so I stopped sending them. A short recap of your "
        "subscriptions follows."
    )


def internal_error_text(translator: Translator) -> str:
    """Return the reply to a command that failed because of a bug."""
    return translator.gettext(
        "Something went wrong on my side, and it has been logged. Please try again later, or try something else."
    )


NICK_SEPARATORS: Final = ":,; \n\t"
"""Characters that separate the nick of the addressee from the rest of a message."""


class WelcomeReply(Reply, frozen=True):
    """The reply to a greeting; it explains what the bot does."""

    def _text(self, translator: Translator) -> str:
        return welcome_text(translator)


class ManagersOnly(Reply, frozen=True):
    """Refuses a command that only the owners and admins of the room may execute."""

    sentence = gettext_noop("Only owners and admins of this room can change its subscriptions. `list` shows them.")


class TooManyCommands(FailureReply, frozen=True):
    """Says that the user has sent more than ``limit`` commands within a minute.

    Only the first command beyond the limit gets this reply; further commands get none.
    """

    limit: int

    def _text(self, translator: Translator) -> str:
        return translator.ngettext(
            "That's more than {count} command a minute. I'll ignore what you send in the next minute, then I'm back.",
            "That's more than {count} commands a minute. I'll ignore what you send in the next minute, then I'm back.",
            self.limit,
        )


class AccessDenied(FailureReply, frozen=True):
    """Says that the user may not use the bot; ``refused`` tells whether the user sent an invalid invitation code."""

    refused: bool = False

    def _text(self, translator: Translator) -> str:
        if self.refused:
            return translator.gettext(
                "That invitation code is wrong or no longer valid. Please ask whoever runs this bot for a new one."
            )
        return translator.gettext("I'm not open to everyone. If you have an invitation, send me `invite` and its code.")


class InvitationCodeMissing(FailureReply, frozen=True):
    """Says that the command `invite` lacks the invitation code."""

    sentence = gettext_noop("Send `invite` followed by your code.")


class InvitationAccepted(Reply, frozen=True):
    """Says that the user's invitation code was accepted, so that the user may use the bot."""

    sentence = gettext_noop("Welcome! Send me the address of a site or feed to subscribe to it, or `help`.")


class ConfirmErasure(QuestionReply, frozen=True):
    """Asks whether to delete all data of the user."""

    sentence = gettext_noop(
        "Delete everything I know about you? Your subscriptions, saved searches, settings and unsent messages will "
        "be gone for good. If you might want your subscriptions again, send `export` first. Reply `yes` or `no`."
    )


class ErasureReply(Reply, frozen=True):
    """Says that all data of the user is deleted, except restrictions that admins have set.

    ``kept_days`` is the number of days for which the restrictions are kept; 0 means that there are none.
    """

    kept_days: int = 0

    def _text(self, translator: Translator) -> str:
        if self.kept_days:
            return translator.gettext(
                "I've deleted everything about you, except the limits that an admin set for you: I keep those for "
                "{days} days. Goodbye! If you ever write to me again, we'll start afresh.",
                days=self.kept_days,
            )
        return translator.gettext(
            "I've deleted everything about you. Goodbye! If you ever write to me again, we'll start afresh."
        )


class NothingChanged(Reply, frozen=True):
    """Says that nothing was changed, because the user answered the question with no, or canceled it."""

    sentence = gettext_noop("All right, nothing was changed.")


class SilenceNotice(Reply, frozen=True):
    """Says that the bot is silent until the next command, because several messages in a row were not commands."""

    sentence = gettext_noop(
        "I still don't understand, so I'll be quiet until you send me a command. `help` lists them all."
    )


class NothingToCancel(Reply, frozen=True):
    """Says that there is nothing to cancel, because no question is pending."""

    sentence = gettext_noop(
        "There's nothing to cancel. `unsubscribe #3` ends one subscription, `unsubscribe all` ends them all, and "
        "`pause` pauses everything until you `resume`."
    )


class NoPendingQuestion(Reply, frozen=True):
    """Says that the user's answer has no effect, because no question is pending."""

    sentence = gettext_noop("There's nothing to confirm right now. `help` shows what I can do.")


class CommandSuggestion(QuestionReply, frozen=True):
    """Says that the input is not a command, and asks whether the user meant ``command``, which resembles the input."""

    command: str

    def _text(self, translator: Translator) -> str:
        return translator.gettext(
            "I don't understand that. Did you mean `{command}`? Reply `yes`, or try again.",
            command=one_line(self.command, 200),
        )


class UnrecognizedInput(FailureReply, frozen=True):
    """Says that the input is not a command; the input does not resemble one either."""

    sentence = gettext_noop("I don't understand that. Send me a URL to subscribe to it, or `help`.")


class RequestFailed(FailureReply, frozen=True):
    """Says that a command failed with ``error``; ``subject`` is the URL that the command was about, or ""."""

    error: CoronetError
    subject: str

    def _text(self, translator: Translator) -> str:
        return error_text(self.error, one_line(self.subject, 200), translator)


NOT_UNDERSTOOD: Final = (
    UnrecognizedInput, CommandSuggestion, MissingArgument, WelcomeReply, NoPendingQuestion, NothingToCancel,
    NoMoreResults, InvitationCodeMissing,
)  # fmt: skip
"""Replies to messages that are not commands, or not complete ones."""
NOT_EXECUTED: Final = (*NOT_UNDERSTOOD, ManagersOnly, AccessDenied)
"""Replies that count as misunderstandings: those above, and to commands of people without permission.

Otherwise two bots could answer each other for ever.
"""


def quote_nick(nick: str) -> str:
    """Return a nick as it is written at the beginning of a reply in a room.

    A nick that contains a separator is put in quotation marks.
    """
    return f"“{nick}”" if any(char in nick for char in NICK_SEPARATORS) else nick
