"""The prober, which fetches URLs that are not polled yet while a user waits: for previews, new channels and OPML."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import structlog

from service.clock import Clock
from service.errors import AddressRefused, CoronetError, LimitReached, PortRefused
from service.feeds.canonical_urls import host_of
from service.feeds.credentials import Credential
from service.feeds.sandbox.protocol import DetectChanges, DetectionResult, Document
from service.model import Channel, Validators
from service.net.fetcher import Fetcher, FetchResult
from workers.polling.concurrency_limits import ConcurrencyLanes
from workers.polling.politeness import Politeness, charged_site, public_address_group
from workers.polling.poll_state import PollState
from workers.polling.publisher_requests import document_of, fetch_politely

_log = structlog.get_logger()


class Prober:
    """Fetches and parses documents of channels that are not polled yet, within the politeness limits.

    ``lanes`` limit how many requests run at once.
    """

    # They are separate from the limits on polls, so that users do not wait for polls.

    def __init__(self, fetcher: Fetcher, politeness: Politeness, lanes: ConcurrencyLanes, clock: Clock) -> None:
        self._fetcher = fetcher
        self._politeness = politeness
        self._lanes = lanes
        self._clock = clock
        self._reading: set[asyncio.Task[str]] = set()

    @contextlib.asynccontextmanager
    async def hold_slot(self, channel: Channel) -> AsyncIterator[None]:
        """Hold a slot for a channel's publisher inside this context.

        Raises :class:`PublisherError` if the publisher's host is not found, and :class:`LimitReached` if no slot is
        free within 5 s.
        """
        host, group = host_of(channel.url), ""
        if charged_site(channel):
            group = public_address_group(await self._fetcher.address_of(host))
        async with self._lanes.hold_slot(PollState(channel, Validators(), 0, address_group=group)):
            yield

    async def fetch(self, channel: Channel, timeout_s: float, credential: Credential | None = None) -> FetchResult:
        """Fetch a channel's document. The caller must hold a slot for the channel's publisher.

        If the channel is protected, ``credential`` replaces its stored credential.

        Raises :class:`PublisherError` if the fetch fails, :class:`LimitReached` if no request is allowed within
        ``timeout_s`` seconds, and :class:`AddressRefused` if the connection is not allowed. The log then names the
        setting by which the operator can allow it.
        """
        until_s = self._clock.monotonic_s() + timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await self._politeness.acquire_request(channel)
        except TimeoutError:
            raise LimitReached(
                f"Other requests to {host_of(channel.url)} are waiting. Try again in a minute."
            ) from None
        state, left_s = PollState(channel, Validators(), 0), until_s - self._clock.monotonic_s()
        try:
            return await fetch_politely(
                self._fetcher, self._politeness, state, Validators(), left_s, credential=credential
            )
        except AddressRefused as error:
            setting = "extra_ports" if isinstance(error, PortRefused) else "allowed_networks"
            _log.info("fetch refused", host=host_of(channel.url), error=str(error), allowed_by=setting)
            raise

    async def read_article(self, page: Channel, within_s: float) -> str:
        """Return the beginning of the article at a page; "" if it has none, or if it is not read in ``within_s`` s.

        The prober must have parsers for articles.
        """
        # It is not cancelled: a parser that is killed while it starts would never be ready on a slow machine.
        reading = asyncio.create_task(self._read_article(page, within_s))
        self._reading.add(reading)
        reading.add_done_callback(self._reading.discard)
        await asyncio.wait({reading}, timeout=within_s)
        return reading.result() if reading.done() else ""

    async def _read_article(self, page: Channel, within_s: float) -> str:
        try:
            async with self.hold_slot(page):
                fetched = await self.fetch(page, within_s)
                job = DetectChanges((document_of(fetched),), b"", page.url, "article", self._clock.wall_s())
                state = PollState(page, Validators(), 0, address_group=public_address_group(fetched.address))
                return (await self._lanes.detect_changes(job, state)).article
        except CoronetError as error:
            _log.info("article not read", host=host_of(page.url), error=str(error))
            return ""

    async def detect_changes(
        self, channel: Channel, documents: tuple[Document, ...], baseline: bytes, *, address: str, timeout_s: float
    ) -> DetectionResult:
        """Compare ``documents`` of a channel with ``baseline``, and return the changes.

        - ``baseline``: the encoded state with which the documents are compared; b"" if there is none.
        - ``address``: the IP address that sent the documents.
        - ``timeout_s``: the maximum duration of parsing in seconds.

        Raises the errors of :meth:`ParserClient.detect_changes`.
        """
        job = DetectChanges(documents, baseline, channel.url, channel.kind, self._clock.wall_s())
        state = PollState(channel, Validators(), 0, address_group=public_address_group(address))
        return await self._lanes.detect_changes(job, state, timeout_s)
