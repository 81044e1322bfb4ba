"""What is said about the talk itself: greetings, rooms, not understood, too fast, nothing to answer, failed."""

from typing import Final

from bots.i18n.translator import Translator, gettext_noop
from bots.replies.base import FailureReply, QuestionReply, Reply
from bots.replies.errors import sentence
from bots.replies.help import MissingArgument
from bots.replies.search import NoMoreResults
from service.errors import CoronetError
from service.feeds.parsing.html_text import one_line


def welcome(translator: Translator) -> str:
    """Return what is said once, at first contact."""
    return translator.gettext(
        "Hello! I'm Coronet. I keep an eye on feeds and web pages and message you when something new appears.\n"
        "Send me the address of a site or feed to subscribe to it, e.g. `subscribe example.org`.\n"
        "`help` shows what else I can do. Deutsch: `language de`, français: `language fr`, español: `language es`."
    )


def in_a_room(nick: str, translator: Translator) -> str:
    """Return what is said once to a room that we were invited to."""
    return translator.gettext(
        "Hello! I'm Coronet. I keep an eye on feeds and web pages and post here when something new appears.\n"
        "Talk to me by name, e.g. `{nick}: subscribe example.org`; `{nick}: help` shows what else I can do.\n"
        "The owners and admins of this room decide what I post; `{nick}: leave` sends me away.",
        nick=nick,
    )


_EXCUSES: Final = {
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


def excuse(reason: str, room: str, translator: Translator) -> str:
    """Return what is said to who invited us, for one of these reasons for which we do not come."""
    return translator.gettext(_EXCUSES[reason], room=one_line(room, 300))


def welcome_back(translator: Translator) -> str:
    """Return what is said to somebody whom nothing reached for long, when they write again."""
    return translator.gettext(
        "Welcome back! My messages hadn't reached you for 14 days, so I stopped sending them. A short recap of your "
        "subscriptions follows."
    )


def broken(translator: Translator) -> str:
    """Return what is said where a bug kept a command from being carried out."""
    return translator.gettext(
        "Something went wrong on my side, and it has been logged. Please try again later, or try something else."
    )


AFTER_NICK: Final = ":,; \n\t"
"""Separates the nick of the person addressed from the rest."""


class WelcomeReply(Reply, frozen=True):
    """Who we are."""

    def _text(self, translator: Translator) -> str:
        return welcome(translator)


class ManagersOnly(Reply, frozen=True):
    """In a room, only its owners and admins may do that."""

    sentence = gettext_noop("Only owners and admins of this room can change its subscriptions. `list` shows them.")


class TooManyCommands(FailureReply, frozen=True):
    """No more than ``limit`` commands a minute; said once, then silence."""

    limit: int

    def _text(self, translator: Translator) -> str:
        return translator.ngettext(
            "That's more than {count} command a minute. I'll ignore what you send in the next minute, then I'm back.",
            "That's more than {count} commands a minute. I'll ignore what you send in the next minute, then I'm back.",
            self.limit,
        )


class AccessDenied(FailureReply, frozen=True):
    """The person may not use the bot; ``refused``: nor with the invitation that they sent."""

    refused: bool = False

    def _text(self, translator: Translator) -> str:
        if self.refused:
            return translator.gettext(
                "That invitation code is wrong or no longer valid. Please ask whoever runs this bot for a new one."
            )
        return translator.gettext("I'm not open to everyone. If you have an invitation, send me `invite` and its code.")


class InvitationAccepted(Reply, frozen=True):
    """The person may use the bot."""

    sentence = gettext_noop("Welcome! Send me the address of a site or feed to subscribe to it, or `help`.")


class ConfirmErasure(QuestionReply, frozen=True):
    """Asks whether to delete everything about the person."""

    sentence = gettext_noop(
        "Really delete everything about you? Your subscriptions, saved searches, settings and unsent messages will "
        "be gone for good. If you may want your subscriptions again, send `export` first. Reply `yes` or `no`."
    )


class ErasureReply(Reply, frozen=True):
    """Everything about the person is deleted, but what admins have set for them: that is kept for some days."""

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
    """A question is withdrawn, nothing was done."""

    sentence = gettext_noop("All right, nothing was changed.")


class SilenceNotice(Reply, frozen=True):
    """Not understood several times in a row: nothing more is said before something is."""

    sentence = gettext_noop(
        "I still don't understand, so I'll be quiet until you send me a command. `help` lists them all."
    )


class NothingToCancel(Reply, frozen=True):
    """Somebody wants an end of something, but not of a question of ours."""

    sentence = gettext_noop(
        "There's nothing to cancel. `unsubscribe #3` ends one subscription, `unsubscribe all` ends them all, and "
        "`pause` pauses everything until you `resume`."
    )


class NoPendingQuestion(Reply, frozen=True):
    """An answer without a question."""

    sentence = gettext_noop("I haven't asked you anything. `help` shows what I can do.")


class CommandSuggestion(QuestionReply, frozen=True):
    """Asks whether ``command`` was meant: what was written is not understood."""

    command: str

    def _text(self, translator: Translator) -> str:
        return translator.gettext(
            "I don't understand that. Did you mean `{command}`? Reply `yes`, or try again.",
            command=one_line(self.command, 200),
        )


class UnrecognizedInput(FailureReply, frozen=True):
    """It resembles nothing we know."""

    sentence = gettext_noop("I don't understand that. Send me a URL to subscribe to it, or `help`.")


class RequestFailed(FailureReply, frozen=True):
    """It could not be done; ``subject`` is what it was about (a URL), or empty."""

    error: CoronetError
    subject: str

    def _text(self, translator: Translator) -> str:
        return sentence(self.error, one_line(self.subject, 200), translator)


NOT_UNDERSTOOD: Final = (
    UnrecognizedInput, CommandSuggestion, MissingArgument, WelcomeReply, NoPendingQuestion, NothingToCancel,
    NoMoreResults,
)  # fmt: skip
"""Replies to messages that are not commands, or not complete ones."""
NO_COMMAND: Final = (*NOT_UNDERSTOOD, ManagersOnly, AccessDenied)
"""These, and to commands of people who may not give them: software, too, could say any of it again and again."""


def quoted(nick: str) -> str:
    """Return a nick as an answer begins with it: in quotation marks if it could be another's nick and a command."""
    return f"“{nick}”" if any(char in nick for char in AFTER_NICK) else nick
