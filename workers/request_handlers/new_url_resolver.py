"""Resolves a URL that a user has entered: to a feed, to the feeds to which a page links, or to the page itself."""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
from cachetools import TTLCache

from service.errors import (
    BadUrl,
    EmptyBody,
    FeedError,
    LimitReached,
    NotAFeed,
    PublisherError,
    UserError,
)
from service.feeds.canonical_urls import (
    canonical_url,
    channel_id,
    https_variant,
    origin_of,
    protected_url,
    reader_of,
    selector_of,
)
from service.feeds.credentials import Credential
from service.feeds.pages.feed_url_guesses import likely_feeds, site_feeds
from service.feeds.sandbox.protocol import DetectionResult, Document
from service.model import Channel, FeedLink
from service.net.fetcher import FetchResult
from service.store import Store
from service.store.channels.channel_records import ChannelState
from service.store.coordination.worker_requests import ProbeReply, ProbeRequest
from workers.node import Node
from workers.polling.publisher_requests import document_of
from workers.request_handlers.channel_creation import ChannelCreator
from workers.request_handlers.prober import Prober

_MAX_LATEST = 10
_SECOND_FETCH_DELAY_S = 1.5

_FETCHED_BY_S = 6.5
_PARSED_BY_S = 8.5
"""Deadlines of a probe, for which a user waits: all documents must be fetched by ``_FETCHED_BY_S`` and parsed by
``_PARSED_BY_S``, in seconds after its start."""
_MIN_FETCH_TIMEOUT_S = 1.0
_TLS_TIMEOUT_S = 2.0

_MAX_CACHED: Final = 16
"""Maximum number of cached results. It is small, because the baseline of a page may be as large as the page."""
_CACHE_TTL_S: Final = 600.0


class ResolvedUrl(msgspec.Struct, frozen=True):
    """The channel (feed or page) at a URL.

    - ``fetched`` is the publisher's response without the body, and ``findings`` are the parser's results. Both are None
      if the channel is already polled.
    - ``exists`` is True if the channel already exists, even if it is dormant (not polled).
    - ``discovered`` is True if the feed was found through another URL.
    """

    channel: Channel
    fetched: FetchResult | None = None
    findings: DetectionResult | None = None
    exists: bool = False
    discovered: bool = False


ResolutionCache = TTLCache[tuple[str, bool], ResolvedUrl]
"""Channels that were found for a preview but not created. The keys are pairs (URL, whether it was resolved as a
page)."""


def create_resolution_cache() -> ResolutionCache:
    """Create an empty cache for resolved URLs."""
    # It saves requests if a URL is first previewed, and shortly afterwards probed again to create its channel.
    return TTLCache(_MAX_CACHED, _CACHE_TTL_S)


class _Page(NamedTuple):
    """A page that was found instead of a feed, the feeds to which it links, and guesses of its feeds' URLs."""

    document: Document
    channel: Channel
    links: tuple[FeedLink, ...] = ()
    guesses: tuple[str, ...] = ()
    error: NotAFeed | None = None


