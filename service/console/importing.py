"""The feeds of a file become channels: a few at a time, while one request may take, and again where it ended."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from secrets import SystemRandom

import msgspec

from service.errors import LimitReached, PublisherError, UserError
from service.feeds.opml import Subscribed
from service.feeds.sandbox import OpmlReader
from service.feeds.urls import channel_id
from service.store import Store

_AT_ONCE = 4
_WITHIN_S = 45.0
_LOADED_AT_ONCE = 500


class Imported(msgspec.Struct, frozen=True):
    """What became of a file of subscriptions.

    ``kept`` of its feeds are polled from now on. ``left`` were not looked at, for lack of time or because their
    publishers may not be asked now: send the file again. ``problems`` are the file's, by line, and those of feeds.
    """

    kept: int
    left: int
    problems: tuple[str, ...]


async def import_opml(store: Store, reader: OpmlReader, load: Callable[[], Awaitable[bytes]]) -> Imported:
    """Have the feeds of the OPML file that ``load`` returns polled from now on; those that are already cost no time.

    Raises :class:`UserError` for what is no OPML, and our own errors when nothing can be looked at.
    """
    outline = await reader.read(load)
    new = await _not_kept(store, outline.feeds)
    # Otherwise those that take long would keep the same ones waiting each time.
    SystemRandom().shuffle(new)
    looked = _Looked(store)
    # In a task of its own: before Python 3.13 a group whose child fails may leave its task marked as cancelled.
    await asyncio.create_task(looked.at_all(iter(new)))
    left = len(new) - looked.kept - len(looked.problems)
    return Imported(len(outline.feeds) - len(new) + looked.kept, left, (*outline.problems, *looked.problems))


async def _not_kept(store: Store, feeds: Sequence[Subscribed]) -> list[Subscribed]:
    new: list[Subscribed] = []
    for start in range(0, len(feeds), _LOADED_AT_ONCE):
        some = feeds[start : start + _LOADED_AT_ONCE]
        channels = await store.channels.many([channel_id(feed.url) for feed in some])
        pairs = zip(some, channels, strict=True)
        new += [feed for feed, channel in pairs if channel is None or channel.dormant or not channel.listed]
    return new


class _Looked:
    """How it went with the feeds that were looked at."""

    def __init__(self, store: Store) -> None:
        self.kept = 0
        self.problems: list[str] = []
        self._store = store

    async def at_all(self, feeds: Iterator[Subscribed]) -> None:
        """Look at as many as one request has time for. Raises our own errors when nothing can be looked at."""
        try:
            async with asyncio.timeout(_WITHIN_S), asyncio.TaskGroup() as group:
                for _ in range(_AT_ONCE):
                    group.create_task(self.at(feeds))
        except TimeoutError:
            pass  # the rest is left
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from failed

    async def at(self, feeds: Iterator[Subscribed]) -> None:
        """Look at one after the other, and keep each that is a feed. Raises only our own errors."""
        for feed in feeds:
            try:
                await self._keep(feed)
            except LimitReached:
                continue
            except (PublisherError, UserError) as error:
                self.problems.append(f"{feed.url}: {error}")
            else:
                self.kept += 1

    async def _keep(self, feed: Subscribed) -> None:
        probed = await self._store.requests.probe(feed.url, as_page=feed.page)
        if probed.channel is None:
            raise UserError(
                f"This is a page that names {'no feed' if probed.page else 'several feeds: add one of them'}."
            )
        await self._store.channels.set_listed(probed.channel.id, listed=True)
