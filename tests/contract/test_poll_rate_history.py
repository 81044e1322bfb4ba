"""The poll rate history: the last few changes, for existing channels only."""

from service.store import Store
from service.store.channels.poll_rate_history import MAX_POLL_RATES
from tests.support.channels import make_channel


async def test_only_notable_changes_of_the_interval_are_recorded(store: Store) -> None:
    one = (await make_channel(store, "https://example.org/1")).id
    other = (await make_channel(store, "https://example.org/2")).id
    assert await store.poll_rate_history.get(one) == ()
    for interval_s in (60.0, 60.0, 65.0, 30.0, 0.0, 0.0, 30.0):
        await store.poll_rate_history.record([(one, interval_s), (other, 5.0)])
    noted = await store.poll_rate_history.get(one)
    assert [each.interval_s for each in noted] == [60.0, 30.0, 0.0, 30.0]
    assert sorted(each.since_s for each in noted) == [each.since_s for each in noted]
    assert [each.interval_s for each in await store.poll_rate_history.get(other)] == [5.0]


async def test_the_number_of_recorded_rates_is_limited(store: Store) -> None:
    cid = (await make_channel(store)).id
    wanted = [float(2 + number % 2) * (number + 1) for number in range(2 * MAX_POLL_RATES)]
    for interval_s in wanted:
        await store.poll_rate_history.record([(cid, interval_s)])
    assert [each.interval_s for each in await store.poll_rate_history.get(cid)] == wanted[-MAX_POLL_RATES:]


async def test_recording_a_rate_does_not_create_a_removed_channel(store: Store) -> None:
    cid = (await make_channel(store)).id
    await store.remove_channel(cid)
    await store.poll_rate_history.record([(cid, 60.0)])
    assert await store.channels.get(cid) is None
    assert await store.poll_rate_history.get(cid) == ()
