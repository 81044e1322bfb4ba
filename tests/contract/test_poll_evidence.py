"""The evidence that polls record with a channel, and the notices that become versions because of it."""

from collections.abc import Sequence
from itertools import takewhile
from random import Random

import pytest

from service.errors import BadStatus, LeaseLost, ParseKilled, StaleVersion
from service.feeds.channel_health import ChannelHealth, Evidence, PollReport
from service.model import Change, Channel, Delta, Entry, Notice, PollResult
from service.store import Store
from service.store.client import keys
from tests.support.channels import SNAPSHOT, make_channel, polled, publish
from tests.support.redis_nodes import on_every_node
from workers.ownership.fanout import FanOut

ALICE = "alice@localhost"
A, B = "a" * 40, "b" * 40
NEW = "https://example.net/feed"


async def _poll(
    store: Store, channel: Channel, at_s: float, outcome: str, status: int = 0, *, node: str = A, to: str = ""
) -> ChannelHealth | None:
    return await polled(store, channel.id, PollResult(node, at_s, outcome, status), to)


async def _failing_since_s(store: Store, channel: Channel) -> float | None:
    (state,) = await store.channels.states([channel.id])
    assert state is not None
    return state.failing_since_s


async def _tell(store: Store, channel: Channel, notice: Notice, *, base: int = 1) -> Delta:
    (state,) = await store.channels.adopt([channel.id], A)
    assert state is not None
    return await store.channels.publish(
        Delta(channel.id, base, 0, 2.0, (), notice=notice), None, state.epoch, silent=False
    )


async def test_polls_with_the_same_symptom_are_counted_with_their_nodes(store: Store) -> None:
    channel = await make_channel(store)
    for at_s, node in ((10.5, A), (20.5, B), (30.5, A)):
        case = await _poll(store, channel, at_s, BadStatus.code, 410, node=node)
    assert case == ChannelHealth("gone", "", 20.0, Evidence("gone", 10.5, 30.5, 3, (A, B)))


async def test_another_symptom_restarts_the_evidence_and_a_success_clears_it(store: Store) -> None:
    channel = await make_channel(store)
    await _poll(store, channel, 10.0, BadStatus.code, 404)
    case = await _poll(store, channel, 20.0, BadStatus.code, 410)
    assert case is not None
    assert case.evidence == Evidence("gone", 20.0, 20.0, 1, (A,))
    assert await _poll(store, channel, 30.0, "unchanged", 304) is None
    case = await _poll(store, channel, 40.0, BadStatus.code, 410)
    assert case is not None
    assert case.evidence == Evidence("gone", 40.0, 40.0, 1, (A,))


async def test_a_redirect_counts_per_target_and_the_channel_is_not_failing(store: Store) -> None:
    channel = await make_channel(store)
    await _poll(store, channel, 10.0, BadStatus.code, 404)
    await _poll(store, channel, 20.0, "new", 200, to="https://example.net/other")
    case = await _poll(store, channel, 30.0, "unchanged", 304, to=NEW)
    assert case is not None
    assert case.evidence == Evidence(f"moved:{NEW}", 30.0, 30.0, 1, (A,))
    assert await _failing_since_s(store, channel) is None


async def test_a_busy_response_causes_back_off_and_keeps_the_evidence(store: Store) -> None:
    channel = await make_channel(store)
    await _poll(store, channel, 10.0, BadStatus.code, 404)
    for nth, status in enumerate((429, 503), 1):
        assert await _poll(store, channel, 10.0 + nth, BadStatus.code, status) == ChannelHealth("busy", "", float(nth))
    case = await _poll(store, channel, 20.0, BadStatus.code, 404)
    assert case is not None
    assert case.evidence == Evidence("failing", 10.0, 20.0, 2, (A,))
    assert await _poll(store, channel, 30.0, BadStatus.code, 429) == ChannelHealth("busy", "", 20.0)


async def _backoff_s(store: Store, channel: Channel, at_s: float, outcome: str = "unreachable") -> float:
    case = await _poll(store, channel, at_s, outcome)
    (state,) = await store.channels.states([channel.id])
    assert state is not None
    assert state.backoff_s == (case.backoff_s if case else 0.0)
    return state.backoff_s


