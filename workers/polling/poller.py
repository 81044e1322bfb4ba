"""Carries out polls: sends the request within the politeness limits, parses the document, and detects changes.

Documents are parsed in a separate process. A node that detects changes compares them with the version that it knows,
and offers them to the channel's owner (Corona §3.3). A failed poll changes neither the version nor the baseline of the
channel. The steps of a poll can be traced for a user who has requested it and waits for the result.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import lru_cache
from math import inf

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
from service.feeds.canonical_urls import host_of
from service.feeds.publisher_polling_hints import shortest_interval_s, skipped_s, with_freshness
from service.feeds.sandbox.protocol import DetectChanges, DetectionResult, Document
from service.model import Delta, NodeId, PollingHints, PollResult, Validators
from service.net.fetcher import Fetcher, FetchResult
from service.observability.metrics import DETECTION_DELAY, POLLS, PUBLISHER_BYTES_SAVED
from workers.peers.baseline_lookup import BaselineLookup
from workers.polling.concurrency_limits import FAST_FETCH_S, ConcurrencyLane, ConcurrencyLanes, publisher_of
from workers.polling.feed_archives import FeedArchives
from workers.polling.politeness import Politeness
from workers.polling.poll_state import (
    DetectedUpdate,
    PollState,
    accept_unchanged,
    build_update,
    channel_day,
    documents_to_compare,
    keep_unversioned,
)
from workers.polling.publisher_requests import conditional_validators, document_of, fetch_politely
from workers.polling.websub_subscriber import hubs_of

_LISTENER: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)
"""The function that receives descriptions of the steps of polls in the current task, for a user who waits."""


def trace(text: str) -> None:
    """Pass ``text``, which describes a step of a poll, to this task's listener, if it has one."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(text)


@contextlib.contextmanager
def trace_listener(listener: Callable[[str], None]) -> Iterator[None]:
    """Call ``listener`` with the description of each step that is traced inside this context."""
    before = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(before)


_MAX_MEASURED_DELAY_S = 86_400.0
_SHARED_HINTS = 1_000


class PollOutcome(msgspec.Struct, frozen=True):
    """The result of one poll.

    - ``update``: the changes that the poll detected; None if there are no changes.
    - ``permanent_url``: the channel's new URL after a permanent redirect; "" if there was none.
    - ``hubs``: the WebSub hubs that the document names.
    - ``topic``: the URL by which hubs identify the document; "" if no document was parsed.
    - ``hint_s``: the shortest interval in seconds between polls that the publisher's hints allow; 0.0 if there are no
      hints.
    """

    result: PollResult
    update: DetectedUpdate | None = None
    permanent_url: str = ""
    hubs: tuple[str, ...] = ()
    topic: str = ""
    hint_s: float = 0.0


