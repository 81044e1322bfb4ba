"""Protection against endless loops between the bot and another program that replies to everything.

After several consecutive messages that are not commands, or are not permitted, the bot stops replying until the
sender's next command.
"""

from typing import Final

from cachetools import TTLCache

from bots.dialogue.reply import CommandOutcome, Reply
from bots.i18n.translator import Translator
from bots.replies.greetings_and_refusals import SILENCE_NOTICE
from service.clock import Clock

_MAX_SENDERS: Final = 10_000

MAX_MISUNDERSTOOD: Final = 5
"""After this number of consecutive messages that are not commands, the bot is silent until the sender's next command.
Without this limit, two bots that reply to everything would never stop."""
MISUNDERSTOOD_LIFETIME_S: Final = 600.0
"""Seconds without further messages of this kind, after which counting starts again from 0."""


class LoopProtection:
    """Counts, for each sender, the consecutive messages that were not understood or not permitted."""

    def __init__(self, clock: Clock) -> None:
        """Create an instance that has not counted any messages yet."""
        self._misunderstood: TTLCache[tuple[str, str], int]
        """Maps each pair (session, occupant of a room) to the number of consecutive messages that were not commands."""
        self._misunderstood = TTLCache(_MAX_SENDERS, MISUNDERSTOOD_LIFETIME_S, clock.monotonic_s)

    def filter_reply(self, session: str, occupant_id: str, reply: Reply, translator: Translator) -> Reply:
        """Count consecutive messages that were not understood or not permitted; return the reply to send.

        ``reply`` is the reply to the latest message. The result depends on the number of these messages:

        - fewer than ``MAX_MISUNDERSTOOD``: ``reply`` itself;
        - ``MAX_MISUNDERSTOOD``: a notice that the bot stops replying, if the latest message was not understood;
          ``reply`` if it was not permitted;
        - more than ``MAX_MISUNDERSTOOD``: an empty reply.

        After any other message, ``reply`` is returned and counting starts again from 0.

        The sender is identified by ``session``, and in a room also by ``occupant_id``, which is "" outside rooms.
        """
        sender = (session, occupant_id)
        if reply.outcome not in (CommandOutcome.MISUNDERSTOOD, CommandOutcome.DENIED):
            self._misunderstood.pop(sender, None)
            return reply
        count: int = self._misunderstood.get(sender, 0) + 1
        self._misunderstood[sender] = count
        if count > MAX_MISUNDERSTOOD:
            return Reply("")
        if count == MAX_MISUNDERSTOOD and reply.outcome is CommandOutcome.MISUNDERSTOOD:
            return Reply(translator.gettext(SILENCE_NOTICE))
        return reply
