"""One poll: politely fetch, have a killable child read it, and see what is new.

Corona §3.3: a node that finds a change makes a delta against the version it knows and offers it
to the channel's owner. A poll that fails changes nothing.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Container, Iterator
from contextvars import ContextVar
from math import inf
from typing import NamedTuple

import msgspec

from service.clock import Clock
from service.corona.messages import Candidate
from service.errors import BadStatus, LimitReached, NotAFeed, ParseKilled, PublisherError, UserError
from service.feeds.polling_hints import find_earliest_poll
from service.feeds.sandbox.protocol import DetectChanges, DetectionResult, Document
from service.feeds.urls import host_of
from service.model import Channel, Delta, NodeId, PollResult, Validators
from service.net.fetcher import Fetcher, FetchResult
from service.observability.metrics import DETECTION_DELAY, POLLS, PUBLISHER_BYTES_SAVED
from workers.peers.content_cache import BaselineCache
from workers.polling.concurrency_limits import FAST_FETCH_S, ConcurrencyLane, ConcurrencyLanes, publisher_of_state
from workers.polling.politeness import Politeness, charged_site, public_address_group
from workers.polling.poll_state import DetectedUpdate, PollState, condition, day_of, documents_of, found, kept, moved_on

_NEWEST_DELAY_S = 86_400.0
_MOST_ARCHIVES = 3
"""Pages of older entries (RFC 5005) that one poll reads after polls were missed."""
_ARCHIVES_WITHIN_S = 20.0
_PUSHES_WAIT_S = 10.0
"""How long pushed documents wait for a slot and the parser, before the channel is polled instead."""


_LISTENER: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


def tell(words: str) -> None:
    """Tell whoever asked for this poll its next step, in a few words for people."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(words)


@contextlib.contextmanager
def listening(listener: Callable[[str], None]) -> Iterator[None]:
    """Hear the steps that this task tells."""
    before = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(before)


class PollOutcome(msgspec.Struct, frozen=True):
    """How one poll went: its result, what it found, and what the publisher said besides.

    ``permanent_url`` is where the channel is from now on; ``hubs`` tell of news of ``topic`` (WebSub), if a
    document came that names any.
    """

    result: PollResult
    found: DetectedUpdate | None = None
    permanent_url: str = ""
    hubs: tuple[str, ...] = ()
    topic: str = ""


class _Compared(NamedTuple):
    """What a document said; no findings if there was none to read."""

    found: DetectedUpdate | None
    findings: DetectionResult | None = None


