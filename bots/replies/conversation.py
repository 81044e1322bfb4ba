"""What is said about the talk itself: greetings, rooms, not understood, too fast, nothing to answer, failed."""

from typing import Final

from bots.i18n.translator import Voice, marked
from bots.replies.base import Question, Refusal, Reply
from bots.replies.errors import sentence
from bots.replies.help import Incomplete
from bots.replies.search import NothingMore
from service.errors import CoronetError
from service.feeds.parsing.html_text import one_line


def welcome(voice: Voice) -> str:
    """Return what is said once, at first contact."""
    return voice.say(
        "Hello! I am Coronet: I watch feeds and web pages and tell you here when something new appears.\n"
        "Send me the address of a site or feed to subscribe to it, e.g. `subscribe example.org`.\n"
        "`help` shows everything I understand. Deutsch: `language de`, français: `language fr`, español: `language es`."
    )


def in_a_room(nick: str, voice: Voice) -> str:
    """Return what is said once to a room that we were invited to."""
    return voice.say(
        "Hello! I am Coronet: I watch feeds and web pages and tell you here when something new appears.\n"
        "Talk to me by my name, e.g. `{nick}: subscribe example.org`; `{nick}: help` shows everything I understand.\n"
        "What this room is told is up to its owners and admins; `{nick}: leave` sends me away.",
        nick=nick,
    )


_EXCUSES: Final = {
    "refused": marked(
        "I was not let into {room}. If only members may enter it, or with a password, its owner has to let me in."
    ),
    "no group chat": marked(
        "I found no group chat at {room}. Please check the address. If the room is hidden, its owner has to show it."
    ),
    "too many rooms": marked(
        "I cannot come to {room}: I am in too many rooms already. Please invite me again when I have left some."
    ),
    "not vouched for": marked(
        "I am not here for everybody, and only {room} says who invites me there. "
        "Invite me directly, if your client can do that, or ask whoever runs me."
    ),
}


def excuse(reason: str, room: str, voice: Voice) -> str:
    """Return what is said to who invited us, for one of these reasons for which we do not come."""
    return voice.say(_EXCUSES[reason], room=one_line(room, 300))


def welcome_back(voice: Voice) -> str:
    """Return what is said to somebody whom nothing reached for long, when they write again."""
    return voice.say(
        "Welcome back! For 14 days nothing that I sent reached you, so I stopped. "
        "What your subscriptions had meanwhile follows in brief."
    )


def broken(voice: Voice) -> str:
    """Return what is said where a bug kept a command from being carried out."""
    return voice.say("Something went wrong on my side. It is logged; please try something else, or try again later.")


AFTER_NICK: Final = ":,; \n\t"
"""Separates the nick of the person addressed from the rest."""


class Greeted(Reply, frozen=True):
    """Who we are."""

    def _text(self, voice: Voice) -> str:
        return welcome(voice)


class OnlyManagers(Reply, frozen=True):
    """In a room, only its owners and admins may do that."""

    sentence = marked("Only owners and admins of this room can change what it is told. `list` shows what that is.")


class TooFast(Refusal, frozen=True):
    """No more than ``limit`` commands a minute; said once, then silence."""

    limit: int

    def _text(self, voice: Voice) -> str:
        return voice.many(
            "That is more than {count} command a minute. "
            "What you send in the next minute is not carried out; then I read on.",
            "That is more than {count} commands a minute. "
            "What you send in the next minute is not carried out; then I read on.",
            self.limit,
        )


class NotAdmitted(Refusal, frozen=True):
    """The person may not use the bot; ``refused``: nor with the invitation that they sent."""

    refused: bool = False

    def _text(self, voice: Voice) -> str:
        if self.refused:
            return voice.say("That invitation is not good, or not any more. Ask whoever runs me for another one.")
        return voice.say("I am not here for everybody. If you have an invitation, send me `invite` and its code.")


class Admitted(Reply, frozen=True):
    """The person may use the bot."""

    sentence = marked("You are welcome here. Send me the address of a site or feed to subscribe to it, or `help`.")


class ReallyForget(Question, frozen=True):
    """Asks whether to delete everything about the person."""

    sentence = marked(
        "Really forget you? Your subscriptions, watches and settings go, and what is still to be told; nobody can "
        "bring them back. `export` first, if you may want them again. Answer `yes` or `no`."
    )


class Forgotten(Reply, frozen=True):
    """Everything about the person is deleted, but what admins have set for them: that is kept for some days."""

    kept_days: int = 0

    def _text(self, voice: Voice) -> str:
        if self.kept_days:
            return voice.say(
                "I have forgotten everything about you but the limits that an admin has set for you. Those I keep for "
                "{days} days. Farewell! Whenever you write to me again, we begin anew.",
                days=self.kept_days,
            )
        return voice.say(
            "I have forgotten everything about you. Farewell! Whenever you write to me again, we begin anew."
        )


class LetBe(Reply, frozen=True):
    """A question is withdrawn, nothing was done."""

    sentence = marked("All right, nothing was changed.")


class KeepsQuiet(Reply, frozen=True):
    """Not understood several times in a row: nothing more is said before something is."""

    sentence = marked("I still do not understand, so I will be quiet until you send me a command. `help` lists them.")


class NothingToCancel(Reply, frozen=True):
    """Somebody wants an end of something, but not of a question of ours."""

    sentence = marked(
        "I have not asked anything. `unsubscribe #3` stops one subscription, `unsubscribe all` every one, and `pause` "
        "everything until you `resume`."
    )


class NothingAsked(Reply, frozen=True):
    """An answer without a question."""

    sentence = marked("I have not asked anything. `help` shows what I understand.")


class DidYouMean(Question, frozen=True):
    """Asks whether ``command`` was meant: what was written is not understood."""

    command: str

    def _text(self, voice: Voice) -> str:
        return voice.say(
            "I do not understand that. Did you mean `{command}`? Answer `yes`, or try again.",
            command=one_line(self.command, 200),
        )


class NotUnderstood(Refusal, frozen=True):
    """It resembles nothing we know."""

    sentence = marked("I do not understand that. Send me a URL to subscribe to it, or `help`.")


class Failed(Refusal, frozen=True):
    """It could not be done; ``subject`` is what it was about (a URL), or empty."""

    error: CoronetError
    subject: str

    def _text(self, voice: Voice) -> str:
        return sentence(self.error, one_line(self.subject, 200), voice)


NOT_UNDERSTOOD: Final = (
    NotUnderstood, DidYouMean, Incomplete, Greeted, NothingAsked, NothingToCancel, NothingMore,
)  # fmt: skip
"""Replies to what is no command that can be carried out."""
NO_COMMAND: Final = (*NOT_UNDERSTOOD, OnlyManagers, NotAdmitted)
"""These, and to commands of people who may not give them: software, too, could say any of it again and again."""


def quoted(nick: str) -> str:
    """Return a nick as an answer begins with it: in quotation marks if it could be another's nick and a command."""
    return f"“{nick}”" if any(char in nick for char in AFTER_NICK) else nick
