"""One poll of a publisher: an HTTP request within the politeness limits, parsing in a separate process, a comparison.

Corona §3.3: a node that detects a change computes a delta against the version that it knows, and offers the delta to
the channel's owner. A poll that fails changes nothing.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Container, Iterator
from math import inf
from typing import NamedTuple

import msgspec

from service.clock import Clock
from service.corona.messages import Candidate
from service.errors import (
    BadStatus,
    LimitReached,
    NotAFeed,
    ParseKilled,
    PublisherError,
    RequestsPaused,
    UserError,
)
from service.feeds.polling_hints import find_earliest_poll, shortest_interval_s, skipped_s, with_freshness
from service.feeds.sandbox.protocol import DetectChanges, DetectionResult, Document
from service.feeds.urls import host_of
from service.model import Channel, Delta, NodeId, PollResult, Validators
from service.net.fetcher import Fetcher, FetchResult
from service.observability.metrics import DETECTION_DELAY, POLLS, PUBLISHER_BYTES_SAVED
from workers.peers.content_cache import BaselineCache
from workers.polling.concurrency_limits import FAST_FETCH_S, ConcurrencyLane, ConcurrencyLanes, publisher_of_state
from workers.polling.politeness import Politeness, charged_site, public_address_group
from workers.polling.poll_state import (
    DetectedUpdate,
    PollState,
    accept_unchanged,
    build_update,
    channel_day,
    conditional_validators,
    documents_to_compare,
    keep_unversioned,
)
from workers.polling.poll_trace import trace, trace_request, trace_response, trace_update

_MAX_MEASURED_DELAY_S = 86_400.0
_MAX_ARCHIVES = 3
"""Documents with older entries (RFC 5005) that one poll reads after polls were missed."""
_ARCHIVES_TIMEOUT_S = 20.0
_PUSH_SLOT_TIMEOUT_S = 10.0
"""How long pushed documents wait for a slot and the parser before the channel is polled instead."""
_HINT_SHARE = 0.95
"""Share of a wait, by the publisher's hints, after which a poll is granted: schedules keep the interval, but polls of a
schedule are not equally late.
"""
_PARSING_HEADERS = ("content-type", "content-language")


class PollOutcome(msgspec.Struct, frozen=True):
    """The result of one poll, and the update that it detected, or None.

    ``permanent_url`` is the channel's new URL after a permanent redirect, else "". ``topic`` is the document's own URL
    as the document states it, and ``hubs`` are the WebSub hubs that it names. ``topic`` is "" if there was no document,
    or the document names no topic. ``hint_s`` is the shortest interval in seconds between polls that the publisher asks
    for, or 0.0.
    """

    result: PollResult
    update: DetectedUpdate | None = None
    permanent_url: str = ""
    hubs: tuple[str, ...] = ()
    topic: str = ""
    hint_s: float = 0.0


class _Comparison(NamedTuple):
    """The update that a comparison of documents found, or None, and the findings of the parser.

    ``findings`` is None if there was nothing to parse.
    """

    update: DetectedUpdate | None
    findings: DetectionResult | None = None


class Poller:
    """Polls publishers for the nodes of one worker, within the politeness and concurrency limits."""

    def __init__(
        self,
        fetcher: Fetcher,
        politeness: Politeness,
        lanes: ConcurrencyLanes,
        baselines: BaselineCache,
        clock: Clock,
    ) -> None:
        self._fetcher = fetcher
        self._politeness = politeness
        self._lanes = lanes
        self._baselines = baselines
        self._clock = clock

    def set_blocked_hosts(self, blocked_hosts: Container[str]) -> None:
        """Block requests to these hosts and domains with their subdomains; unblock all others."""
        self._politeness.set_blocked_hosts(blocked_hosts)

    def raise_if_blocked(self, channel: Channel) -> None:
        """Raise :class:`HostBlocked` if an admin has blocked a channel's host."""
        self._politeness.raise_if_blocked(host_of(channel.url))

    async def acquire_poll(self, state: PollState) -> None:
        """Wait until a channel may be polled, and take the request tokens for the poll.

        Raises the errors of :meth:`Politeness.acquire_poll`, and :class:`RequestsPaused` in hours or on days that the
        publisher excludes.
        """
        paused_s = 0.0 if state.channel.private else skipped_s(state.polling_hints, self._clock.wall_s())
        if paused_s:
            raise RequestsPaused(f"The publisher excludes polls for another {paused_s:.0f} s.", paused_s=paused_s)
        await self._politeness.acquire_poll(state.channel, state.subscribers, state.address_group)

    async def poll(self, state: PollState, node: NodeId, before_s: float = inf) -> PollOutcome:
        """Poll a channel once for ``node``; the caller has called :meth:`acquire_poll` before.

        ``state`` is updated in place, so that the next poll continues from this one. Errors of the publisher are part
        of the outcome. Raises :class:`LimitReached` if the site's budget grants no request, or if the request cannot
        begin by ``before_s`` (monotonic s), and raises Coronet's own errors.
        """
        started_s = self._clock.monotonic_s()
        fetched, comparison, status, detail = None, _Comparison(None), 0, ""
        lane, publisher = self._lanes.choose_for_poll(state), publisher_of_state(state)
        try:
            async with lane.site(publisher):
                await self._politeness.acquire_site(state.channel)
                trace("The request limit of the site allows a request.")
                was_full = lane.is_full(publisher)
                async with lane.slot(publisher):
                    if was_full:  # the token was taken before the wait for a slot
                        await self._politeness.acquire_site(state.channel)
                    self._raise_if_late(before_s)
                    started_s, state.slow = self._clock.monotonic_s(), False
                    with self._mark_slow(state):
                        fetched = await self._fetch(state, public_only=_must_be_public(state.channel))
                    status = fetched.status
                    comparison = await self._compare(state, fetched)
                    await self._apply_polling_hints(state, fetched)
            outcome = "new" if comparison.update else "unchanged"
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
        hint_s = 0.0 if state.channel.private else shortest_interval_s(state.polling_hints)
        return _outcome(result, fetched, comparison, hint_s)

    def _raise_if_late(self, before_s: float) -> None:
        if self._clock.monotonic_s() > before_s:
            raise LimitReached("This worker is overloaded: another worker's poll was due before this one could begin.")

    @contextlib.asynccontextmanager
    async def hold_push_slot(self, state: PollState, size_bytes: int) -> AsyncIterator[ConcurrencyLane]:
        """Hold a slot and the parser of a lane, and return the lane, to parse documents that a hub has pushed.

        ``size_bytes`` is the size of the documents in all. Raises :class:`LimitReached` if the slot or the parser is
        not free within 10 s.
        """
        lane = self._lanes.choose_for_document(state, size_bytes)
        publisher = publisher_of_state(state)
        await self._baselines.get(state.channel, state.digest)  # a baseline is located before slot and parser are held
        async with contextlib.AsyncExitStack() as held:
            try:
                async with asyncio.timeout(_PUSH_SLOT_TIMEOUT_S):
                    for resource in (lane.site(publisher), lane.slot(publisher), lane.parser(publisher)):
                        await held.enter_async_context(resource)
            except TimeoutError:
                raise LimitReached("This worker is overloaded: pushed documents are left to a poll.") from None
            yield lane

    async def compare_pushed(self, state: PollState, pushed: Document, lane: ConcurrencyLane) -> DetectedUpdate | None:
        """Return the update that a pushed document contains, or None if it contains nothing new.

        ``lane`` is the lane that :meth:`hold_push_slot` returned. Raises :class:`PublisherError` if the document cannot
        be parsed, or takes too long.
        """
        return (await self._compare_all(state, documents_to_compare(state, pushed), state.validators, lane)).update

    async def compare_again(self, state: PollState, update: DetectedUpdate) -> DetectedUpdate | None:
        """Return the part of an update that is not in the version of ``state``. Raises :class:`PublisherError`.

        Returns None if that version contains the whole update. Also returns None for a page, whose document may be
        older than its version, so that the next poll decides.
        """
        if state.channel.kind == "page":
            return None
        return (await self._compare_all(state, update.documents, update.candidate.validators)).update

    def on_versioned(self, before: PollState, after: PollState, candidate: Candidate) -> None:
        """Compare with the baseline of a candidate of this node from now on, because it has become a version.

        ``before`` is the channel's state before the version, and ``after`` the state with the version.
        """
        self._baselines.on_versioned(after.channel, candidate.delta, candidate.memory, before.digest, after.digest)

    async def address_group(self, channel: Channel) -> str:
        """Return the address group (network) of a channel that was not polled yet; "" if it is private or unknown."""
        if not charged_site(channel):
            return ""
        return public_address_group(await self._fetcher.address_of(host_of(channel.url)))

    async def fetch_unknown(self, channel: Channel, timeout_s: float) -> FetchResult:
        """Fetch the document of a channel that is not polled yet.

        Raises a :class:`PublisherError`, or :class:`LimitReached` if no request is allowed within ``timeout_s``.
        """
        until_s = self._clock.monotonic_s() + timeout_s
        host = host_of(channel.url)
        try:
            async with asyncio.timeout(timeout_s):
                await self._politeness.acquire_request(channel)
        except TimeoutError:
            raise LimitReached(f"Other requests to {host} are waiting. Try again in a minute.") from None
        unknown = PollState(channel, Validators(), 0)
        return await self._fetch(unknown, until_s - self._clock.monotonic_s(), public_only=_must_be_public(channel))

    async def _fetch(self, state: PollState, timeout_s: float = inf, *, public_only: bool) -> FetchResult:
        now_s = self._clock.wall_s()
        validators = conditional_validators(state, now_s)
        trace_request(host_of(state.channel.url), is_conditional=bool(validators.etag or validators.last_modified))
        try:
            fetched = await self._fetcher.fetch(
                state.channel.url,
                validators,
                state.subscribers,
                self._politeness.acquire_redirect,
                within_s=timeout_s,
                public_only=public_only,
            )
        except BadStatus as error:
            await self._politeness.on_refused(state.channel, error)
            raise
        trace_response(fetched)
        state.full_day = channel_day(state.channel, now_s)
        state.address_group = await self._politeness.charge_network(fetched.address, state.address_group)
        return fetched

    async def _apply_polling_hints(self, state: PollState, fetched: FetchResult) -> None:
        """Pause a public channel until the time before which its headers and its document ask not to poll."""
        if state.channel.private:
            return
        now_s = self._clock.wall_s()
        earliest = find_earliest_poll(fetched.headers, state.polling_hints, now_s)
        pause_s = earliest.not_before_s - now_s
        await self._politeness.apply_polling_hint(
            state.channel, state.subscribers, pause_s if earliest.is_skipping else pause_s * _HINT_SHARE
        )

    async def _compare(self, state: PollState, fetched: FetchResult) -> _Comparison:
        state.polling_hints = with_freshness(state.polling_hints, fetched.headers, self._clock.wall_s())
        arrived = document_of(fetched) if fetched.body is not None else None
        if arrived is not None and fetched.validators.body_sha256 == state.deadly_sha256:
            raise ParseKilled("The document is still the one that used up a parser's time or memory.")
        documents = documents_to_compare(state, arrived)
        if not documents and not state.channel.dormant:
            trace("The document has not changed: nothing to parse.")
            state.validators = fetched.validators
            return _Comparison(None)
        try:
            return await self._compare_all(state, documents, fetched.validators)
        except ParseKilled:
            if state.unversioned:  # too much together; each alone was not
                state.unversioned = state.unversioned[1:]
            elif not fetched.partial:  # else the hash is that of the last whole document
                state.deadly_sha256 = fetched.validators.body_sha256
            raise

    async def _compare_all(
        self,
        state: PollState,
        documents: tuple[Document, ...],
        validators: Validators,
        held_lane: ConcurrencyLane | None = None,
    ) -> _Comparison:
        """Compare documents with the channel's baseline, and update ``state``.

        ``validators`` come from the response. ``held_lane`` is the lane whose parser the caller holds; if it is None, a
        lane is chosen here.
        """
        base = state.channel
        baseline, located = await self._baselines.get(base, state.digest)
        if located is not None and located.version != base.version:
            # Another node has versioned an update, and woken the channel up: a silent update now would lose entries.
            base = msgspec.structs.replace(base, version=located.version, dormant=False)
        findings = DetectionResult(baseline, polling_hints=state.polling_hints)
        if documents:
            if located is not None and located.source != "publisher":
                # Without the located baseline, the documents would have been fetched once before to build one.
                PUBLISHER_BYTES_SAVED.inc(sum(len(document.body) for document in documents))
            if held_lane is not None:
                findings = await self._detect_changes(state, documents, baseline, held_lane)
                state.polling_hints = findings.polling_hints
            else:
                documents, findings = await self._detect_with_archives(state, documents, baseline)
        update = build_update(base, documents, validators, findings, self._clock.wall_s())
        trace_update(update)
        if update is None:
            accept_unchanged(state, documents, validators)
            self._baselines.put(base, findings.baseline)
        else:
            keep_unversioned(state, documents)
            _observe_delay(update.candidate.delta)
        return _Comparison(update, findings if documents else None)

    async def _detect_with_archives(
        self, state: PollState, documents: tuple[Document, ...], baseline: bytes
    ) -> tuple[tuple[Document, ...], DetectionResult]:
        """Return the documents that were parsed, and the changes that they contain compared with ``baseline``.

        If polls were missed, the documents include archives of the feed (RFC 5005) that have the missed entries.
        """
        findings = await self._detect_changes(state, documents, baseline)
        state.polling_hints = findings.polling_hints
        # An error in an archive does not invalidate the documents at hand.
        with contextlib.suppress(PublisherError, UserError, TimeoutError), self._mark_slow(state):
            async with asyncio.timeout(_ARCHIVES_TIMEOUT_S):
                for _ in range(_MAX_ARCHIVES):
                    if not findings.older_url:
                        break
                    more = (await self._fetch_archive(findings.older_url, state.channel), *documents)
                    findings = await self._detect_changes(state, more, baseline)
                    documents = more
        return documents, findings

    async def _detect_changes(
        self,
        state: PollState,
        documents: tuple[Document, ...],
        baseline: bytes,
        held_lane: ConcurrencyLane | None = None,
    ) -> DetectionResult:
        channel = state.channel
        job = DetectChanges(documents, baseline, channel.url, channel.kind, self._clock.wall_s())
        try:
            findings = await (held_lane or self._lanes).detect_changes(job, state)
        except NotAFeed as error:
            if channel.kind == "page":
                raise
            raise NotAFeed(f"{channel.url} answers with a page that is not a feed (any more).") from error
        if (max_age_s := state.polling_hints.max_age_s) is None:
            return findings
        hints = msgspec.structs.replace(findings.polling_hints, max_age_s=max_age_s)
        return msgspec.structs.replace(findings, polling_hints=hints)

    async def _fetch_archive(self, url: str, channel: Channel) -> Document:
        await self._politeness.acquire_redirect(host_of(url))
        on_redirect, public_only = self._politeness.acquire_redirect, _must_be_public(channel)
        return document_of(await self._fetcher.fetch(url, None, 0, on_redirect, public_only=public_only))

    @contextlib.contextmanager
    def _mark_slow(self, state: PollState) -> Iterator[None]:
        """Set ``state.slow`` if the fetches inside this context take longer than ``FAST_FETCH_S`` in all."""
        started_s = self._clock.monotonic_s()
        try:
            yield
        finally:
            if self._clock.monotonic_s() - started_s > FAST_FETCH_S:
                state.slow = True