class Poller:
    """Polls publishers for the nodes of one worker, within the politeness and concurrency limits."""

    def __init__(
        self,
        fetcher: Fetcher,
        politeness: Politeness,
        lanes: ConcurrencyLanes,
        contents: BaselineLookup,
        clock: Clock,
    ) -> None:
        self._fetcher = fetcher
        self._politeness = politeness
        self._lanes = lanes
        self._contents = contents
        self._clock = clock
        self._archives = FeedArchives(fetcher, politeness)

    async def acquire_poll(self, state: PollState) -> None:
        """Wait until a channel may be polled, and take tokens (permissions) for the poll from its budgets.

        Raises the errors of :meth:`Politeness.acquire_poll`, and :class:`RequestsPaused` in hours or on days that the
        publisher excludes.
        """
        paused_s = 0.0 if state.channel.private else skipped_s(state.polling_hints, self._clock.wall_s())
        if paused_s:
            raise RequestsPaused(f"The publisher excludes polls for another {paused_s:.0f} s.", paused_s=paused_s)
        await self._politeness.acquire_poll(state)

    async def poll(self, state: PollState, node: NodeId, before_s: float = inf) -> PollOutcome:
        """Poll the channel in ``state`` once, on behalf of ``node``. Call :meth:`acquire_poll` first.

        ``state`` is updated in place for the next poll. Errors of the publisher are reported in the outcome. Raises

        - :class:`LimitReached` if the site's budget grants no request in time, or if the request cannot begin by
          ``before_s`` (Unix s),
        - :class:`OperationalError`, for example if the store is unavailable.
        """
        started_s = self._clock.monotonic_s()
        fetched, update, findings, status, detail = None, None, None, 0, ""
        lane, publisher = self._lanes.choose_for_poll(state), publisher_of(state)
        try:
            async with lane.site(publisher):
                # A token that is granted too late would be lost, and a site grants few of them after a pause.
                await self._politeness.acquire_site(state.channel, before_s - self._clock.wall_s())
                trace("The request limit of the site allows a request.")
                async with lane.slot(publisher) as has_waited:
                    self._raise_if_late(before_s)
                    if has_waited:  # the token was taken before that
                        await self._politeness.acquire_site(state.channel, before_s - self._clock.wall_s())
                    started_s, state.slow = self._clock.monotonic_s(), False
                    with self._mark_slow(state):
                        fetched = await self._fetch(state)
                    status = fetched.status
                    update, findings = await self._compare(state, fetched)
                    await self._politeness.apply_polling_hints(state, fetched.headers, self._clock.wall_s())
            outcome = "new" if update else "unchanged"
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
        permanent_url = (fetched and fetched.permanent_url) or ""
        hubs, topic = hubs_of(fetched, findings) if fetched and findings else ((), "")
        hint_s = 0.0 if state.channel.private else shortest_interval_s(state.polling_hints)
        return PollOutcome(result, update, permanent_url, hubs, topic, hint_s)

    def _raise_if_late(self, before_s: float) -> None:
        if self._clock.wall_s() > before_s:
            raise LimitReached("This worker is overloaded: another worker's poll was due before this one could begin.")

    async def prepare_push(self, state: PollState, size_bytes: int) -> ConcurrencyLane:
        """Choose the lane, fast or slow, in which to parse documents that a hub has pushed.

        ``size_bytes`` is their total size. Raises :class:`HostBlocked` if an admin has blocked the channel's host.
        """
        self._politeness.raise_if_blocked(host_of(state.channel.url))
        lane = self._lanes.choose_for_document(state, size_bytes)
        # The baseline is located before a slot and the parser are held.
        await self._contents.baseline(state.channel, state.digest)
        return lane

    async def compare_pushed(self, state: PollState, pushed: Document, lane: ConcurrencyLane) -> DetectedUpdate | None:
        """Return the changes in ``pushed``, a document that a hub has sent; None if there are no changes.

        ``lane`` is the result of :meth:`prepare_push`; the caller holds its parser. Raises :class:`PublisherError` if
        the document cannot be parsed, or if parsing takes too long.
        """
        documents = documents_to_compare(state, pushed)
        update, _ = await self._compare_all(state, documents, state.validators, lane)
        return update

    async def compare_again(self, state: PollState, update: DetectedUpdate) -> DetectedUpdate | None:
        """Return the changes in ``update`` that are missing from the version in ``state``; None if none are missing.

        Only feeds are compared. For a page, the result is always None; the next poll detects the remaining changes.
        Raises :class:`PublisherError` if the documents cannot be parsed.
        """
        # A page's document may be older than its version; the next poll then detects the remaining changes.
        if state.channel.kind == "page":
            return None
        remaining, _ = await self._compare_all(state, update.documents, update.candidate.validators)
        return remaining

    def on_versioned(self, before: PollState, after: PollState, candidate: Candidate) -> None:
        """Cache the new baseline of a channel after the owner has made a version from ``candidate``.

        The baseline is the state with which further polls compare the document. ``candidate`` contains changes that
        this node detected. ``before`` is the channel's state at the previous version, and ``after`` at the new version.
        """
        self._contents.on_versioned(after.channel, candidate.delta, candidate.memory, before.digest, after.digest)

    async def _fetch(self, state: PollState) -> FetchResult:
        now_s = self._clock.wall_s()
        validators = conditional_validators(state, now_s)
        is_conditional = validators.etag or validators.last_modified
        trace(f"Requesting {'changes' if is_conditional else 'the whole document'} from {host_of(state.channel.url)}.")
        fetched = await fetch_politely(self._fetcher, self._politeness, state, validators)
        size = f"{len(fetched.body):,} bytes" if fetched.body is not None else "no body"
        trace(f"{fetched.address or fetched.url} responded with status {fetched.status}, {size}.")
        if fetched.permanent_url:
            trace(f"It has moved permanently to {fetched.permanent_url}.")
        state.full_day = channel_day(state.channel, now_s)
        return fetched

    async def _compare(
        self, state: PollState, fetched: FetchResult
    ) -> tuple[DetectedUpdate | None, DetectionResult | None]:
        """Compare the document in a response with the channel's last state, and update ``state``.

        Return (update, findings): the detected changes, or None if there are none; and the parser's findings, or None
        if no document was parsed.
        """
        state.polling_hints = _shared(with_freshness(state.polling_hints, fetched.headers, self._clock.wall_s()))
        arrived = document_of(fetched) if fetched.body is not None else None
        if arrived is not None and fetched.validators.body_sha256 == state.deadly_sha256:
            raise ParseKilled("The document is still the one that used up a parser's time or memory.")
        documents = documents_to_compare(state, arrived)
        if not documents and not state.channel.dormant:
            trace("The document has not changed: nothing to parse.")
            state.validators = fetched.validators
            return None, None
        try:
            return await self._compare_all(state, documents, fetched.validators)
        except ParseKilled:
            if state.unversioned:  # together the documents exceed the limits, each alone did not
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
    ) -> tuple[DetectedUpdate | None, DetectionResult | None]:
        """Compare ``documents`` with the channel's last state, and update ``state``.

        - ``validators`` are the ETag, the date and the body's hash of the response.
        - ``held_lane`` is the lane (fast or slow) whose parser the caller holds; if None, a lane is chosen here.

        Return (update, findings): the detected changes, or None if there are none; and the parser's findings, or None
        if no document was parsed.
        """
        base = state.channel
        baseline, located = await self._contents.baseline(base, state.digest)
        if located is not None and located.version != base.version:
            # Another node has versioned an update, and woken the channel up: a silent update now would lose entries.
            base = msgspec.structs.replace(base, version=located.version, dormant=False)
        findings = DetectionResult(baseline, polling_hints=state.polling_hints)
        if documents:
            if located is not None and located.source != "publisher":
                # Without the located baseline, an additional fetch would have been necessary to create a baseline.
                PUBLISHER_BYTES_SAVED.inc(sum(len(document.body) for document in documents))
            findings = await self._detect_changes(state, documents, baseline, held_lane)
            state.polling_hints = _shared(findings.polling_hints)
            if findings.older_url and held_lane is None:
                with self._mark_slow(state):
                    documents, findings = await self._archives.add_archives(
                        state.channel, documents, findings, lambda more: self._detect_changes(state, more, baseline)
                    )
        update = build_update(base, documents, validators, findings, self._clock.wall_s())
        if update is None:
            trace("Parsed and compared: nothing new.")
            accept_unchanged(state, documents, validators)
            self._contents.put_baseline(base, findings.baseline)
        else:
            count = len(update.candidate.delta.changes)
            trace(f"Parsed and compared: {count} change{'' if count == 1 else 's'}.")
            keep_unversioned(state, documents)
            _observe_delay(update.candidate.delta)
        return update, findings if documents else None

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
        hints = msgspec.structs.replace(findings.polling_hints, max_age_s=state.polling_hints.max_age_s)
        return msgspec.structs.replace(findings, polling_hints=hints)

    @contextlib.contextmanager
    def _mark_slow(self, state: PollState) -> Iterator[None]:
        """Set ``state.slow`` if the fetches inside this context together take longer than ``FAST_FETCH_S``."""
        started_s = self._clock.monotonic_s()
        try:
            yield
        finally:
            if self._clock.monotonic_s() - started_s > FAST_FETCH_S:
                state.slow = True


@lru_cache(_SHARED_HINTS)
def _shared(hints: PollingHints) -> PollingHints:
    """Return hints equal to ``hints``; channels with equal hints share one object, because a node has many channels."""
    return hints


def _observe_delay(delta: Delta) -> None:
    for change in delta.changes:
        published_s = change.entry.published
        # A date in the future or long ago says nothing about the detection delay.
        if published_s is not None and 0 <= delta.detected_s - published_s <= _MAX_MEASURED_DELAY_S:
            DETECTION_DELAY.observe(delta.detected_s - published_s)