async def test_the_back_off_equals_the_duration_of_the_failure_up_to_a_day(store: Store) -> None:
    channel, at_s = await make_channel(store), 1_000.0
    assert await _backoff_s(store, channel, at_s) == 0.0
    assert await _backoff_s(store, channel, at_s + 300) == 300.0
    assert await _backoff_s(store, channel, at_s + 600) == 600.0
    at_s += 600
    for _ in range(20):
        at_s += (before_s := await _backoff_s(store, channel, at_s))
        assert await _backoff_s(store, channel, at_s) == min(2 * before_s, 86_400.0)
    assert before_s == 86_400.0
    assert await _backoff_s(store, channel, at_s + 1.0, "unchanged") == 0.0
    assert await _backoff_s(store, channel, at_s + 2.0) == 0.0


async def test_a_time_without_polls_at_most_doubles_the_back_off(store: Store) -> None:
    channel = await make_channel(store)
    for at_s, backoff_s in (
        (0.0, 0.0),
        (9e6, 900.0),
        (18e6, 1_800.0),
        (18e6, 1_800.0),
        (17e6, 1_800.0),
        (27e6, 3_600.0),
    ):
        assert await _backoff_s(store, channel, 1_000.0 + at_s) == backoff_s


async def test_a_failure_without_a_symptom_is_only_shown(store: Store) -> None:
    channel = await make_channel(store)
    result = PollResult(A, 10.0, "unreachable")
    assert await store.channels.record_polls([(channel.id, PollReport(result, None))]) == [None]
    assert await _failing_since_s(store, channel) is None
    (case,) = await store.channels.record_polls([(channel.id, PollReport(result, "failing", is_repeat=True))])
    assert case is not None
    assert case.evidence == Evidence("failing", 10.0, 10.0, 1, (A,))
    assert await _failing_since_s(store, channel) == 10.0
    assert len(await store.channels.polls(channel.id, 9)) == 1


async def test_a_failure_before_the_recovery_does_not_count(store: Store) -> None:
    """Nodes store their results with a delay, so that earlier ones may come after later ones."""
    channel = await make_channel(store)
    await _poll(store, channel, 10.0, BadStatus.code, 410)
    await _poll(store, channel, 20.0, "unchanged", 304)
    assert await _poll(store, channel, 15.0, BadStatus.code, 410, node=B) is None
    assert await _failing_since_s(store, channel) is None
    case = await _poll(store, channel, 30.0, BadStatus.code, 410)
    assert case is not None
    assert case.evidence == Evidence("gone", 30.0, 30.0, 1, (A,))
    assert len(await store.channels.polls(channel.id, 9)) == 4


def _read(charges: Sequence[tuple[str, str]]) -> tuple[str, int, set[str]] | None:
    """Return the evidence of successive polls (symptom, node) by a simple model: last symptom, count, and nodes."""
    telling = [poll for poll in charges if poll[0] != "busy"]
    last = telling[-1][0] if telling else ""
    row = list(takewhile(lambda poll: poll[0] == last, reversed(telling)))
    return (last, len(row), {node for _, node in row}) if last else None


@pytest.mark.parametrize("seed", range(3))
async def test_the_evidence_matches_a_simple_model(store: Store, seed: int) -> None:
    random = Random(seed)  # noqa: S311 - repeatable, not secret
    channel, polls = await make_channel(store), list[tuple[str, str]]()
    for at_s in range(1, 150):
        charge = random.choices(["", "gone", "failing", "deadly", "busy", f"moved:{NEW}"], [1, 4, 8, 2, 3, 2])[0]
        node = random.choice((A, B, "c" * 40))
        polls.append((charge, node))
        (case,) = await store.channels.record_polls(
            [(channel.id, PollReport(PollResult(node, float(at_s), "any"), charge))]
        )
        evidence = case.evidence if case else None
        found = (evidence.symptom, evidence.polls, set(evidence.nodes)) if evidence else None
        assert found == (None if charge == "busy" else _read(polls)), at_s
        failing = await _failing_since_s(store, channel)
        assert (failing is None) == (charge == "" or charge.startswith("moved:"))


async def test_a_repeated_report_counts_once(store: Store) -> None:
    """The store may fail before it replies, so that the report is repeated."""
    channel = await make_channel(store)
    for _ in range(3):
        case = await _poll(store, channel, 1_763_648_115.123456, ParseKilled.code)
    assert case is not None
    assert case.evidence is not None
    assert case.evidence.polls == 1


async def test_the_evidence_names_at_most_eight_nodes(store: Store) -> None:
    channel = await make_channel(store)
    for number in range(12):
        case = await _poll(store, channel, float(number + 1), BadStatus.code, 410, node=f"{number:040x}")
    assert case is not None
    assert case.evidence is not None
    assert (len(case.evidence.nodes), case.evidence.polls) == (8, 12)


