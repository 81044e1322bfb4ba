"""Protection against endless loops between the bot and another program that replies to everything.

After several messages in a row that are not commands, or are not permitted, the bot is silent until the sender's next
command.
"""

from typing import Final

from cachetools import TTLCache

from bots.dialogue.reply import CommandOutcome, Reply
from bots.i18n.translator import Translator
from bots.replies.greetings_and_refusals import SILENCE_NOTICE
from service.clock import Clock

_MAX_SENDERS: Final = 10_000

MAX_MISUNDERSTOOD: Final = 5
"""Number of messages in a row that are not commands, after which the bot is silent until the sender's next command.
Without this limit, two bots that reply to everything would never stop."""
MISUNDERSTOOD_LIFETIME_S: Final = 600.0
"""The count of messages that are not commands starts again when none arrives for this many seconds."""


class LoopProtection:
    """The numbers of messages in a row that were not understood, by sender."""

    def __init__(self, clock: Clock) -> None:
        """Create a protection that has counted no messages."""
        self._misunderstood: TTLCache[tuple[str, str], int]
        """By session and occupant of a room, the number of messages in a row that were not commands."""
        self._misunderstood = TTLCache(_MAX_SENDERS, MISUNDERSTOOD_LIFETIME_S, clock.monotonic_s)

    def filter_reply(self, session: str, occupant_id: str, reply: Reply, translator: Translator) -> Reply:
        """Count consecutive messages that were not understood or not permitted; return the reply that the sender gets.

        After too many of them, the sender gets a notice, and then empty replies until the next command. The sender is
        identified by ``session``, and in a room also by ``occupant_id``, which is "" outside of rooms.
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
