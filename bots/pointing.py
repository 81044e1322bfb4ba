"""Commands that point at a message of ours: replies to it (XEP-0461) and reactions (XEP-0444). Pure.

What a command needs and does not name, the message names: the channel it told of. If it told of several of the
person's channels, they are asked which one; if of none, but it came of something they watch for, that is meant.
"""

from typing import Final

from bots import commands
from bots.asking import Followed, Limits, MySubscriptions, ToldBy, WhatItTold
from bots.dialogue import Dialogue, converse
from bots.exchange import ForgottenMessage, NoSuchSubscription, Question, WhichOne
from bots.verbs import ALL, VERB_OF

SHORT: Final = {"stop": "unsubscribe #{}", "mute": "set #{} mute on", "unmute": "set #{} mute off"}
"""What people write under a message and nowhere else, or what means something else there."""

_ALONE: Final = ("unsubscribe", "show", "why", "pause", "resume")
_BEFORE: Final = ("set", "filter")

REACTIONS: Final = {
    **dict.fromkeys(("❌", "✖", "🗑", "🚫", "⛔", "🛑"), "unsubscribe"),
    **dict.fromkeys(("🔇", "🔕", "🤫"), "mute"),
    **dict.fromkeys(("⏸", "💤"), "pause"),
    **dict.fromkeys(("▶", "⏯"), "resume"),
    **dict.fromkeys(("❓", "❔"), "why"),
}
"""Emoji, without what only chooses their look, and the command each stands for."""


def reaction(emojis: tuple[str, ...]) -> str:
    """Return the command that the newest of these reactions stands for; "" if none does."""
    meant = [REACTIONS[plain] for emoji in emojis if (plain := emoji.rstrip("\ufe0f")) in REACTIONS]
    return meant[-1] if meant else ""


def pointed(text: str, message_id: str, asked: Question | None, limits: Limits) -> Dialogue:
    """Carry out what was written under a message of ours. Never raises a CoronetError."""
    line = _lacking(text)
    told: WhatItTold | None = (yield ToldBy(message_id)) if line else None
    if told is None:
        return (yield from converse(commands.parse(text), asked, limits))
    mine: tuple[Followed, ...] = yield MySubscriptions()
    meant = tuple(followed for followed in mine if followed.channel.id in told.channels)
    if len(meant) == 1:
        return (yield from converse(commands.parse(line.format(meant[0].number)), None, limits))
    if meant:
        return WhichOne(line, meant)
    if line.startswith("unsubscribe") and len(told.watches) == 1:
        return (yield from converse(commands.Unwatch(told.watches[0]), None, limits))
    return NoSuchSubscription()


def reacted(line: str, message_id: str, limits: Limits) -> Dialogue:
    """Carry out what a reaction to a message of ours stands for. Never raises a CoronetError."""
    if (yield ToldBy(message_id)) is None:
        return ForgottenMessage()
    return (yield from pointed(line, message_id, None, limits))


def _lacking(text: str) -> str:
    """Return the command that lacks a subscription, with ``{}`` in its place; "" if it lacks none."""
    verb, rest = (*text.strip().lstrip("/").split(maxsplit=1), "", "")[:2]
    plain = verb.lower().rstrip(":,!.")
    if not rest and plain in SHORT:
        return SHORT[plain]
    name = VERB_OF.get(plain, "")
    if name in _ALONE and not rest:
        return f"{name} #{{}}"
    if name in _BEFORE and rest and rest.split()[0].lower() not in ALL:
        command = commands.parse(f"{name} {rest}")
        if isinstance(command, commands.Set | commands.Filter) and command.target.everything:
            return f"{name} #{{}} {rest.replace('{', '{{').replace('}', '}}')}"
    return ""