async def test_evidence_starts_again_after_dormancy(store: Store) -> None:
    channel = await make_channel(store)
    await _tell(store, channel, Notice("dead"))
    await _poll(store, channel, 10.0, BadStatus.code, 410)
    await store.channels.mark_dormant(channel.id)
    case = await _poll(store, channel, 9_000_000.0, BadStatus.code, 410)
    assert case == ChannelHealth("gone", "", 0, Evidence("gone", 9_000_000.0, 9_000_000.0, 1, (A,)))


async def test_successful_polls_of_a_healthy_channel_store_only_the_result(store: Store) -> None:
    channel = await make_channel(store)
    before = await store.redis.call("HGETALL", keys.channel(channel.id))
    assert await _poll(store, channel, 10.0, "unchanged", 304) is None
    assert await store.redis.call("HGETALL", keys.channel(channel.id)) == before | {b"polled": b"10.000"}


async def test_polls_of_a_removed_channel_store_nothing(store: Store) -> None:
    channel = await make_channel(store)
    await store.remove_channel(channel.id)
    assert await _poll(store, channel, 10.0, BadStatus.code, 410) is None
    assert not any(await on_every_node(store, "KEYS", f"*{channel.id}*"))


async def test_a_notice_is_a_version_that_changes_only_the_condition(store: Store) -> None:
    channel = await make_channel(store)
    await store.subscriptions.subscribe(ALICE, channel.id)
    (before,) = await store.channels.states([channel.id])
    delta = await _tell(store, channel, Notice("dead", "It is gone."))
    (after,) = await store.channels.states([channel.id])
    assert before is not None
    assert after is not None
    assert (delta.version, after.channel.version, after.channel.condition) == (2, 2, "dead")
    assert (after.validators, after.channel.title) == (before.validators, before.channel.title)
    version, _, content = await store.channels.content(channel.id)
    assert (version, content.memory) == (2, SNAPSHOT.memory)
    assert await FanOut(store, 3).run(channel.id, after.epoch)
    batch = (await store.outbox.claim([keys.user_id(ALICE)], 9, 6.0))[keys.user_id(ALICE)]
    assert [(item.channel, item.version) for item in batch.items] == [(channel.id, 2)]


async def test_two_nodes_with_the_same_diagnosis_cause_one_notice(store: Store) -> None:
    channel = await make_channel(store)
    await _tell(store, channel, Notice("dead", "as one node puts it"))
    with pytest.raises(StaleVersion):
        await _tell(store, channel, Notice("quarantined", "on the same base"))
    assert (await _tell(store, channel, Notice("dead", "as another puts it"))).version == 2
    assert (await _tell(store, channel, Notice("dead", "later"), base=2)).version == 2
    assert await store.channels.delta(channel.id, 3) is None


async def test_failure_and_back_notices_alternate(store: Store) -> None:
    channel = await make_channel(store)
    assert (await _tell(store, channel, Notice("back"))).version == 1
    dead, back, quarantined = Notice("dead"), Notice("back"), Notice("quarantined")
    for base, notice in enumerate((dead, back, quarantined, dead, back), 1):
        assert (await _tell(store, channel, notice, base=base)).version == base + 1
    now = await store.channels.get(channel.id)
    assert now is not None
    assert now.condition == ""


async def test_entries_and_notices_are_versioned_in_turn(store: Store) -> None:
    channel = await make_channel(store)
    await _tell(store, channel, Notice("dead"))
    with pytest.raises(StaleVersion):
        await publish(store, channel, "found on the old base")
    await publish(store, channel, "found again", base=2)
    now = await store.channels.get(channel.id)
    assert now is not None
    assert (now.version, now.condition) == (3, "dead")


async def test_a_channel_that_has_moved_has_no_further_versions(store: Store) -> None:
    channel = await make_channel(store)
    await _tell(store, channel, Notice("moved", NEW))
    for late in (Delta(channel.id, 2, 0, 3.0, (Change("addition", Entry("late")),)), Delta(channel.id, 1, 0, 3.0, ())):
        (state,) = await store.channels.adopt([channel.id], B)
        assert state is not None
        with pytest.raises(LeaseLost):
            await store.channels.publish(late, SNAPSHOT, state.epoch, silent=False)
    with pytest.raises(LeaseLost):
        await _tell(store, channel, Notice("moved", NEW), base=2)
