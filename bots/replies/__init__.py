"""Replies: what a dialogue returns and the text that says it, short and with the next useful step. Pure.

A module per topic, a class per reply (see :mod:`bots.replies.parts`). Texts are styled by XEP-0393.
"""

from bots.replies.parts import LONGEST_MESSAGE_BYTES, Reply, clip
from bots.voice import voice


def text(reply: Reply, language: str) -> str:
    """Return the message that says this; never empty, valid XML 1.0, at most 4 kB."""
    return clip(reply.text(voice(language)), LONGEST_MESSAGE_BYTES)


def others(reply: Reply, language: str) -> tuple[str, ...]:
    """Return the messages that follow a reply's text, each valid XML 1.0 and at most 4 kB."""
    return reply.others(voice(language))
