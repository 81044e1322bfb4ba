"""What is said about the talk itself: not understood, too fast, nothing to answer, failed."""

from bots import exchange as say
from bots.failures import sentence
from bots.voice import Voice
from service.feeds.text import one_line


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


def kept_out(room: str, voice: Voice) -> str:
    """Say to who invited us that a room does not let us in."""
    return voice.say(
        "I was not let into {room}. If only members may enter it, or with a password, its owner has to let me in.",
        room=one_line(room, 300),
    )


def no_group_chat(room: str, voice: Voice) -> str:
    """Say to who invited us that an address is not a group chat's."""
    return voice.say(
        "I found no group chat at {room}. Please check the address. If the room is hidden, its owner has to show it.",
        room=one_line(room, 300),
    )


def too_many_rooms(room: str, voice: Voice) -> str:
    """Say to who invited us that we are in as many rooms as we can be."""
    return voice.say(
        "I cannot come to {room}: I am in too many rooms already. Please invite me again when I have left some.",
        room=one_line(room, 300),
    )


def who_is_it(room: str, voice: Voice) -> str:
    """Say to whoever had a room invite us that we cannot tell who it is."""
    return voice.say(
        "I am not here for everybody, and only {room} says who invites me there. "
        "Invite me directly, if your client can do that, or ask whoever runs me.",
        room=one_line(room, 300),
    )


def only_managers(_reply: say.OnlyManagers, voice: Voice) -> str:
    """Say who may change what a room is told."""
    return voice.say("Only owners and admins of this room can change what it is told. `list` shows what that is.")


def welcome_back(voice: Voice) -> str:
    """Return what is said to somebody whom nothing reached for long, when they write again."""
    return voice.say(
        "Welcome back! For 14 days nothing that I sent reached you, so I stopped. "
        "What your subscriptions had meanwhile follows in brief."
    )


def broken(voice: Voice) -> str:
    """Return what is said where a bug kept a command from being carried out."""
    return voice.say("Something went wrong on my side. It is logged; please try something else, or try again later.")


def too_fast(reply: say.TooFast, voice: Voice) -> str:
    """Say how many commands there may be, once."""
    return voice.many(
        "That is more than {count} command a minute. "
        "What you send in the next minute is not carried out; then I read on.",
        "That is more than {count} commands a minute. "
        "What you send in the next minute is not carried out; then I read on.",
        reply.limit,
    )


def not_admitted(reply: say.NotAdmitted, voice: Voice) -> str:
    """Say that the bot is not for everybody."""
    if reply.refused:
        return voice.say("That invitation is not good, or not any more. Ask whoever runs me for another one.")
    return voice.say("I am not here for everybody. If you have an invitation, send me `invite` and its code.")


def admitted(_reply: say.Admitted, voice: Voice) -> str:
    """Say that somebody is in."""
    return voice.say("You are welcome here. Send me the address of a site or feed to subscribe to it, or `help`.")


def really_forget(_reply: say.ReallyForget, voice: Voice) -> str:
    """Ask whether to delete everything."""
    return voice.say(
        "Really forget you? Your subscriptions, watches and settings go, and what is still to be told; nobody can "
        "bring them back. `export` first, if you may want them again. Answer `yes` or `no`."
    )


def forgotten(reply: say.Forgotten, voice: Voice) -> str:
    """Say farewell."""
    if reply.kept_days:
        return voice.say(
            "I have forgotten everything about you but the limits that an admin has set for you. Those I keep for "
            "{days} days. Farewell! Whenever you write to me again, we begin anew.",
            days=reply.kept_days,
        )
    return voice.say("I have forgotten everything about you. Farewell! Whenever you write to me again, we begin anew.")


def let_be(_reply: say.LetBe, voice: Voice) -> str:
    """Say that a question is withdrawn."""
    return voice.say("All right, nothing was changed.")


def greeted(_reply: say.Greeted, voice: Voice) -> str:
    """Greet back."""
    return welcome(voice)


def keeps_quiet(_reply: say.KeepsQuiet, voice: Voice) -> str:
    """Say that only commands are answered from now on."""
    return voice.say("I still do not understand, so I will be quiet until you send me a command. `help` lists them.")


def nothing_to_cancel(_reply: say.NothingToCancel, voice: Voice) -> str:
    """Say how to end what can be ended."""
    return voice.say(
        "I have not asked anything. `unsubscribe #3` stops one subscription, `unsubscribe all` every one, and `pause` "
        "everything until you `resume`."
    )


def nothing_asked(_reply: say.NothingAsked, voice: Voice) -> str:
    """Say that there was no question."""
    return voice.say("I have not asked anything. `help` shows what I understand.")


def did_you_mean(reply: say.DidYouMean, voice: Voice) -> str:
    """Ask whether something else was meant."""
    return voice.say(
        "I do not understand that. Did you mean `{command}`? Answer `yes`, or try again.",
        command=one_line(reply.command, 200),
    )


def not_understood(_reply: say.NotUnderstood, voice: Voice) -> str:
    """Say what to do where nothing is near."""
    return voice.say("I do not understand that. Send me a URL to subscribe to it, or `help`.")


def failed(reply: say.Failed, voice: Voice) -> str:
    """Say what went wrong, and what to do."""
    return sentence(reply.error, one_line(reply.subject, 200), voice)