def hubs_of(fetched: FetchResult, findings: DetectionResult) -> tuple[tuple[str, ...], str]:
    """Return the WebSub hubs that a response names, and its topic, which is the document's own URL as it states it.

    Links in HTTP headers take precedence over links in the document (WebSub §4).
    """
    return fetched.links.hubs or findings.hubs, fetched.links.topic or findings.topic or fetched.url


def document_of(fetched: FetchResult) -> Document:
    """Return the body of a response as a document for the parser."""
    headers = {name: fetched.headers[name] for name in _PARSING_HEADERS if name in fetched.headers}
    return Document(fetched.body or b"", fetched.url, headers, fetched.partial)


def _outcome(result: PollResult, fetched: FetchResult | None, comparison: _Comparison, hint_s: float) -> PollOutcome:
    permanent_url = (fetched and fetched.permanent_url) or ""
    if fetched is None or comparison.findings is None:
        return PollOutcome(result, comparison.update, permanent_url, hint_s=hint_s)
    return PollOutcome(result, comparison.update, permanent_url, *hubs_of(fetched, comparison.findings), hint_s)


def _observe_delay(delta: Delta) -> None:
    for change in delta.changes:
        published_s = change.entry.published
        # A date in the future or long ago says nothing about the detection delay.
        if published_s is not None and 0 <= delta.detected_s - published_s <= _MAX_MEASURED_DELAY_S:
            DETECTION_DELAY.observe(delta.detected_s - published_s)


def _must_be_public(channel: Channel) -> bool:
    """Return whether a channel may be fetched from public addresses only: it exists, and it was created as public.

    Otherwise its publisher could show contents of the operator's networks to its subscribers and to the directory.
    """
    return bool(channel.created_s) and not channel.private
