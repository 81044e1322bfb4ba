"""Answers to what bots and the console ask of the fleet: look at this URL, poll this channel now."""

import asyncio
import contextlib
import time
from collections.abc import Sequence

import msgspec
import structlog

from service.corona.messages import Candidate
from service.errors import (
    CoronetError,
    LeaseLost,
    NotAFeed,
    NotSubscribed,
    PublisherError,
    StaleVersion,
    Unreachable,
    UserError,
    to_fault,
)
from service.feeds.identity import decide
from service.feeds.likely import likely_feeds
from service.feeds.urls import canonical_url, channel_id
from service.model import Channel, FeedLink, ParsedFeed, Validators
from service.net.fetch import Fetched
from service.store import Store
from service.store.channels import Snapshot
from service.store.inbox import Letter
from service.store.requests import Answer, Ask, Failed, Polled, PollNow, Probe, Probed
from workers.node import Node
from workers.poller import Poller
from workers.watch import Watch, compare, watch

_LATEST = 10
_WITHIN_S = 13.0
_GUESSING_S = 5.0

log = structlog.get_logger(__name__)


class Answers:
    """Answers requests on behalf of the node that they reached."""

    def __init__(self, store: Store, poller: Poller) -> None:
        self._store = store
        self._poller = poller

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

    async def _answer(self, node: Node, ask: Ask) -> Answer:
        try:
            async with asyncio.timeout(_WITHIN_S):
                match ask.body:
                    case Probe(url=url):
                        return await self._probe(node, url)
                    case PollNow(channel=cid):
                        result = await node.polling.poll_now(cid)
                        if result is None:
                            return Failed(to_fault(NotSubscribed("There is no such channel.")))
                        return Polled(result)
        except TimeoutError:
            return Failed(to_fault(Unreachable(f"It took longer than {_WITHIN_S:.0f} s to answer.")))
        except CoronetError as error:
            return Failed(to_fault(error))

    async def _probe(self, node: Node, url: str, *, discovered: bool = False) -> Probed:
        cid = channel_id(url)
        (state,) = await self._store.channels.states([cid])
        if state is None or state.channel.dormant:
            held = watch(state, 0) if state else Watch(Channel(cid, url), Validators(), None, 0)
            fetched = await self._poller.fetch_unknown(msgspec.structs.replace(held, validators=Validators()))
            try:
                reading = await self._poller.read_unknown(fetched)
            except NotAFeed:
                if discovered or "html" not in fetched.headers.get("content-type", "").lower():
                    raise
                return await self._guess(node, url)
            if reading.feed is None:
                return await self._follow(node, url, reading.links, discovered=discovered)
            await self._take_in(node, held, fetched, reading.feed)
        # Owned from now on, so that polls have begun by the time somebody subscribes.
        await node.owning.expect_subscribers(cid)
        channel = await self._store.channels.get(cid)
        return Probed(channel, await self._store.channels.latest(cid, _LATEST), discovered=discovered)

    async def _follow(self, node: Node, url: str, links: Sequence[FeedLink], *, discovered: bool) -> Probed:
        """Go on from a page to the feed that it names; several are for the user to choose from."""
        if discovered:
            raise NotAFeed(f"{url} is a page that is no feed.")
        if len(links) > 1:
            return Probed(choices=tuple(links))
        return await self._probe(node, canonical_url(links[0].url), discovered=True)

    async def _guess(self, node: Node, url: str) -> Probed:
        """Look where such pages often have their feed; what goes wrong there tells nobody anything."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GUESSING_S):
                for likely in likely_feeds(url):
                    with contextlib.suppress(PublisherError, UserError):
                        return await self._probe(node, likely, discovered=True)
        raise NotAFeed(f"{url} is a page that is no feed, and it names none.")

    async def _take_in(self, node: Node, held: Watch, fetched: Fetched, feed: ParsedFeed) -> None:
        """Make the channel; or wake it up: what it listed while it was dormant is nobody's news."""
        now_s = time.time()
        if held.channel.dormant:
            found = compare(held, fetched, feed, now_s)
            if found is not None:
                await self._wake(node, found.candidate)
            return
        decision = decide(None, feed, url=fetched.url, now_s=now_s)
        channel = msgspec.structs.replace(held.channel, created_s=now_s, private=fetched.private)
        identity = msgspec.msgpack.encode(decision.state)
        snapshot = Snapshot(fetched.validators, identity, feed.title, feed.link)
        await self._store.channels.create(channel, snapshot, tuple(reversed(decision.latest)), now_s)

    async def _wake(self, node: Node, found: Candidate) -> None:
        (state,) = await self._store.channels.adopt([found.channel], node.me.id)
        if state is not None and state.channel.dormant:
            snapshot = Snapshot(found.validators, found.identity, found.title, found.link)
            with contextlib.suppress(LeaseLost, StaleVersion):  # another worker woke it up
                await self._store.channels.publish(found.delta, snapshot, state.epoch, silent=True)
