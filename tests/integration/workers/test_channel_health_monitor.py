"""The health monitor: notices on a real worker, and reports after single polls."""

from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio
from aiohttp import web

from service.corona.events import CandidateFound
from service.corona.polling_limits import LimitReason
from service.errors import BadStatus, HostNotFound, ParseKilled, StoreUnavailable, Unreachable
from service.feeds.canonical_urls import channel_id
from service.feeds.channel_health import QUARANTINE_POLLS
from service.model import Channel, Delta, Notice, PollResult
from service.settings import Settings
from service.store import Store
from service.store.client import keys
from tests.integration.workers.conftest import StartWorker
from tests.support.channels import make_channel
from tests.support.http_server import serving_locally
from tests.support.waiting import until
from workers.polling.channel_health_monitor import ChannelHealthMonitor

ALICE = "alice@localhost"
UID = keys.user_id(ALICE)
US = "a" * 40


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """The usual settings with the shortest intervals."""
    return settings.model_copy(update={"poll_interval_s": 1.0, "maintenance_interval_s": 0.5})


class Moody:
    """A publisher of one feed that a test can delete or move."""

    def __init__(self) -> None:
        self.entries = ["The first"]
        self.gone = False
        self.path = "/feed"
        self.url = ""

    async def serve(self, request: web.Request) -> web.Response:
        if self.gone:
            raise web.HTTPGone
        if request.path != self.path:
            raise web.HTTPMovedPermanently(self.path)
        items = "".join(f"<item><guid>{title}</guid><title>{title}</title></item>" for title in reversed(self.entries))
        feed = f'<rss version="2.0"><channel><title>Moody</title>{items}</channel></rss>'
        return web.Response(text=feed, content_type="application/rss+xml")


@pytest_asyncio.fixture
async def moody() -> AsyncIterator[Moody]:
    publisher = Moody()
    async with serving_locally(publisher.serve) as publisher.url:
        yield publisher


async def _told(store: Store, told: list[str], count: int) -> Sequence[str]:
    """Append what Alice is sent to ``told`` until it has ``count`` items: entries by title, notices by kind."""

    async def enough() -> bool:
        while batch := (await store.outbox.claim([UID], 20, 6.0)).get(UID):
            for item in batch.items:
                delta = await store.channels.delta(item.channel, item.version)
                assert delta is not None
                told.extend([delta.notice.kind] if delta.notice else [c.entry.title for c in delta.changes])
            await store.outbox.complete(done=[(UID, batch.message_id)])
        return len(told) >= count

    await until(enough, f"{count} things told, not only {told}")
    return told


