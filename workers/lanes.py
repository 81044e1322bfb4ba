"""Room for polls: whoever is slow waits for others who are slow, and nobody else does (guarantee I7).

A channel whose last poll took long, in fetching or in parsing, goes on in the slow lane, which has
slots and parser children of its own, until it is prompt again. No host fills a lane alone.
"""

import asyncio
from weakref import WeakValueDictionary

from service.feeds.sandbox import ParserPool

SLOW_S = 3.0
"""What takes longer, to be fetched or to be parsed, is slow."""


class Lane:
    """So many polls at once, of which ``per_host`` of one host, and one parser child.

    ``slots`` is entered for a poll under way, ``reading`` for the child.
    """

    def __init__(self, polls: int, per_host: int, parser: ParserPool) -> None:
        self.slots = asyncio.Semaphore(polls)
        self.reading = asyncio.Semaphore(1)
        self.parser = parser
        self._per_host = per_host
        self._hosts: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def host(self, url: str) -> asyncio.Semaphore:
        """Return what is entered by those that have to do with this URL's host (and port)."""
        name = url.split("/", 3)[2]
        room = self._hosts.get(name)
        if room is None:
            room = self._hosts[name] = asyncio.Semaphore(self._per_host)
        return room


class Lanes:
    """The prompt and the slow lane."""

    def __init__(self, prompt: ParserPool, slow: ParserPool) -> None:
        # Together the four connections that a fetcher has per host.
        self._prompt = Lane(64, 3, prompt)
        self._slow = Lane(16, 1, slow)

    def of(self, *, slow: bool) -> Lane:
        """Return the lane of a channel that was slow the last time, or was not."""
        return self._slow if slow else self._prompt
