"""Brings the node of one channel up to what its log says; what was interrupted is simply done again.

A node's position moves once the service has all up to it. Before an item is published, the service is asked whether it
has it just so, for subscribers are told of each publication. That a node is to be made is noted first, so that it can
be deleted, whatever becomes of us: it is public only as long as the channel is.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final
from xml.etree.ElementTree import fromstring

import structlog

from bots import atom, bounces, pubsub
from bots.atom import Item
from bots.link import AskingLink
from service.errors import OperationalError
from service.feeds.text import one_line
from service.feeds.urls import without_selector
from service.model import Channel, ChannelId, Delta
from service.search import Searcher
from service.store import Store
from service.store.nodes import Position

PUBLISHED_PER_S: Final = 10
ANSWERED_WITHIN_S: Final = 30.0
MOST_AT_FIRST: Final = 20
"""Items on a node when it is made, or when its channel's log has dropped what came since."""
_VERSIONS_AT_FIRST: Final = 30
_VERSIONS_AT_ONCE: Final = 20
_ITEMS_AT_ONCE: Final = 20
_TITLE_CHARS: Final = 200
_log = structlog.get_logger()


class PubsubRefused(OperationalError):
    """The service does not do what it was asked; ``condition`` says why (RFC 6120 §8.3.3)."""

    code = "pubsub-refused"

    def __init__(self, condition: str) -> None:
        """Keep the condition."""
        super().__init__(f"The pubsub service answers {condition}.")
        self.condition = condition


class Publishing:
    """The nodes of one service, one at a time, with one request under way."""

    def __init__(self, store: Store, link: AskingLink, service: str, least_subscribers: int) -> None:
        """``least_subscribers`` make a channel public."""
        self._store = store
        self._link = link
        self._service = service
        self._search = Searcher(store, least_subscribers)

    async def unfinished(self, cids: Sequence[ChannelId]) -> list[ChannelId]:
        """Return those of these channels with whose nodes there is something to do. Raises StoreUnavailable."""
        public = await self._search.public(cids)
        positions = await self._store.nodes.of(self._service, cids)
        return [cid for cid in cids if positions.get(cid) != (_arrived(public[cid]) if cid in public else None)]

    async def bring_up(self, cid: ChannelId) -> None:
        """Do the next part of what there is to do with one channel's node.

        Raises :class:`PubsubRefused`, LinkLost, TimeoutError, or StoreUnavailable.
        """
        public = await self._search.public([cid])
        position = (await self._store.nodes.of(self._service, [cid])).get(cid)
        if cid in public:
            await self._go_on(public[cid], position or Position())
        elif position is not None:
            await self._delete(cid)

    async def _go_on(self, channel: Channel, position: Position) -> None:
        deltas, wanted = await self._since(channel, position.version)
        if not position.version:
            await self._make(channel)
        try:
            if position.version and position.title != _title(channel):
                await self._asked("set", pubsub.configuration(channel.id, *_described(channel)))
            await self._publish(channel.id, wanted)
        except PubsubRefused as error:
            if error.condition == "item-not-found":  # the service has lost the node: from the beginning
                await self._store.nodes.put(self._service, channel.id, Position())
                return
            raise
        version = deltas[-1].version if deltas else channel.version
        await self._store.nodes.put(self._service, channel.id, Position(version, _title(channel)))

    async def _make(self, channel: Channel) -> None:
        """Make a node, or take over the one that is there."""
        await self._store.nodes.put(self._service, channel.id, Position())
        try:
            await self._asked("set", pubsub.creation(channel.id, *_described(channel)))
        except PubsubRefused as error:
            if error.condition != "conflict":
                raise
            await self._asked("set", pubsub.configuration(channel.id, *_described(channel)))
        _log.info("published as a node", channel=channel.id[:8], service=self._service)

    async def _delete(self, cid: ChannelId) -> None:
        try:
            await self._asked("set", pubsub.deletion(cid))
        except PubsubRefused as error:
            if error.condition != "item-not-found":
                raise
        await self._store.nodes.drop(self._service, cid)
        _log.info("published no more", channel=cid[:8], service=self._service)

    async def _since(self, channel: Channel, version: int) -> tuple[list[Delta], list[Item]]:
        """Return the deltas after a version that come next, oldest first, and what they leave on the node.

        At first, and if the log has not all of them any more, these are the latest.
        """
        last = min(channel.version, version + _VERSIONS_AT_ONCE)
        deltas = await self._store.channels.deltas(channel.id, version + 1, last) if version else []
        if version and len(deltas) == last - version:
            told = [delta for delta in deltas if not delta.initial]
            return deltas, atom.items(channel, told, self._service)
        deltas = (await self._store.channels.versions(channel.id, _VERSIONS_AT_FIRST))[::-1]
        return deltas, atom.items(channel, deltas, self._service)[-MOST_AT_FIRST:]

    async def _publish(self, cid: ChannelId, wanted: Sequence[Item]) -> None:
        """Publish what is not there."""
        for first in range(0, len(wanted), _ITEMS_AT_ONCE):
            some = wanted[first : first + _ITEMS_AT_ONCE]
            asked = pubsub.retrieval(cid, [item.id for item in some])
            kept = pubsub.retrieved(await self._asked("get", asked))
            for item in some:
                made = fromstring(item.payload)  # noqa: S314 - we wrote it
                if item.id not in kept or not atom.same(kept[item.id], made):
                    await self._asked("set", pubsub.publication(cid, item))
                    await asyncio.sleep(1 / PUBLISHED_PER_S)

    async def _asked(self, kind: str, content: str) -> Any:
        """Return the service's answer. Raises :class:`PubsubRefused`, LinkLost, or TimeoutError."""
        async with asyncio.timeout(ANSWERED_WITHIN_S):
            answer = await self._link.ask(self._service, kind, content)
        if answer.get("type") == "error":
            raise PubsubRefused(bounces.condition_of(answer))
        return answer


def _title(channel: Channel) -> str:
    return one_line(channel.title, _TITLE_CHARS) or channel.url


def _described(channel: Channel) -> tuple[str, str]:
    return _title(channel), without_selector(channel.url)


def _arrived(channel: Channel) -> Position:
    """Return the position of a node on which there is nothing to do."""
    return Position(channel.version, _title(channel))
