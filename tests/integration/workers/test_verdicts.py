"""What a node's polls come to: a story on a real worker, and what the store is told after single polls."""

from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio
from aiohttp import web

from service.corona.events import StartPolling
from service.corona.messages import Candidate
from service.corona.polling_schedule import PollingSchedule
from service.embedded.ports import LOOPBACK
from service.errors import BadStatus, HostNotFound, ParseKilled, StoreUnavailable, Unreachable
from service.feeds.channel_health import DAY_S, QUARANTINE_POLLS
from service.feeds.polling_hints import backoff_s
from service.feeds.urls import channel_id
from service.model import Channel, Delta, Notice, PollResult
from service.settings import Settings
from service.store import Store
from service.store.client import keys
from tests.integration.workers.conftest import StartWorker
from tests.support.channels import make_channel
from tests.support.waiting import until
from workers.polling.scheduler import HealthMonitor, PolledChannel

ALICE = "alice@localhost"
UID = keys.user_id(ALICE)
US = "a" * 40
INTERVAL_S = 900.0


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """As elsewhere, at the greatest haste."""
    return settings.model_copy(update={"poll_interval_s": 1.0, "maintenance_interval_s": 0.5})


class Moody:
    """A publisher of one feed that is gone, or somewhere else, when a test says so."""

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
    app = web.Application()
    app.router.add_get("/{path}", publisher.serve)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, LOOPBACK, 0).start()
        publisher.url = f"http://{LOOPBACK}:{runner.addresses[0][1]}"
        yield publisher
    finally:
        await runner.cleanup()


async def _told(store: Store, told: list[str], count: int) -> Sequence[str]:
    """Add what Alice is told to ``told`` until it is so much: entries by title, notices by kind."""

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


async def test_a_channel_dies_comes_back_and_moves_and_its_subscriber_is_told_each_once(
    store: Store, moody: Moody, start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.feeds.channel_health.SETTLED_S", 0.0)
    monkeypatch.setattr("service.feeds.channel_health.SETTLED_POLLS", 2)
    monkeypatch.setattr("service.feeds.channel_health.DAY_S", 0.2)
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


class Judging:
    """A node's verdicts on one channel, without the node; its own clock, which stands at the last poll."""

    def __init__(self, store: Store, channel: Channel) -> None:
        self.channel = channel
        self.offered: list[Notice] = []
        self._store = store
        self._now_s = 1_000.0
        phase = StartPolling(channel.id, 0, PollingSchedule(0.0, INTERVAL_S / 3, 3))
        self._verdicts = HealthMonitor(store, self, place_of=lambda _: PolledChannel(channel, phase), offer=self._note)

    def wall_s(self) -> float:
        return self._now_s

    def monotonic_s(self) -> float:
        return self._now_s

    async def _note(self, candidate: Candidate) -> None:
        assert candidate.delta.notice is not None
        assert candidate.base_version == self.channel.version
        self.offered.append(candidate.delta.notice)

    def polled(self, outcome: str, status: int = 0, *, channel: Channel | None = None) -> None:
        self._now_s += 1.0
        result = PollResult(US, self._now_s, outcome, status, detail="as it was")
        self._verdicts.polled(channel or self.channel, result, "")

    async def record(self) -> float:
        """Write down what there is; return how long the channel is left alone now (s)."""
        await self._verdicts.record()
        return await self._store.request_budgets.paused_s(self.channel.id)


@pytest_asyncio.fixture
async def judging(store: Store) -> Judging:
    return Judging(store, await make_channel(store))


async def test_a_notice_is_offered_at_every_poll_until_it_is_told(store: Store, judging: Judging) -> None:
    for _ in range(QUARANTINE_POLLS + 1):
        judging.polled(ParseKilled.code)
    assert await judging.record() == 0.0
    quarantined = Notice("quarantined", "as it was")
    assert judging.offered == [quarantined] * 2
    (state,) = await store.channels.adopt([judging.channel.id], US)
    assert state is not None
    told = Delta(judging.channel.id, 1, 0, 2_000.0, (), notice=quarantined)
    await store.channels.publish(told, None, state.epoch, silent=False)
    judging.polled(ParseKilled.code)
    assert await judging.record() == pytest.approx(DAY_S, abs=60)
    assert judging.offered == [quarantined] * 2
    judging.polled("new", 200)
    await judging.record()
    assert judging.offered[2:] == [Notice("back")]


async def test_a_busy_publisher_that_names_no_time_is_left_alone_for_longer_and_longer(
    store: Store, judging: Judging
) -> None:
    judging.polled(BadStatus.code, 503)
    first_s = await judging.record()
    assert first_s == pytest.approx(backoff_s(1, INTERVAL_S), abs=60)
    await store.request_budgets.pause(judging.channel.id, 0.001)
    judging.polled(BadStatus.code, 429)
    assert await judging.record() == pytest.approx(backoff_s(2, INTERVAL_S), abs=60)


async def test_a_publisher_that_names_a_time_is_taken_at_its_word(store: Store, judging: Judging) -> None:
    await store.request_budgets.pause(judging.channel.id, 120.0)
    judging.polled(BadStatus.code, 503)
    assert await judging.record() <= 120.0


async def test_in_our_own_outage_polls_are_shown_and_no_channel_is_failing(store: Store, judging: Judging) -> None:
    others = [Channel(f"{host}" * 40, f"https://{host}.example/feed") for host in "bcd"]
    judging.polled("unchanged", 304)
    for channel in (judging.channel, *others, judging.channel):
        judging.polled(HostNotFound.code, channel=channel)
    judging.polled("unchanged", 304, channel=others[0])
    await judging.record()
    (state,) = await store.channels.states([judging.channel.id])
    assert state is not None
    assert state.failing_since_s is None
    outcomes = [poll.outcome for poll in await store.channels.polls(judging.channel.id, 9)]
    assert outcomes == [HostNotFound.code, HostNotFound.code, "unchanged"]


async def test_a_failure_is_charged_once_somebody_else_has_answered(store: Store, judging: Judging) -> None:
    judging.polled(Unreachable.code)
    await judging.record()
    (waiting,) = await store.channels.states([judging.channel.id])
    judging.polled("unchanged", 304, channel=Channel("b" * 40, "https://b.example/feed"))
    await judging.record()
    (charged,) = await store.channels.states([judging.channel.id])
    assert waiting is not None
    assert charged is not None
    assert (waiting.failing_since_s, charged.failing_since_s) == (None, 1_001.0)
    assert len(await store.channels.polls(judging.channel.id, 9)) == 1


async def test_what_the_store_cannot_take_now_is_written_down_later(
    store: Store, judging: Judging, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_: object) -> None:
        raise StoreUnavailable("away")

    judging.polled(BadStatus.code, 410)
    with monkeypatch.context() as patched:
        patched.setattr(store.channels, "record_polls", away)
        await judging.record()
    judging.polled(BadStatus.code, 410)
    await judging.record()
    assert [poll.at_s for poll in await store.channels.polls(judging.channel.id, 9)] == [1_002.0, 1_001.0]
