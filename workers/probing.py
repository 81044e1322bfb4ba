"""Looking at a URL that nobody polls yet: a feed, a page that names feeds, or a page that can be watched itself."""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Literal

import msgspec

from service.corona.estimates import Updates, dated
from service.corona.messages import Candidate
from service.errors import (
    BadUrl,
    EmptyBody,
    FeedError,
    LeaseLost,
    LimitReached,
    NotAFeed,
    PublisherError,
    StaleVersion,
    UserError,
)
from service.feeds.likely import likely_feeds
from service.feeds.urls import canonical_url, channel_id, https_twin, selector_of
from service.feeds.wire import Document, Examine, Findings
from service.location.contents import digest_of, newest
from service.model import Change, Channel, FeedLink, Validators
from service.net.fetch import Fetched
from service.store import Store
from service.store.channels import Snapshot
from service.store.requests import Probe, Probed
from service.store.state import ChannelState
from workers.courtesy import public_group
from workers.lanes import Lanes
from workers.looks import Look, Looks
from workers.node import Node
from workers.poller import Poller, document, hubs_of
from workers.watch import Watch, found

_LATEST = 10
_BETWEEN_LOOKS_S = 1.5

_FETCHED_BY_S = 6.5
_READ_BY_S = 8.5
_LEAST_FETCH_S = 1.0
_TWIN_S = 2.0
"""Somebody waits: by when all is fetched and read, and what the last of several fetches gets at least."""


