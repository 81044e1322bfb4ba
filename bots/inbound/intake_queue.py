"""The queue of received messages that are not stored yet, with limits that protect it from floods.

A queue that was limited only in total could be filled by one server, whose invented users would keep out all others.
"""

from collections import Counter, deque
from typing import Final

from bots.xmpp.events import MessageReceived
from service.net.sites_and_networks import site_of_jid
from service.store.delivery.inbound_log import MAX_UNANSWERED

_MAX_QUEUED: Final = 10_000
_MAX_QUEUED_PER_SITE: Final = 5_000
"""Maximum number of queued messages from the users of one site (registrable domain), so that no server fills the queue
with invented JIDs (guarantee I7)."""


class IntakeQueue:
    """A queue of messages to be stored, limited per user, per site and in total."""

    def __init__(self) -> None:
        """Create an empty queue."""
        self._messages: deque[tuple[MessageReceived, str]] = deque()
        """Each message with the site of its sender."""
        self._counts: Counter[str] = Counter()
        """Numbers of messages by bare JID and by site; the key of a site begins with "site "."""

    def __len__(self) -> int:
        """Return the number of queued messages."""
        return len(self._messages)

    def put(self, message: MessageReceived) -> None:
        """Append a message; drop it if a limit is reached."""
        jid, site = message.jid, f"site {site_of_jid(message.jid)}"
        is_full = self._counts[jid] >= MAX_UNANSWERED or self._counts[site] >= _MAX_QUEUED_PER_SITE
        if not is_full and len(self._messages) < _MAX_QUEUED:
            self._messages.append((message, site))
            self._counts.update((jid, site))

    def take(self, limit: int) -> list[MessageReceived]:
        """Remove and return the oldest messages, at most ``limit``."""
        taken = [self._messages.popleft() for _ in range(min(limit, len(self._messages)))]
        self._counts.subtract(key for message, site in taken for key in (message.jid, site))
        self._counts = +self._counts
        return [message for message, _ in taken]