async def test_a_subscriber_gets_one_notice_when_a_channel_dies_returns_and_moves(
    store: Store, moody: Moody, start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.feeds.channel_health.PERMANENT_AFTER_S", 0.0)
    monkeypatch.setattr("service.feeds.channel_health.PERMANENT_POLLS", 2)
    await start_worker()
    await until(store.ring.nodes, "a node in the ring")
    probed = await store.worker_requests.probe(f"{moody.url}/feed")
    assert probed.channel is not None
    subscription, _ = await store.subscriptions.subscribe(ALICE, probed.channel.id)
    await store.worker_requests.announce_channel(probed.channel.id)
    told: list[str] = []

    moody.gone = True
    await _told(store, told, 1)
    moody.entries.append("Missed")
    moody.gone = False
    await _told(store, told, 3)
    moody.path = "/new"
    await _told(store, told, 4)
    moody.entries.append("At the new place")
    await _told(store, told, 5)

    assert sorted(told[1:3]) == ["Missed", "back"]
    assert [*told[:1], *told[3:]] == ["dead", "moved", "At the new place"]
    (after,) = await store.subscriptions.of_user(ALICE)
    assert (after.channel, after.number) == (channel_id(f"{moody.url}/new"), subscription.number)


class Observed:
    """The health monitor of one channel, with a clock that stands at the last poll."""

    def __init__(self, store: Store, channel: Channel) -> None:
        self.channel = channel
        self.offered: list[Notice] = []
        self.backoffs_s: list[int] = []
        self._now_s = 1_000.0
        self._monitor = ChannelHealthMonitor(
            store,
            self,
            lambda _: (channel, 3),
        )

    def wall_s(self) -> float:
        return self._now_s

    def monotonic_s(self) -> float:
        return self._now_s

    def polled(self, outcome: str, status: int = 0, *, channel: Channel | None = None, after_s: float = 1.0) -> None:
        self._now_s += after_s
        result = PollResult(US, self._now_s, outcome, status, detail="as it was")
        self._monitor.on_polled(channel or self.channel, result, "")

    async def record(self) -> None:
        """Record the reports; keep the notices and back-offs that they justify."""
        for event in await self._monitor.record():
            if isinstance(event, CandidateFound):
                assert event.candidate.delta.notice is not None
                assert event.candidate.base_version == self.channel.version
                self.offered.append(event.candidate.delta.notice)
            else:
                assert event.limit.reason is LimitReason.FAILURE
                self.backoffs_s.append(event.limit.shortest_interval_s)


@pytest_asyncio.fixture
async def observed(store: Store) -> Observed:
    return Observed(store, await make_channel(store))


async def test_a_notice_is_offered_at_every_poll_until_it_is_versioned(store: Store, observed: Observed) -> None:
    for _ in range(QUARANTINE_POLLS + 1):
        observed.polled(ParseKilled.code)
    await observed.record()
    quarantined = Notice("quarantined", "as it was")
    assert observed.offered == [quarantined] * 2
    (state,) = await store.channels.adopt([observed.channel.id], US)
    assert state is not None
    told = Delta(observed.channel.id, 1, 0, 2_000.0, (), notice=quarantined)
    await store.channels.publish(told, None, state.epoch, silent=False)
    observed.polled(ParseKilled.code)
    await observed.record()
    assert observed.offered == [quarantined] * 2
    observed.polled("new", 200)
    await observed.record()
    assert observed.offered[2:] == [Notice("back")]


async def test_a_channel_that_fails_backs_off_and_a_network_outage_does_not_count(observed: Observed) -> None:
    others = [Channel(f"{host}" * 40, f"https://{host}.example/feed") for host in "bcd"]
    for _ in range(3):
        observed.polled(BadStatus.code, 404, after_s=300.0)
        await observed.record()
    assert observed.backoffs_s == [300, 600]
    for channel in (*others, observed.channel):
        observed.polled(HostNotFound.code, channel=channel, after_s=9_000.0)
    await observed.record()
    assert observed.backoffs_s == [300, 600]
    observed.polled(BadStatus.code, 503)
    await observed.record()
    assert observed.backoffs_s[-1] == 600 + 900


async def test_a_back_off_that_a_success_has_ended_is_not_reported(observed: Observed) -> None:
    observed.polled(BadStatus.code, 404)
    observed.polled(BadStatus.code, 404)
    observed.polled("unchanged", 304)
    await observed.record()
    assert observed.backoffs_s == []


async def test_a_network_outage_is_not_attributed_to_channels(store: Store, observed: Observed) -> None:
    others = [Channel(f"{host}" * 40, f"https://{host}.example/feed") for host in "bcd"]
    observed.polled("unchanged", 304)
    for channel in (observed.channel, *others, observed.channel):
        observed.polled(HostNotFound.code, channel=channel)
    observed.polled("unchanged", 304, channel=others[0])
    await observed.record()
    (state,) = await store.channels.states([observed.channel.id])
    assert state is not None
    assert state.failing_since_s is None
    outcomes = [poll.outcome for poll in await store.channels.polls(observed.channel.id, 9)]
    assert outcomes == [HostNotFound.code, HostNotFound.code, "unchanged"]


async def test_a_failure_is_attributed_once_another_publisher_responds(store: Store, observed: Observed) -> None:
    observed.polled(Unreachable.code)
    await observed.record()
    (waiting,) = await store.channels.states([observed.channel.id])
    observed.polled("unchanged", 304, channel=Channel("b" * 40, "https://b.example/feed"))
    await observed.record()
    (charged,) = await store.channels.states([observed.channel.id])
    assert waiting is not None
    assert charged is not None
    assert (waiting.failing_since_s, charged.failing_since_s) == (None, 1_001.0)
    assert len(await store.channels.polls(observed.channel.id, 9)) == 1


async def test_reports_are_kept_while_the_store_is_unavailable(
    store: Store, observed: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_: object) -> None:
        raise StoreUnavailable("away")

    observed.polled(BadStatus.code, 410)
    with monkeypatch.context() as patched:
        patched.setattr(store.channels, "record_polls", away)
        await observed.record()
    observed.polled(BadStatus.code, 410)
    await observed.record()
    assert [poll.at_s for poll in await store.channels.polls(observed.channel.id, 9)] == [1_002.0, 1_001.0]
