"""Answers to what bots and the console ask of the fleet: look at this URL, poll this channel now."""

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

import msgspec
import structlog

from service.errors import CoronetError, NotSettled, NotSubscribed, NoWorker, to_fault
from service.feeds.opml import Outline
from service.feeds.sandbox import OpmlReader
from service.feeds.urls import channel_id
from service.model import Channel
from service.store import Store
from service.store.inbox import Letter
from service.store.requests import (
    Answer,
    Ask,
    Coordinated,
    Explained,
    Failed,
    ListDirectories,
    LookedUp,
    Lookup,
    Move,
    Moving,
    NameShare,
    Outlined,
    Polled,
    PollNow,
    Probe,
    ReadOutline,
    Share,
    Show,
    Step,
    Why,
)
from workers.lanes import Lanes
from workers.node import Node
from workers.peers.showing import Showing
from workers.poller import Poller, listening
from workers.probing import Probing, no_looks

_WITHIN_S = 9.0
_FETCHED_WITHIN_S = 7.0
_MOST_FEEDS = 1_000
"""Of a list: an answer is to stay small."""

_T = TypeVar("_T")

log = structlog.get_logger(__name__)


class Answers:
    """Answers requests on behalf of the node that they reached."""

    def __init__(self, store: Store, poller: Poller, lanes: Lanes) -> None:
        """Look at what nobody polls yet in ``lanes`` for that alone."""
        self._store = store
        self._poller = poller
        self._lanes = lanes
        self._lists = OpmlReader()
        self._looks = no_looks()

    async def answer(self, node: Node, letter: Letter) -> None:
        """Answer one letter, unless nobody waits any more. What goes wrong is part of the answer."""
        try:
            ask = msgspec.msgpack.decode(letter.payload, type=Ask)
        except msgspec.MsgspecError as error:
            log.warning("a request of another version", error=str(error))
            return
        if ask.until_s < node.polling.fleet_s():
            return
        await self._store.requests.answer(ask, await self._answer(node, ask))

    async def _told(self, ask: Ask, polling: Awaitable[_T]) -> _T:
        """Return what comes of it, and tell its steps meanwhile, in order."""
        began_s, steps = time.monotonic(), asyncio.Queue[Step | None]()

        async def telling() -> None:
            while (step := await steps.get()) is not None:
                await self._store.requests.answer(ask, step)

        teller = asyncio.create_task(telling())
        try:
            with listening(lambda words: steps.put_nowait(Step(words, time.monotonic() - began_s))):
                return await polling
        finally:
            steps.put_nowait(None)
            await teller

    async def _answer(self, node: Node, ask: Ask) -> Answer:  # noqa: C901, PLR0911, PLR0912 - one arm per question and error
        try:
            async with asyncio.timeout(_WITHIN_S):
                match ask.body:
                    case Probe() as probe:
                        probing = Probing(self._store, self._poller, self._lanes, node, self._looks)
                        return await probing.probe(probe)
                    case Move(channel=cid, url=url):
                        if not await node.owning.move(cid, url):
                            return Failed(to_fault(NotSubscribed("There is no such channel, or it has moved already.")))
                        return Moving()
                    case PollNow(channel=cid, told=told):
                        polling = node.polling.poll_now(cid)
                        result = await (self._told(ask, polling) if told else polling)
                        if result is None:
                            return Failed(to_fault(NotSubscribed("There is no such channel.")))
                        return Polled(result)
                    case ReadOutline(url):
                        return Outlined(await self._outline(url))
                    case Lookup(pairs, limit):
                        return LookedUp(tuple(node.directories.find(pairs, limit)))
                    case ListDirectories():
                        return Coordinated(node.directories.chosen)
                    case NameShare(pair):
                        return Share(node.directories.share(pair))
                    case Show(channel=cid):
                        showing = Showing(self._store, node.contents, self._poller, self._lanes)
                        shown = await showing.show(cid, node.ring)
                        return shown or Failed(to_fault(NotSubscribed("There is no such channel.")))
                    case Why(channel=cid):
                        reason = node.why(cid)
                        if reason is None:
                            return Failed(to_fault(NotSettled("It is not settled yet how this is polled.")))
                        return Explained(reason)
        except TimeoutError:
            return Failed(to_fault(NoWorker(f"The worker was not done within {_WITHIN_S:g} s. Try again later.")))
        except CoronetError as error:
            return Failed(to_fault(error))

    async def _outline(self, url: str) -> Outline:
        """Fetch and read a list of feeds. Raises what its reader is to be told of."""

        async def load() -> bytes:
            channel = Channel(channel_id(url), url)
            async with self._lanes.room(channel, await self._poller.address_group(channel)):
                fetched = await self._poller.fetch_unknown(channel, _FETCHED_WITHIN_S)
            return fetched.body or b""

        outline = await self._lists.read(load)
        if len(outline.feeds) <= _MOST_FEEDS:
            return outline
        return Outline(
            outline.feeds[:_MOST_FEEDS], (f"Only the first {_MOST_FEEDS:,} feeds are read.", *outline.problems)
        )