class Poller:
    """Polls publishers for one node, as often as the fleet's politeness allows."""

    def __init__(
        self, fetcher: Fetcher, politeness: Politeness, lanes: ConcurrencyLanes, baselines: BaselineCache, clock: Clock
    ) -> None:
        self._fetcher = fetcher
        self._courtesy = politeness
        self._lanes = lanes
        self._memories = baselines
        self._clock = clock

    def set_blocked_hosts(self, blocked: Container[str]) -> None:
        """Ask none of these hosts, and none of these domains, from now on."""
        self._courtesy.set_blocked_hosts(blocked)

    def raise_if_blocked(self, channel: Channel) -> None:
        """Raise :class:`HostBlocked` if nothing is to be had of a channel's host."""
        self._courtesy.raise_if_blocked(host_of(channel.url))

    async def acquire_poll(self, watch: PollState) -> None:
        """Return as soon as a channel may be polled. Raises as :meth:`Politeness.acquire_request`."""
        await self._courtesy.acquire_poll(watch.channel, watch.address_group)

    async def poll(self, watch: PollState, node: NodeId, before_s: float = inf) -> PollOutcome:
        """Poll once, after :meth:`acquire_poll`; ``watch`` is updated in place unless something was found.

        The result tells how it ended, errors of publishers included. Raises :class:`LimitReached` when the
        publisher may not be asked now, or was not before ``before_s`` (of the monotonic clock), and our own errors.
        """
        started_s = self._clock.monotonic_s()
        fetched, compared, status, detail = None, _Compared(None), 0, ""
        lane, publisher = self._lanes.choose_for_poll(watch), publisher_of_state(watch)
        try:
            async with lane.site(publisher):
                await self._courtesy.acquire_site(watch.channel)
                tell("The site may be asked.")
                full = lane.is_full(publisher)
                async with lane.slot(publisher):
                    if full:
                        await self._courtesy.acquire_site(watch.channel)
                    self._refuse_after(before_s)
                    started_s, watch.slow = self._clock.monotonic_s(), False
                    with self._timed(watch):
                        fetched = await self._fetch(watch)
                    status = fetched.status
                    compared = await self._compare(watch, fetched)
                    await self._apply_polling_hints(watch, fetched)
            outcome = "new" if compared.found else "unchanged"
        except LimitReached:
            raise
        except (PublisherError, UserError) as error:
            outcome, detail = error.code, str(error)
            if isinstance(error, BadStatus):
                status = error.status
        POLLS.labels(outcome).inc()
        took_s = self._clock.monotonic_s() - started_s
        size_bytes = len(fetched.body or b"") if fetched else 0
        result = PollResult(node, self._clock.wall_s(), outcome, status, detail, took_s, size_bytes)
        return _poll(result, fetched, compared)

    def _refuse_after(self, before_s: float) -> None:
        if self._clock.monotonic_s() > before_s:
            raise LimitReached("This worker has more to poll than it can: it was another's turn by then.")

    @contextlib.asynccontextmanager
    async def hold_push_slot(self, watch: PollState, size_bytes: int) -> AsyncIterator[ConcurrencyLane]:
        """Hold a slot and the parser for documents of a channel that were pushed to us, ``size_bytes`` together.

        Raises :class:`LimitReached` when there is no room in time.
        """
        lane = self._lanes.choose_for_document(watch, size_bytes)
        publisher = publisher_of_state(watch)
        await self._memories.of(watch.channel, watch.digest)  # what has to be located is not waited for with them held
        async with contextlib.AsyncExitStack() as held:
            try:
                async with asyncio.timeout(_PUSHES_WAIT_S):
                    for part in (lane.site(publisher), lane.slot(publisher), lane.parser(publisher)):
                        await held.enter_async_context(part)
            except TimeoutError:
                raise LimitReached("This worker has more to read than it can: what was pushed is polled.") from None
            yield lane

    async def compare_pushed(self, watch: PollState, pushed: Document, lane: ConcurrencyLane) -> DetectedUpdate | None:
        """Return what a pushed document says that is new, read in the lane of :meth:`hold_push_slot`.

        Raises the :class:`PublisherError` of one that cannot be read, or not promptly.
        """
        return (await self._compare_all(watch, documents_of(watch, pushed), watch.validators, lane)).found

    async def compare_again(self, watch: PollState, find: DetectedUpdate) -> DetectedUpdate | None:
        """Return what a find says besides the version of ``watch``. Raises :class:`PublisherError`.

        A page may say less than its version, which another node may have found later: its next poll decides.
        """
        if watch.channel.kind == "page":
            return None
        return (await self._compare_all(watch, find.documents, find.candidate.validators)).found

    def versioned(self, before: PollState, after: PollState, candidate: Candidate) -> None:
        """Compare with what a find of ours leaves, which was versioned."""
        self._memories.versioned(after.channel, candidate.delta, candidate.memory, before.digest, after.digest)

    async def address_group(self, channel: Channel) -> str:
        """Return the address group of a channel that nobody has asked for yet; "" if it is private, or not known."""
        if not charged_site(channel):
            return ""
        return public_address_group(await self._fetcher.address_of(host_of(channel.url)))

    async def fetch_unknown(self, channel: Channel, within_s: float) -> FetchResult:
        """Fetch what nobody polls. Raises a publisher's error, or :class:`LimitReached`."""
        until_s = self._clock.monotonic_s() + within_s
        host = host_of(channel.url)
        try:
            async with asyncio.timeout(within_s):
                await self._courtesy.acquire_request(channel)
        except TimeoutError:
            raise LimitReached(f"{host} was not asked: others ask for it just now. Try again in a minute.") from None
        return await self._fetch(PollState(channel, Validators(), 0), until_s - self._clock.monotonic_s())

    async def _fetch(self, watch: PollState, within_s: float = inf) -> FetchResult:
        now_s = self._clock.wall_s()
        known = condition(watch, now_s)
        conditional = known.etag or known.last_modified
        wanted = "what has changed since" if conditional else "the whole document"
        tell(f"Asks {host_of(watch.channel.url)} for {wanted}.")
        try:
            fetched = await self._fetcher.fetch(
                watch.channel.url,
                known,
                watch.subscribers,
                self._courtesy.acquire_redirect,
                within_s=within_s,
            )
        except BadStatus as error:
            if error.retry_after_s:
                await self._courtesy.pause(watch.channel, error.retry_after_s)
            raise
        _tell_answer(fetched)
        watch.full_day = day_of(watch.channel, now_s)
        watch.address_group = await self._courtesy.charge_network(fetched.address, watch.address_group)
        return fetched

    async def _apply_polling_hints(self, watch: PollState, fetched: FetchResult) -> None:
        """Have the fleet leave a public channel alone for as long as its publisher wants that."""
        if watch.channel.private:
            return
        now_s = self._clock.wall_s()
        await self._courtesy.apply_polling_hint(
            watch.channel, find_earliest_poll(fetched.headers, watch.wishes, now_s).not_before_s - now_s
        )

    async def _compare(self, watch: PollState, fetched: FetchResult) -> _Compared:
        arrived = document(fetched) if fetched.body is not None else None
        if arrived is not None and fetched.validators.body_sha256 == watch.deadly_sha256:
            raise ParseKilled("The document is still the one that used up a parser's time or memory.")
        documents = documents_of(watch, arrived)
        if not documents and not watch.channel.dormant:
            tell("The document is as it was: nothing to read.")
            watch.validators = fetched.validators
            return _Compared(None)
        try:
            return await self._compare_all(watch, documents, fetched.validators)
        except ParseKilled:
            if watch.unversioned:  # too much together; each alone was not
                watch.unversioned = watch.unversioned[1:]
            elif not fetched.partial:  # else the hash is that of the last whole one
                watch.deadly_sha256 = fetched.validators.body_sha256
            raise

    async def _compare_all(
        self,
        watch: PollState,
        documents: tuple[Document, ...],
        validators: Validators,
        held: ConcurrencyLane | None = None,
    ) -> _Compared:
        """Compare documents with what is remembered; ``held``: the lane of which the caller holds the child to use."""
        base = watch.channel
        memory, located = await self._memories.of(base, watch.digest)
        if located is not None and located.version != base.version:
            # Somebody was faster, and has woken it up: what is silent now would be lost.
            base = msgspec.structs.replace(base, version=located.version, dormant=False)
        findings = DetectionResult(memory, polling_hints=watch.wishes)
        if documents:
            if located is not None and located.source != "publisher":
                # Else they would have been fetched once more, earlier, to be the base.
                PUBLISHER_BYTES_SAVED.inc(sum(len(document.body) for document in documents))
            if held is not None:
                findings = await self._examined(watch, documents, memory, held)
                watch.wishes = findings.polling_hints
            else:
                documents, findings = await self._read(watch, documents, memory)
        news = found(base, documents, validators, findings, self._clock.wall_s())
        tell(_told(news))
        if news is None:
            moved_on(watch, documents, validators)
            self._memories.keep(base, findings.baseline)
        else:
            kept(watch, documents)
            _measure(news.candidate.delta)
        return _Compared(news, findings if documents else None)

    async def _read(
        self, watch: PollState, documents: tuple[Document, ...], memory: bytes
    ) -> tuple[tuple[Document, ...], DetectionResult]:
        """Return what the documents say, and with them the archives that make up for polls that were missed."""
        findings = await self._examined(watch, documents, memory)
        watch.wishes = findings.polling_hints
        # What goes wrong with an archive must not spoil what we have.
        with contextlib.suppress(PublisherError, UserError, TimeoutError), self._timed(watch):
            async with asyncio.timeout(_ARCHIVES_WITHIN_S):
                for _ in range(_MOST_ARCHIVES):
                    if not findings.older_url:
                        break
                    more = (await self._older(findings.older_url), *documents)
                    findings = await self._examined(watch, more, memory)
                    documents = more
        return documents, findings

    async def _examined(
        self, watch: PollState, documents: tuple[Document, ...], memory: bytes, held: ConcurrencyLane | None = None
    ) -> DetectionResult:
        channel = watch.channel
        job = DetectChanges(documents, memory, channel.url, channel.kind, self._clock.wall_s())
        try:
            return await (held or self._lanes).detect_changes(job, watch)
        except NotAFeed as error:
            if channel.kind == "page":
                raise
            raise NotAFeed(f"{channel.url} answers with a page that is not a feed (any more).") from error

    async def _older(self, url: str) -> Document:
        await self._courtesy.acquire_redirect(host_of(url))
        return document(await self._fetcher.fetch(url, None, 0, self._courtesy.acquire_redirect))

    @contextlib.contextmanager
    def _timed(self, watch: PollState) -> Iterator[None]:
        started_s = self._clock.monotonic_s()
        try:
            yield
        finally:
            if self._clock.monotonic_s() - started_s > FAST_FETCH_S:
                watch.slow = True


