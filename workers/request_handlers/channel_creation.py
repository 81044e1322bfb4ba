"""Creates channels (feeds and pages), and wakes up dormant ones, which are no longer polled.

The entries in the first document at the URL are treated as known: subscribers are notified only of later entries.
"""

import contextlib
import time

import msgspec

from service.corona.update_rates import history_from_dates
from service.errors import LeaseLost, StaleVersion
from service.feeds.canonical_urls import reader_of
from service.feeds.publisher_polling_hints import with_freshness
from service.feeds.sandbox.protocol import DetectionResult
from service.location.content_cache import digest_of, merge_latest
from service.model import Change, Channel
from service.net.fetcher import FetchResult
from service.store import Store
from service.store.channels.channel_records import Snapshot
from workers.node import Node
from workers.polling.poll_state import build_snapshot, build_update
from workers.polling.websub_subscriber import hubs_of


class ChannelCreator:
    """Creates channels, and wakes up dormant ones (which are not polled), at a user's request."""

    def __init__(self, store: Store, node: Node) -> None:
        self._store = store
        self._node = node

    async def create_or_wake(
        self, channel: Channel, fetched: FetchResult, findings: DetectionResult, *, exists: bool
    ) -> None:
        """Create a channel, or wake it up if it is dormant; then subscribe to it at the WebSub hubs that it names.

        - ``fetched`` is the response at the channel's URL, and ``findings`` are the parser's results.
        - ``exists`` states whether the channel already exists.
        """
        if exists:
            await self._wake(channel, fetched, findings)
        elif await self._store.channels.get(channel.id) is None:
            await self._create(channel, fetched, findings)
        else:
            await self._restart(channel, fetched, findings)
        self._node.on_hubs_found(channel.id, *hubs_of(fetched, findings))

    async def _create(self, channel: Channel, fetched: FetchResult, findings: DetectionResult) -> None:
        now_s = time.time()
        channel = msgspec.structs.replace(channel, created_s=now_s, private=fetched.private)
        first = _first_snapshot(fetched, findings, now_s)
        await self._store.channels.create(channel, first, tuple(reversed(findings.latest)), now_s)
        if not reader_of(channel.url):
            self._node.contents.put(channel.id, digest_of(first.content), first.content)

    async def _restart(self, channel: Channel, fetched: FetchResult, findings: DetectionResult) -> None:
        """Resume polling a channel that was dormant (not polled) or had moved to another URL.

        ``fetched`` is the response at the channel's URL, and ``findings`` are the parser's results for the document.
        The entries in this document are treated as known.
        """
        now_s, channels = time.time(), self._store.channels
        first, latest = _first_snapshot(fetched, findings, now_s), tuple(reversed(findings.latest))
        done = None
        while done is None and (present := await channels.get(channel.id)) is not None:
            awake = msgspec.structs.replace(present, kind=channel.kind, dormant=False)
            done = await channels.take_over(channel.id, awake, first, latest, joins_at=0, now_s=now_s)
        await channels.finish_joining(channel.id, channel.id)

    async def _wake(self, channel: Channel, fetched: FetchResult, findings: DetectionResult) -> None:
        """Resume polling a dormant channel, without notifying subscribers of entries that appeared in the meantime.

        ``fetched`` is the response at the channel's URL, and ``findings`` are the parser's results.
        """
        (state,) = await self._store.channels.adopt([channel.id], self._node.info.id)
        if state is None or not state.channel.dormant:
            return
        listed = tuple(Change("addition", entry) for entry in reversed(findings.latest))
        findings = msgspec.structs.replace(findings, changes=findings.changes + listed)
        update = build_update(state.channel, (), fetched.validators, findings, time.time())
        if update is not None:
            delta, channels = update.candidate.delta, self._store.channels
            before = await channels.predecessor(channel.id, delta.base_version)
            after = msgspec.structs.replace(build_snapshot(update.candidate, before.latest), kind=channel.kind)
            with contextlib.suppress(LeaseLost, StaleVersion):  # another worker has woken it up
                await channels.publish(delta, after, state.epoch, silent=True, before=before)


def _first_snapshot(fetched: FetchResult, findings: DetectionResult, now_s: float) -> Snapshot:
    dates_s = [entry.published for entry in findings.latest if entry.published is not None]
    return Snapshot(
        fetched.validators,
        findings.baseline,
        findings.title,
        findings.link,
        with_freshness(findings.polling_hints, fetched.headers, now_s),
        updates=history_from_dates(dates_s, now_s),
        language=findings.language,
        metadata=findings.metadata,
        latest=merge_latest([Change("addition", entry) for entry in reversed(findings.latest)], ()),
    )
