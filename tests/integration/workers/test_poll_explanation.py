"""Poll rates that real workers agree on, and their explanations."""

import pytest

from service.corona.fleet_policy import NO_BOUNDS, ChannelBounds, FleetObjective
from service.corona.optimizer.poll_explanation import BindingConstraint, PollExplanation
from service.embedded.sample_publisher import SamplePublisher
from service.errors import AssignmentPending
from service.operations.doctor.polling_checks import check_polling, judge_polling
from service.operations.doctor.report import CheckResult
from service.settings import Settings
from service.store import Store
from tests.integration.workers.conftest import StartWorker
from tests.integration.workers.test_worker_fleet import nodes_in_the_ring, subscribed
from tests.support.waiting import until


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Long leases, so that three workers stay three on a busy machine."""
    return settings.model_copy(update={"lease_ttl_s": 15.0})


async def test_three_workers_share_a_channel_until_the_budget_is_reduced(
    store: Store, publisher: SamplePublisher, start_worker: StartWorker, settings: Settings
) -> None:
    for _ in range(3):
        await start_worker()
    await nodes_in_the_ring(store, 3)
    channel = await subscribed(store, publisher.feed_url())

    async def polled_by(nodes: int, each_s: float) -> PollExplanation | None:
        try:
            why = await store.worker_requests.explain(channel.id)
        except AssignmentPending:
            return None  # not settled yet
        settled = len(why.turns) == nodes and why.interval_s == pytest.approx(each_s, rel=0.02)
        return why if settled else None

    why = await until(lambda: polled_by(3, settings.poll_interval_s), "three workers poll")
    assert why is not None
    assert why.bound is BindingConstraint.NONE
    assert (why.size, why.wait_s) == pytest.approx((3.0, settings.poll_interval_s / 6), rel=1e-5)
    await store.fleet_policy.set(FleetObjective(budget_polls_per_minute=60 / settings.poll_interval_s))
    assert await until(lambda: polled_by(1, settings.poll_interval_s), "one worker polls")

    async def noted() -> bool:
        paces = await store.poll_rate_history.get(channel.id)
        return bool(paces) and paces[-1].interval_s == pytest.approx(settings.poll_interval_s, rel=0.1)

    assert await until(noted, "how often it is polled is noted")


async def test_a_channels_own_bounds_reach_its_owner_while_it_polls(
    store: Store, publisher: SamplePublisher, start_worker: StartWorker, settings: Settings
) -> None:
    await start_worker()
    await nodes_in_the_ring(store, 1)
    channel = await subscribed(store, publisher.feed_url())

    async def bound_by(bound: BindingConstraint, each_s: float) -> bool:
        try:
            why = await store.worker_requests.explain(channel.id)
        except AssignmentPending:
            return False
        return why.bound is bound and why.interval_s / len(why.turns) == pytest.approx(each_s, rel=1e-5)

    await until(lambda: bound_by(BindingConstraint.NONE, settings.poll_interval_s / 3), "a worker polls")
    await store.poll_bounds.set(channel.id, ChannelBounds(shortest_interval_s=600.0))
    await until(lambda: bound_by(BindingConstraint.CHANNEL_INTERVAL, 600.0), "its polls are that far apart")
    await store.poll_bounds.set(channel.id, NO_BOUNDS)
    await until(lambda: bound_by(BindingConstraint.NONE, settings.poll_interval_s / 3), "it is polled as before")


async def test_doctor_reports_the_poll_constraints_that_workers_count(
    store: Store, publisher: SamplePublisher, start_worker: StartWorker, settings: Settings
) -> None:
    await start_worker()
    await nodes_in_the_ring(store, 1)
    channel = await subscribed(store, publisher.feed_url())

    async def says(*expected: CheckResult) -> bool:
        return tuple(await check_polling(settings))[1:] == expected

    distributed = CheckResult("Polls", ok=True, details="channels: 100 % regular share of all polls")
    await until(lambda: says(distributed), "the worker has counted its channel")
    await store.poll_bounds.set(channel.id, ChannelBounds(shortest_interval_s=600.0))
    constrained = judge_polling({BindingConstraint.CHANNEL_INTERVAL: 1})
    await until(lambda: says(constrained), "the worker has counted it again")


async def test_a_channel_without_an_owner_has_no_explanation(store: Store, start_worker: StartWorker) -> None:
    await start_worker()
    await nodes_in_the_ring(store, 1)
    with pytest.raises(AssignmentPending):
        await store.worker_requests.explain("c" * 40)
