"""Recognition of commands to the bot among the messages in a room.

A message is a command if it begins with the bot's nick, or replies to a message of the bot. A reaction counts only if
an owner or admin of the room reacts to a message of the bot.
"""

import msgspec

from bots.replies.greetings_and_refusals import NICK_SEPARATORS
from bots.xmpp.events import MessageReceived


def recognize_command(message: MessageReceived, nick: str, own_id: str) -> MessageReceived | None:
    """Return the command in a message in a room; None if the message is not a command to the bot.

    A command begins with the bot's ``nick``, or replies to a message of the bot. The nick alone stands for the command
    `help`.

    If ``message`` replies or reacts to a message of the bot, ``own_id`` is the id that the bot gave its message;
    otherwise ``own_id`` is "". The ``reply_to_id`` of ``message`` is the id that the room gave the bot's message; the
    ``reply_to_id`` of the result is ``own_id``.
    """
    command = msgspec.structs.replace(message, reply_to_id=own_id)
    if message.is_reaction:
        return command if own_id and command.can_manage else None
    text = strip_nick(message.text, nick)
    if text is None:
        return command if own_id and message.text else None
    return msgspec.structs.replace(command, text=text or "help")


def strip_nick(text: str, nick: str) -> str | None:
    """Return the text after the nick at its beginning; None if the text does not begin with ``nick``."""
    rest = text.strip().removeprefix("@")
    if not rest.lower().startswith(nick.lower()):
        return None
    after = rest[len(nick) :]
    return None if after and after[0] not in NICK_SEPARATORS else after.lstrip(NICK_SEPARATORS)