def _poll(result: PollResult, fetched: FetchResult | None, compared: _Compared) -> PollOutcome:
    permanent_url = (fetched and fetched.permanent_url) or ""
    if fetched is None or compared.findings is None:
        return PollOutcome(result, compared.found, permanent_url)
    return PollOutcome(result, compared.found, permanent_url, *hubs_of(fetched, compared.findings))


def _tell_answer(fetched: FetchResult) -> None:
    size = f"{len(fetched.body):,} bytes" if fetched.body is not None else "no body"
    tell(f"{fetched.address or fetched.url} answered {fetched.status}, {size}.")
    if fetched.permanent_url:
        tell(f"It has moved for good, to {fetched.permanent_url}.")


def _told(news: DetectedUpdate | None) -> str:
    if news is None:
        return "Read and compared: nothing is new."
    changes = len(news.candidate.delta.changes)
    return f"Read and compared: {changes} change{'' if changes == 1 else 's'}."


def hubs_of(fetched: FetchResult, findings: DetectionResult) -> tuple[tuple[str, ...], str]:
    """Return the hubs that a document names, and the topic they know it by; headers come first (WebSub §4)."""
    return fetched.links.hubs or findings.hubs, fetched.links.topic or findings.topic or fetched.url


def document(fetched: FetchResult) -> Document:
    """Return what was fetched, as what is read."""
    headers = {name: fetched.headers[name] for name in _READ_BY if name in fetched.headers}
    return Document(fetched.body or b"", fetched.url, headers, fetched.partial)


_READ_BY = ("content-type", "content-language")


def _measure(delta: Delta) -> None:
    for change in delta.changes:
        published_s = change.entry.published
        # What is dated in the future or long ago says nothing about how fast we are.
        if published_s is not None and 0 <= delta.detected_s - published_s <= _NEWEST_DELAY_S:
            DETECTION_DELAY.observe(delta.detected_s - published_s)
