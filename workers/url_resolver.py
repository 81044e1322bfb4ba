"""Resolution of a URL that nobody polls yet: a feed, a page that names feeds, or a page that can be watched itself."""

import asyncio
import contextlib
import time
from typing import Final, NamedTuple

import msgspec
from cachetools import TTLCache

from service.corona.update_rates import UpdateHistory, estimate_from_dates
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
from service.feeds.autodiscovery import likely_feeds
from service.feeds.sandbox.protocol import DetectChanges, DetectionResult, Document
from service.feeds.urls import canonical_url, channel_id, https_variant, selector_of
from service.location.content_cache import digest_of, merge_latest
from service.model import Change, Channel, FeedLink, Validators
from service.net.fetcher import FetchResult
from service.store import Store
from service.store.channels.channels import ChannelState, Snapshot
from service.store.coordination.requests import ProbeReply, ProbeRequest
from workers.node import Node
from workers.polling.concurrency_limits import ConcurrencyLanes
from workers.polling.politeness import public_address_group
from workers.polling.poll_state import PollState, build_snapshot, build_update
from workers.polling.poller import Poller, document_of, hubs_of

_LATEST = 10
_BETWEEN_LOOKS_S = 1.5

_FETCHED_BY_S = 6.5
_READ_BY_S = 8.5
_LEAST_FETCH_S = 1.0
_TWIN_S = 2.0
"""Somebody waits: by when all is fetched and read, and what the last of several fetches gets at least."""

_MOST_LOOKS: Final = 16
"""What is remembered of a large page may be as large as that."""
_LOOKS_GOOD_FOR_S: Final = 600.0


class ResolvedUrl(msgspec.Struct, frozen=True):
    """A channel that is not there yet, what it was ``fetched`` from (without the body), and what that says."""

    channel: Channel
    fetched: FetchResult
    findings: DetectionResult
    discovered: bool


ResolutionCache = TTLCache[tuple[str, bool], ResolvedUrl]
"""What probes found that were not to keep it, by URL and whether as a page."""


def no_looks() -> ResolutionCache:
    """Return an empty cache: whoever soon wants a look kept does not have the publisher asked again."""
    return TTLCache(_MOST_LOOKS, _LOOKS_GOOD_FOR_S)


class _Page(NamedTuple):
    """A page instead of a feed, and the feeds that it names."""

    document: Document
    channel: Channel
    links: tuple[FeedLink, ...] = ()
    error: NotAFeed | None = None