class NewUrlResolver:
    """Resolves one URL to a channel, on behalf of the node that received the request."""

    def __init__(
        self, store: Store, prober: Prober, node: Node, cache: ResolutionCache, credential: Credential | None
    ) -> None:
        """Create the resolver for one request on ``node``; ``cache`` contains the results of recent requests.

        ``credential`` is the credential in the request, which is sent only with requests for protected channels.
        """
        self._store = store
        self._credential = credential
        self._prober = prober
        self._node = node
        self._creator = ChannelCreator(store, node)
        self._began_s = time.monotonic()
        self._cache = cache
        self._address = ""
        """The IP address that sent the last response."""
        self._slot = contextlib.AsyncExitStack()
        self._has_slot = False

    async def probe(self, request: ProbeRequest) -> ProbeReply:
        """Return the channel at the URL in ``request``: a feed, or the page itself if ``request.as_page``.

        - If no single feed is found, the reply offers several feeds or the page instead.
        - With ``request.keep``, the channel is created if necessary, and polled from then on.
        - Without ``request.keep``, no channel is created. The result is cached, in case the request is repeated with
          ``keep``.

        If the URL cannot be used, raises an error with a text for the user.
        """
        key = request.url, request.as_page
        cached = self._cache.pop(key, None) if request.keep and self._credential is None else None
        if cached is not None and await self._is_new(cached.channel):
            return await self._keep(cached)
        try:
            async with self._slot:
                found = await (
                    self._resolve_page(request.url, afresh=request.afresh)
                    if request.as_page
                    else self._resolve(request.url)
                )
        except LimitReached:
            # A user can subscribe to a known channel without a request: its next poll wakes it up.
            known = await self._store.channels.resolve(channel_id(request.url))
            is_other_kind = known is not None and request.as_page and known.kind != "page"
            if known is None or is_other_kind or self._credential is not None:
                raise
            found = ResolvedUrl(known)
        if isinstance(found, ProbeReply):
            return found
        return await (self._keep(found, request.credential) if request.keep else self._preview(found, key))

    async def _keep(self, found: ResolvedUrl, sealed: str = "") -> ProbeReply:
        """Create the channel in ``found``, or wake it up if it is dormant; return it with its latest entries.

        If the channel is protected, ``sealed`` is its new credential.
        """
        if found.fetched is not None and found.findings is not None:
            await self._creator.create_or_wake(found.channel, found.fetched, found.findings, exists=found.exists)
        if sealed and reader_of(found.channel.url):
            await self._store.credentials.put(found.channel.id, sealed)
            if found.exists:
                self._node.on_credential_replaced(found.channel.id)
        # The channel has an owner from now on, so that polls have begun by the time the user subscribes.
        await self._node.owner.expect_subscribers(found.channel.id)
        latest = await self._store.channels.latest(found.channel.id, _MAX_LATEST)
        return ProbeReply(await self._store.channels.get(found.channel.id), latest, discovered=found.discovered)

    async def _preview(self, found: ResolvedUrl, key: tuple[str, bool]) -> ProbeReply:
        """Return the channel in ``found`` with its latest entries; if the channel is new, cache it under ``key``."""
        channel, findings = found.channel, found.findings
        if findings is None:
            latest = await self._store.channels.latest(channel.id, _MAX_LATEST)
        else:
            latest = findings.latest[:_MAX_LATEST]
            channel = msgspec.structs.replace(channel, title=findings.title or channel.title, link=findings.link)
            if self._credential is None and await self._is_new(channel):
                self._cache[key] = msgspec.structs.replace(found, channel=channel)
        return ProbeReply(channel, latest, discovered=found.discovered)

    async def _is_new(self, channel: Channel) -> bool:
        return await self._store.channels.get(channel.id) is None

    def _left_s(self, by_s: float) -> float:
        """Return how many seconds remain of a time limit.

        ``by_s`` is the limit in seconds, counted from the start of the probe.
        """
        return self._began_s + by_s - time.monotonic()

    async def _resolve(self, url: str) -> ResolvedUrl | ProbeReply:
        """Find the feed of the page at ``url``, or the feed at ``url`` itself.

        The feed is, in this order: one that the site's rule names, one to which the page links, one at a URL that looks
        like a feed in the page, or one at a common URL of the site. If the rule or the page names several feeds, return
        a reply that offers these feeds. If no feed is found, return a reply that offers the page.
        """
        feeds = site_feeds(url)
        if feed := await self._find_feed(url, [each.url for each in feeds]):
            return ProbeReply(choices=feeds) if len(feeds) > 1 else feed
        page = await self._resolve_feed(url)
        if isinstance(page, ResolvedUrl):
            return page
        if len(page.links) > 1:
            return ProbeReply(choices=page.links)
        if page.links:
            return await self._resolve_discovered(self._like(url, canonical_url(page.links[0].url)))
        if feed := await self._find_feed(url, [*page.guesses, *likely_feeds(url)]):
            return feed
        # If the page cannot be watched, this raises the error.
        await self._detect_changes((page.document,), msgspec.structs.replace(page.channel, kind="page"), b"")
        return ProbeReply(page=True)

    async def _find_feed(self, page_url: str, guesses: Sequence[str]) -> ResolvedUrl | None:
        """Return the feed at the first of ``guesses`` that is one; None if there is none.

        ``page_url`` is the URL that the user entered. If it is that of a protected channel, so is a feed of its origin.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._left_s(_FETCHED_BY_S)):
                for guess in guesses:
                    # Errors at a guessed URL are of no interest to the user.
                    with contextlib.suppress(PublisherError, UserError):
                        return await self._resolve_discovered(self._like(page_url, guess))
        return None

    async def _resolve_discovered(self, url: str) -> ResolvedUrl:
        """Return the feed at a URL that the user did not enter, such as one to which a page links.

        Raises :class:`NotAFeed` if there is no feed.
        """
        feed = await self._resolve_feed(url)
        if isinstance(feed, _Page):
            raise feed.error or NotAFeed(f"{url} is a page that is no feed.")
        return msgspec.structs.replace(feed, discovered=True)

    async def _resolve_feed(self, url: str) -> ResolvedUrl | _Page:
        """Return the feed at ``url``, or the page if there is a page at this URL instead."""
        state, baseline = await self._load(url)
        if state is not None and not state.channel.dormant and self._credential_for(url) is None:
            return ResolvedUrl(state.channel)
        channel = state.channel if state else Channel(channel_id(url), url)
        fetched = await self._fetch(channel)
        arrived = document_of(fetched)
        try:
            channel, findings = await self._parse(arrived, channel, baseline)
        except NotAFeed as error:
            if not arrived.is_page:
                raise
            return _Page(arrived, channel, error=error)
        if findings.links or findings.guesses:
            return _Page(arrived, channel, findings.links, findings.guesses)
        if state is None and (variant := await self._find_tls_variant(channel, findings)):
            return variant
        return _resolved(channel, fetched, findings, state)

    async def _find_tls_variant(self, plain: Channel, findings: DetectionResult) -> ResolvedUrl | None:
        """Return the channel at the https URL if it provides the same feed as ``plain``, otherwise None.

        ``plain`` is the channel at the http URL, and ``findings`` are the parser's results for that channel.
        """
        url = https_variant(plain.url)
        if not url or reader_of(url):
            return None
        with contextlib.suppress(PublisherError, UserError, TimeoutError):
            async with asyncio.timeout(min(_TLS_TIMEOUT_S, self._left_s(_FETCHED_BY_S))):
                state, baseline = await self._load(url)
                variant = state.channel if state else Channel(channel_id(url), url)
                again = await self._fetch(variant)
            same = await self._detect_changes((document_of(again),), msgspec.structs.replace(plain, url=url), b"")
            if same.latest and _keys(same) == _keys(findings):
                if state is not None and not variant.dormant:
                    return ResolvedUrl(variant)
                if state is not None:
                    variant, same = await self._parse(document_of(again), variant, baseline)
                return _resolved(variant, again, same, state)
        return None

    async def _resolve_page(self, url: str, *, afresh: bool) -> ResolvedUrl:
        """Return the channel that watches the page at ``url``.

        If there is no channel yet, the page is fetched twice, to find the lines that differ at every request. With
        ``afresh``, an existing channel is used only if it is active and has exactly this URL.
        """
        # The second fetch shows which lines change by themselves (clocks, ads).
        state, baseline = await self._load(url)
        is_active = state is not None and not state.channel.dormant and self._credential_for(url) is None
        if state is not None and is_active and (state.channel.url == url or not afresh):
            return ResolvedUrl(state.channel)
        if afresh:
            state, baseline = None, b""
        channel = state.channel if state else Channel(channel_id(url), url, kind="page")
        if channel.kind == "feed" and not await self._store.subscriptions.count(channel.id):
            channel, baseline = msgspec.structs.replace(channel, kind="page"), b""
        fetched = await self._fetch(channel)
        first = document_of(fetched)
        documents = (first,) if baseline else (first, await self._fetch_again(channel) or first)
        try:
            findings = await self._detect_changes(documents, channel, baseline)
        except EmptyBody as error:
            if not selector_of(channel.url):
                raise
            raise BadUrl(error.sentence, **error.values) from error
        return _resolved(channel, fetched, findings, state)

    async def _parse(self, arrived: Document, channel: Channel, baseline: bytes) -> tuple[Channel, DetectionResult]:
        """Parse a fetched document; return its channel and the changes in it.

        ``baseline`` is the state with which the document is compared. If a page without subscribers has become a feed,
        the returned channel is a feed.
        """
        if channel.kind == "page" and not arrived.is_page and not await self._store.subscriptions.count(channel.id):
            feed = msgspec.structs.replace(channel, kind="feed")
            with contextlib.suppress(FeedError):
                return feed, await self._detect_changes((arrived,), feed, b"")
        return channel, await self._detect_changes((arrived,), channel, baseline)

    async def _fetch_again(self, channel: Channel) -> Document | None:
        await asyncio.sleep(_SECOND_FETCH_DELAY_S)
        with contextlib.suppress(PublisherError, UserError):
            return document_of(await self._fetch(channel))
        return None

    async def _fetch(self, channel: Channel) -> FetchResult:
        if not self._has_slot:  # a probe without a request needs no slot
            await self._slot.enter_async_context(self._prober.hold_slot(channel))
            self._has_slot = True
        timeout_s = max(self._left_s(_FETCHED_BY_S), _MIN_FETCH_TIMEOUT_S)
        fetched = await self._prober.fetch(channel, timeout_s, self._credential_for(channel.url))
        self._address = fetched.address
        return fetched

    def _credential_for(self, url: str) -> Credential | None:
        """Return the credential in the request if the channel at ``url`` is protected, otherwise None."""
        return self._credential if reader_of(url) else None

    def _like(self, url: str, found: str) -> str:
        """Return the URL of the channel for ``found``, a URL to which the document at ``url`` has led.

        It is protected if the requested channel is, and if both have the same origin. Otherwise the credential is not
        sent.
        """
        reader = reader_of(url)
        return protected_url(found, reader) if reader and origin_of(found) == origin_of(url) else found

    async def _load(self, url: str) -> tuple[ChannelState | None, bytes]:
        """Return the stored state and the baseline of the channel at ``url``.

        The baseline is the state with which documents are compared. If the channel has moved to another URL, the state
        and baseline of the channel at the new URL are returned. If there is no channel, the result is ``(None, b"")``.
        """
        channel = await self._store.channels.resolve(channel_id(url))
        if channel is None:
            return None, b""
        (state,) = await self._store.channels.states([channel.id])
        return state, (await self._store.channels.content(channel.id))[2].memory

    async def _detect_changes(
        self, documents: tuple[Document, ...], channel: Channel, baseline: bytes
    ) -> DetectionResult:
        return await self._prober.detect_changes(
            channel, documents, baseline, address=self._address, timeout_s=self._left_s(_PARSED_BY_S)
        )


def _resolved(
    channel: Channel, fetched: FetchResult, findings: DetectionResult, state: ChannelState | None
) -> ResolvedUrl:
    return ResolvedUrl(channel, msgspec.structs.replace(fetched, body=None), findings, exists=state is not None)


def _keys(findings: DetectionResult) -> list[str]:
    return [entry.key for entry in findings.latest]