class Probing:
    """One probe, on behalf of the node that was asked."""

    def __init__(self, store: Store, poller: Poller, lanes: Lanes, node: Node, looks: Looks) -> None:
        """Fetch as ``poller`` does, but read in lanes of probes, so that people wait for nobody's polls."""
        self._store = store
        self._poller = poller
        self._lanes = lanes
        self._node = node
        self._began_s = time.monotonic()
        self._looks = looks
        self._keeps = True
        self._address_group = ""
        """Of who answered last."""
        self._held = contextlib.AsyncExitStack()
        self._has_room = False
        self._seen: Look | None = None
        """What was found, if it is not to be kept."""

    async def probe(self, ask: Probe) -> Probed:
        """Return what is at a URL; if it is a feed, or asked for as a page, it is a channel from then on, and awake.

        What is not to be kept, is not made a channel, nor woken up. Whoever asks again to have it kept, and soon, gets
        what was seen.

        Raises what a subscriber is to be told of.
        """
        self._keeps = ask.keep
        try:
            async with self._held:
                return await self._seen_before(ask) or await self._looked(ask)
        except LimitReached:
            # What is known can be followed all the same: it wakes up with its next poll.
            known = await self._store.channels.resolve(channel_id(ask.url))
            if known is None or (ask.as_page and known.kind != "page"):
                raise
            return await self._probed(known)

    async def _seen_before(self, ask: Probe) -> Probed | None:
        look = self._looks.take(ask, self._began_s) if ask.keep else None
        if look is None or not await self._is_new(look.channel):
            return None
        await self._keep(look.channel, look.fetched, look.findings, known=False)
        return await self._probed(look.channel, discovered=look.discovered)

    async def _looked(self, ask: Probe) -> Probed:
        probed = await (self._probe_page(ask.url, afresh=ask.afresh) if ask.as_page else self._probe(ask.url))
        if self._seen is not None and await self._is_new(self._seen.channel):
            look = msgspec.structs.replace(self._seen, discovered=probed.discovered)
            self._looks.put(ask, look, self._began_s)
        return probed

    async def _is_new(self, channel: Channel) -> bool:
        return await self._store.channels.get(channel.id) is None

    def _left_s(self, by_s: float) -> float:
        return self._began_s + by_s - time.monotonic()

    async def _probe(self, url: str, *, discovered: bool = False) -> Probed:
        state, memory = await self._known(url)
        if state is not None and not state.channel.dormant:
            return await self._probed(state.channel, discovered=discovered)
        channel = state.channel if state else Channel(channel_id(url), url)
        fetched = await self._fetch(channel)
        arrived = document(fetched)
        try:
            channel, findings = await self._read(arrived, channel, memory)
        except NotAFeed:
            if discovered or not arrived.is_page:
                raise
            return await self._guess(url) or await self._offer(arrived, channel)
        if findings.links:
            return await self._follow(url, findings.links, discovered=discovered)
        if state is None and (twin := await self._secured(channel, findings)):
            return await self._probed(twin, discovered=discovered)
        await self._keep(channel, fetched, findings, known=state is not None)
        return await self._probed(channel, discovered=discovered)

    async def _secured(self, plain: Channel, findings: Findings) -> Channel | None:
        """Return the channel of the same feed behind TLS, made if need be; None if that is not seen to be the same."""
        url = https_twin(plain.url)
        if not url:
            return None
        with contextlib.suppress(PublisherError, UserError, TimeoutError):
            async with asyncio.timeout(min(_TWIN_S, self._left_s(_FETCHED_BY_S))):
                known = await self._store.channels.resolve(channel_id(url))
                twin = known or Channel(channel_id(url), url)
                again = await self._fetch(twin)
            same = await self._examine((document(again),), msgspec.structs.replace(plain, url=url), b"")
            if same.latest and _keys(same) == _keys(findings):
                if known is None:
                    await self._keep(twin, again, same, known=False)
                return (await self._probe(url)).channel if twin.dormant else twin
        return None

    async def _probe_page(self, url: str, *, afresh: bool) -> Probed:
        """Watch a page: at first twice in quick succession, to learn what changes by itself."""
        state, memory = await self._known(url)
        if state is not None and not state.channel.dormant and (state.channel.url == url or not afresh):
            return await self._probed(state.channel)
        if afresh:
            state, memory = None, b""
        channel = state.channel if state else Channel(channel_id(url), url, kind="page")
        if channel.kind == "feed" and not await self._store.subscriptions.count(channel.id):
            channel, memory = msgspec.structs.replace(channel, kind="page"), b""
        fetched = await self._fetch(channel)
        first = document(fetched)
        documents = (first,) if memory else (first, await self._second_look(channel) or first)
        try:
            findings = await self._examine(documents, channel, memory)
        except EmptyBody as error:
            if not selector_of(channel.url):
                raise
            raise BadUrl(error.sentence, **error.values) from error
        await self._keep(channel, fetched, findings, known=state is not None)
        return await self._probed(channel)

    async def _read(self, arrived: Document, channel: Channel, memory: bytes) -> tuple[Channel, Findings]:
        """Return what a document says, and its channel: a page that nobody follows is a feed, if it has become one."""
        if channel.kind == "page" and not arrived.is_page and not await self._store.subscriptions.count(channel.id):
            feed = msgspec.structs.replace(channel, kind="feed")
            with contextlib.suppress(FeedError):
                return feed, await self._examine((arrived,), feed, b"")
        return channel, await self._examine((arrived,), channel, memory)

    async def _second_look(self, channel: Channel) -> Document | None:
        await asyncio.sleep(_BETWEEN_LOOKS_S)
        with contextlib.suppress(PublisherError, UserError):
            return document(await self._fetch(channel))
        return None

    async def _fetch(self, channel: Channel) -> Fetched:
        if not self._has_room:  # what needs not be asked for, needs no room either
            address_group = await self._poller.address_group(channel)
            await self._held.enter_async_context(self._lanes.room(channel, address_group))
            self._has_room = True
        fetched = await self._poller.fetch_unknown(channel, max(self._left_s(_FETCHED_BY_S), _LEAST_FETCH_S))
        self._address_group = public_group(fetched.address)
        return fetched

    async def _known(self, url: str) -> tuple[ChannelState | None, bytes]:
        """Return what is known of a URL's channel, or of the one that took over from it."""
        channel = await self._store.channels.resolve(channel_id(url))
        if channel is None:
            return None, b""
        (state,) = await self._store.channels.states([channel.id])
        return state, (await self._store.channels.memory(channel.id))[1]

    async def _examine(self, documents: tuple[Document, ...], channel: Channel, memory: bytes) -> Findings:
        job = Examine(documents, memory, channel.url, channel.kind, time.time())
        watch = Watch(channel, Validators(), 0, address_group=self._address_group)
        return await self._lanes.examine(job, watch, self._left_s(_READ_BY_S))

    async def _probed(self, channel: Channel, *, discovered: bool = False) -> Probed:
        if not self._keeps:
            if self._seen is not None:
                return Probed(self._seen.channel, self._seen.findings.latest[:_LATEST], discovered=discovered)
            return Probed(channel, await self._store.channels.latest(channel.id, _LATEST), discovered=discovered)
        # Owned from now on, so that polls have begun by the time somebody subscribes.
        await self._node.owning.expect_subscribers(channel.id)
        latest = await self._store.channels.latest(channel.id, _LATEST)
        return Probed(await self._store.channels.get(channel.id), latest, discovered=discovered)

    async def _follow(self, url: str, links: Sequence[FeedLink], *, discovered: bool) -> Probed:
        """Go on from a page to the feed that it names; several are for the user to choose from."""
        if discovered:
            raise NotAFeed(f"{url} is a page that is no feed.")
        if len(links) > 1:
            return Probed(choices=tuple(links))
        return await self._probe(canonical_url(links[0].url), discovered=True)

    async def _guess(self, url: str) -> Probed | None:
        """Look where such pages often have their feed; what goes wrong there tells nobody anything."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._left_s(_FETCHED_BY_S)):
                for likely in likely_feeds(url):
                    with contextlib.suppress(PublisherError, UserError):
                        return await self._probe(likely, discovered=True)
        return None

    async def _offer(self, arrived: Document, channel: Channel) -> Probed:
        """Offer to watch the page itself. Raises what would come of it, if that is nothing."""
        await self._examine((arrived,), msgspec.structs.replace(channel, kind="page"), b"")
        return Probed(page=True)

    async def _keep(self, channel: Channel, fetched: Fetched, findings: Findings, *, known: bool) -> None:
        """Make the channel, or wake it up; what hubs it names is known before its polls find nothing new."""
        if not self._keeps:
            named = msgspec.structs.replace(channel, title=findings.title or channel.title, link=findings.link)
            self._seen = Look(named, msgspec.structs.replace(fetched, body=None), findings, discovered=False)
            return
        if known:
            await self._wake(channel, fetched, findings)
        elif await self._is_new(channel):
            await self._create(channel, fetched, findings)
        else:
            await self._begin_again(channel, fetched, findings)
        self._node.hubs_named(channel.id, *hubs_of(fetched, findings))

    async def _create(self, channel: Channel, fetched: Fetched, findings: Findings) -> None:
        now_s = time.time()
        channel = msgspec.structs.replace(channel, created_s=now_s, private=fetched.private)
        snapshot = _snapshot(fetched, findings, now_s)
        await self._store.channels.create(channel, snapshot, tuple(reversed(findings.latest)), now_s)
        self._node.contents.put(channel.id, digest_of(snapshot.content), snapshot.content)

    async def _begin_again(self, channel: Channel, fetched: Fetched, findings: Findings) -> None:
        """Have a channel that nobody polls, or that has moved, go on from what is there now."""
        now_s, channels = time.time(), self._store.channels
        snapshot, latest = _snapshot(fetched, findings, now_s), tuple(reversed(findings.latest))
        done = None
        while done is None and (present := await channels.get(channel.id)) is not None:
            awake = msgspec.structs.replace(present, kind=channel.kind, dormant=False)
            done = await channels.take_over(channel.id, awake, snapshot, latest, joins_at=0, now_s=now_s)
        await channels.joined(channel.id, channel.id)

    async def _wake(self, channel: Channel, fetched: Fetched, findings: Findings) -> None:
        """Have the channel polled again: what it listed while it was dormant is nobody's news."""
        (state,) = await self._store.channels.adopt([channel.id], self._node.me.id)
        if state is None or not state.channel.dormant:
            return
        listed = tuple(Change("addition", entry) for entry in reversed(findings.latest))
        findings = msgspec.structs.replace(findings, changes=findings.changes + listed)
        find = found(state.channel, (), fetched.validators, findings, time.time())
        if find is not None:
            await self._publish(find.candidate, channel.kind, state.epoch)

    async def _publish(self, candidate: Candidate, kind: Literal["feed", "page"], epoch: int) -> None:
        names = candidate.title, candidate.link, candidate.wishes
        latest = newest(candidate.delta.changes, await self._store.channels.newest(candidate.channel))
        snapshot = Snapshot(candidate.validators, candidate.memory, *names, kind, latest=latest)
        with contextlib.suppress(LeaseLost, StaleVersion):  # another worker woke it up
            await self._store.channels.publish(candidate.delta, snapshot, epoch, silent=True)


def _snapshot(fetched: Fetched, findings: Findings, now_s: float) -> Snapshot:
    dates_s = [entry.published for entry in findings.latest if entry.published is not None]
    return Snapshot(
        fetched.validators,
        findings.memory,
        findings.title,
        findings.link,
        findings.wishes,
        updates=Updates(dated(dates_s, now_s), now_s),
        language=findings.language,
        imprint=findings.imprint,
        latest=newest([Change("addition", entry) for entry in reversed(findings.latest)], ()),
    )


def _keys(findings: Findings) -> list[str]:
    return [entry.key for entry in findings.latest]