class UrlResolver:
    """One probe, on behalf of the node that was asked."""

    def __init__(
        self, store: Store, poller: Poller, lanes: ConcurrencyLanes, node: Node, looks: ResolutionCache
    ) -> None:
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
        self._seen: ResolvedUrl | None = None
        """What was found, if it is not to be kept."""

    async def probe(self, ask: ProbeRequest) -> ProbeReply:
        """Return what is at a URL; if it is a feed, or asked for as a page, it is a channel from then on, and awake.

        What is not to be kept, is not made a channel, nor woken up. Whoever asks again to have it kept, and soon, gets
        what was seen.

        Raises what a subscriber is to be told of.
        """
        self._keeps = ask.keep
        asked = ask.url, ask.as_page
        try:
            look = self._looks.pop(asked, None) if ask.keep else None
            if look is not None and await self._is_new(look.channel):
                await self._keep(look.channel, look.fetched, look.findings, known=False)
                return msgspec.structs.replace(await self._probed(look.channel), discovered=look.discovered)
            async with self._held:
                probed = await (self._probe_page(ask.url, afresh=ask.afresh) if ask.as_page else self._probe(ask.url))
        except LimitReached:
            # What is known can be followed all the same: it wakes up with its next poll.
            known = await self._store.channels.resolve(channel_id(ask.url))
            if known is None or (ask.as_page and known.kind != "page"):
                raise
            return await self._probed(known)
        if self._seen is not None and await self._is_new(self._seen.channel):
            self._looks[asked] = msgspec.structs.replace(self._seen, discovered=probed.discovered)
        return probed

    async def _is_new(self, channel: Channel) -> bool:
        return await self._store.channels.get(channel.id) is None

    def _left_s(self, by_s: float) -> float:
        return self._began_s + by_s - time.monotonic()

    async def _probe(self, url: str) -> ProbeReply:
        """Return the feed at a URL, or else the one that its page names, or else one where such pages have theirs.

        Several that a page names are for the user to choose from; where none is found, the page itself is offered.
        """
        page = await self._feed_at(url)
        if isinstance(page, ProbeReply):
            return page
        if len(page.links) > 1:
            return ProbeReply(choices=page.links)
        if page.links:
            return await self._discovered(canonical_url(page.links[0].url))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._left_s(_FETCHED_BY_S)):
                for likely in likely_feeds(url):
                    # What goes wrong there tells nobody anything.
                    with contextlib.suppress(PublisherError, UserError):
                        return await self._discovered(likely)
        # Raises what would come of watching it, if that is nothing.
        await self._examine((page.document,), msgspec.structs.replace(page.channel, kind="page"), b"")
        return ProbeReply(page=True)

    async def _discovered(self, url: str) -> ProbeReply:
        """Return the feed at a URL that the user has not named. Raises :class:`NotAFeed` if there is none."""
        feed = await self._feed_at(url)
        if isinstance(feed, _Page):
            raise feed.error or NotAFeed(f"{url} is a page that is no feed.")
        return msgspec.structs.replace(feed, discovered=True)

    async def _feed_at(self, url: str) -> ProbeReply | _Page:
        """Return the feed at this very URL, as a channel that is known and awake from now on, or else the page."""
        state, memory = await self._known(url)
        if state is not None and not state.channel.dormant:
            return await self._probed(state.channel)
        channel = state.channel if state else Channel(channel_id(url), url)
        fetched = await self._fetch(channel)
        arrived = document_of(fetched)
        try:
            channel, findings = await self._read(arrived, channel, memory)
        except NotAFeed as error:
            if not arrived.is_page:
                raise
            return _Page(arrived, channel, error=error)
        if findings.links:
            return _Page(arrived, channel, findings.links)
        if state is None and (twin := await self._secured(channel, findings)):
            return await self._probed(twin)
        await self._keep(channel, fetched, findings, known=state is not None)
        return await self._probed(channel)

    async def _secured(self, plain: Channel, findings: DetectionResult) -> Channel | None:
        """Return the channel of the same feed behind TLS, made if need be; None if that is not seen to be the same."""
        url = https_variant(plain.url)
        if not url:
            return None
        with contextlib.suppress(PublisherError, UserError, TimeoutError):
            async with asyncio.timeout(min(_TWIN_S, self._left_s(_FETCHED_BY_S))):
                state, memory = await self._known(url)
                twin = state.channel if state else Channel(channel_id(url), url)
                again = await self._fetch(twin)
            same = await self._examine((document_of(again),), msgspec.structs.replace(plain, url=url), b"")
            if same.latest and _keys(same) == _keys(findings):
                if state is not None and twin.dormant:
                    twin, same = await self._read(document_of(again), twin, memory)
                if state is None or twin.dormant:
                    await self._keep(twin, again, same, known=state is not None)
                return twin
        return None

    async def _probe_page(self, url: str, *, afresh: bool) -> ProbeReply:
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
        first = document_of(fetched)
        documents = (first,) if memory else (first, await self._second_look(channel) or first)
        try:
            findings = await self._examine(documents, channel, memory)
        except EmptyBody as error:
            if not selector_of(channel.url):
                raise
            raise BadUrl(error.sentence, **error.values) from error
        await self._keep(channel, fetched, findings, known=state is not None)
        return await self._probed(channel)

    async def _read(self, arrived: Document, channel: Channel, memory: bytes) -> tuple[Channel, DetectionResult]:
        """Return what a document says, and its channel: a page that nobody follows is a feed, if it has become one."""
        if channel.kind == "page" and not arrived.is_page and not await self._store.subscriptions.count(channel.id):
            feed = msgspec.structs.replace(channel, kind="feed")
            with contextlib.suppress(FeedError):
                return feed, await self._examine((arrived,), feed, b"")
        return channel, await self._examine((arrived,), channel, memory)

    async def _second_look(self, channel: Channel) -> Document | None:
        await asyncio.sleep(_BETWEEN_LOOKS_S)
        with contextlib.suppress(PublisherError, UserError):
            return document_of(await self._fetch(channel))
        return None

    async def _fetch(self, channel: Channel) -> FetchResult:
        if not self._has_room:  # what needs not be asked for, needs no room either
            address_group = await self._poller.address_group(channel)
            await self._held.enter_async_context(self._lanes.hold_slot(channel, address_group))
            self._has_room = True
        fetched = await self._poller.fetch_unknown(channel, max(self._left_s(_FETCHED_BY_S), _LEAST_FETCH_S))
        self._address_group = public_address_group(fetched.address)
        return fetched

    async def _known(self, url: str) -> tuple[ChannelState | None, bytes]:
        """Return what is known of a URL's channel, or of the one that took over from it."""
        channel = await self._store.channels.resolve(channel_id(url))
        if channel is None:
            return None, b""
        (state,) = await self._store.channels.states([channel.id])
        return state, (await self._store.channels.memory(channel.id))[1]

    async def _examine(self, documents: tuple[Document, ...], channel: Channel, memory: bytes) -> DetectionResult:
        job = DetectChanges(documents, memory, channel.url, channel.kind, time.time())
        watch = PollState(channel, Validators(), 0, address_group=self._address_group)
        return await self._lanes.detect_changes(job, watch, self._left_s(_READ_BY_S))

    async def _probed(self, channel: Channel) -> ProbeReply:
        if self._seen is not None:
            return ProbeReply(self._seen.channel, self._seen.findings.latest[:_LATEST])
        if not self._keeps:
            return ProbeReply(channel, await self._store.channels.latest(channel.id, _LATEST))
        # Owned from now on, so that polls have begun by the time somebody subscribes.
        await self._node.owning.expect_subscribers(channel.id)
        latest = await self._store.channels.latest(channel.id, _LATEST)
        return ProbeReply(await self._store.channels.get(channel.id), latest)

    async def _keep(self, channel: Channel, fetched: FetchResult, findings: DetectionResult, *, known: bool) -> None:
        """Make the channel, or wake it up; what hubs it names is known before its polls find nothing new."""
        if not self._keeps:
            named = msgspec.structs.replace(channel, title=findings.title or channel.title, link=findings.link)
            self._seen = ResolvedUrl(named, msgspec.structs.replace(fetched, body=None), findings, discovered=False)
            return
        if known:
            await self._wake(channel, fetched, findings)
        elif await self._is_new(channel):
            await self._create(channel, fetched, findings)
        else:
            await self._begin_again(channel, fetched, findings)
        self._node.hubs_named(channel.id, *hubs_of(fetched, findings))

    async def _create(self, channel: Channel, fetched: FetchResult, findings: DetectionResult) -> None:
        now_s = time.time()
        channel = msgspec.structs.replace(channel, created_s=now_s, private=fetched.private)
        first = _first(fetched, findings, now_s)
        await self._store.channels.create(channel, first, tuple(reversed(findings.latest)), now_s)
        self._node.contents.put(channel.id, digest_of(first.content), first.content)

    async def _begin_again(self, channel: Channel, fetched: FetchResult, findings: DetectionResult) -> None:
        """Have a channel that nobody polls, or that has moved, go on from what is there now."""
        now_s, channels = time.time(), self._store.channels
        first, latest = _first(fetched, findings, now_s), tuple(reversed(findings.latest))
        done = None
        while done is None and (present := await channels.get(channel.id)) is not None:
            awake = msgspec.structs.replace(present, kind=channel.kind, dormant=False)
            done = await channels.take_over(channel.id, awake, first, latest, joins_at=0, now_s=now_s)
        await channels.finish_joining(channel.id, channel.id)

    async def _wake(self, channel: Channel, fetched: FetchResult, findings: DetectionResult) -> None:
        """Have the channel polled again: what it listed while it was dormant is nobody's news."""
        (state,) = await self._store.channels.adopt([channel.id], self._node.me.id)
        if state is None or not state.channel.dormant:
            return
        listed = tuple(Change("addition", entry) for entry in reversed(findings.latest))
        findings = msgspec.structs.replace(findings, changes=findings.changes + listed)
        find = build_update(state.channel, (), fetched.validators, findings, time.time())
        if find is not None:
            after = build_snapshot(find.candidate, await self._store.channels.content_entries(channel.id))
            after = msgspec.structs.replace(after, kind=channel.kind)
            with contextlib.suppress(LeaseLost, StaleVersion):  # another worker woke it up
                await self._store.channels.publish(find.candidate.delta, after, state.epoch, silent=True)


def _first(fetched: FetchResult, findings: DetectionResult, now_s: float) -> Snapshot:
    dates_s = [entry.published for entry in findings.latest if entry.published is not None]
    return Snapshot(
        fetched.validators,
        findings.baseline,
        findings.title,
        findings.link,
        findings.polling_hints,
        updates=UpdateHistory(estimate_from_dates(dates_s, now_s), now_s),
        language=findings.language,
        imprint=findings.metadata,
        latest=merge_latest([Change("addition", entry) for entry in reversed(findings.latest)], ()),
    )


def _keys(findings: DetectionResult) -> list[str]:
    return [entry.key for entry in findings.latest]
