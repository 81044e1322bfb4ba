"""Recognises which messages in a room are commands to the bot.

A message is a command if it begins with the bot's nick, or replies to a message of the bot. A reaction to a message of
the bot is a command if it comes from an owner or admin of the room.
"""

import msgspec

from bots.replies.greetings_and_refusals import NICK_SEPARATORS
from bots.xmpp.events import MessageReceived


def recognize_command(message: MessageReceived, nick: str, own_id: str) -> MessageReceived | None:
    """Return the command in a message in a room, or None if the message is not a command to the bot.

    - ``nick``: the bot's nick in the room.
    - ``own_id``: the id of the bot's message to which ``message`` replies or reacts, as assigned by the bot; "" if
      there is no such message.

    A command begins with the bot's nick, or replies to a message of the bot. The nick alone stands for the command
    `help`. A reaction to a message of the bot is a command if its sender is an owner or admin of the room.

    The result is a copy of ``message`` without the nick in the text. Its ``reply_to_id`` is ``own_id``, and its
    ``bot_nick`` is ``nick``.
    """
    command = msgspec.structs.replace(message, reply_to_id=own_id, bot_nick=nick)
    if message.is_reaction:
        return command if own_id and command.can_manage else None
    text = strip_nick(message.text, nick)
    if text is None:
        return command if own_id and message.text else None
    return msgspec.structs.replace(command, text=text or "help")


def strip_nick(text: str, nick: str) -> str | None:
    """Return the text without ``nick`` at its beginning, or None if the text does not begin with ``nick``."""
    rest = text.strip().removeprefix("@")
    if not rest.lower().startswith(nick.lower()):
        return None
    after = rest[len(nick) :]
    return None if after and after[0] not in NICK_SEPARATORS else after.lstrip(NICK_SEPARATORS)
