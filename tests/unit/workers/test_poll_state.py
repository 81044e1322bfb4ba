"""Poll states: detected updates, unversioned documents, and the validators of the next request."""

import msgspec
import pytest

from service.corona.update_rates import UpdateHistory
from service.feeds.sandbox.parser_handlers import detect_changes
from service.feeds.sandbox.protocol import DetectChanges, DetectionResult, Document
from service.model import Channel, Validators
from service.store.channels.channel_records import ChannelState
from tests.support.feed_documents import item, rss
from workers.polling.poll_state import (
    DetectedUpdate,
    PollState,
    accept_unchanged,
    build_poll_state,
    build_update,
    channel_day,
    documents_to_compare,
    keep_unversioned,
)
from workers.polling.publisher_requests import conditional_validators

URL = "https://example.org/feed"
NOW_S = 1_700_000_000.0
V3 = Validators("v3", body_sha256="3" * 64)


def listing(*names: str) -> Document:
    return Document(rss([item(name) for name in names]), URL, {"content-type": "text/xml"})


def poll_state(*, dormant: bool = False) -> PollState:
    return PollState(Channel("a" * 40, URL, version=3, dormant=dormant), V3, 1)


def findings(baseline: bytes, *documents: Document) -> DetectionResult:
    return detect_changes(DetectChanges(documents, baseline, URL, "feed", NOW_S))


def compare(state: PollState, baseline: bytes, arrived: Document | None) -> DetectedUpdate | None:
    documents = documents_to_compare(state, arrived)
    update = build_update(state.channel, documents, Validators("v4"), findings(baseline, *documents), NOW_S)
    if update is None:
        accept_unchanged(state, documents, Validators("v4"))
    else:
        keep_unversioned(state, documents)
    return update


def titles(update: DetectedUpdate | None) -> list[str]:
    assert update is not None
    return [change.entry.title.removeprefix("Title ") for change in update.candidate.delta.changes]


OLD = findings(b"", listing("one")).baseline


def test_an_unchanged_document_updates_the_validators_only() -> None:
    state = poll_state()
    assert compare(state, OLD, listing("one")) is None
    assert state.validators == Validators("v4")


def test_an_update_keeps_the_validators_so_that_it_is_detected_again() -> None:
    state = poll_state()
    update = compare(state, OLD, listing("two", "one"))
    assert update is not None
    assert titles(update) == ["two"]
    assert (update.candidate.delta.base_version, update.candidate.delta.initial) == (3, False)
    assert state.validators == V3
    again = compare(state, OLD, listing("two", "one"))
    assert again is not None
    assert again.candidate == update.candidate


def test_the_baseline_of_a_candidate_contains_its_entries() -> None:
    update = compare(poll_state(), OLD, listing("two", "one"))
    assert update is not None
    assert compare(poll_state(), update.candidate.memory, listing("two", "one")) is None


def test_a_dormant_channel_always_has_a_silent_update() -> None:
    for arrived in (listing("two", "one"), listing("one")):
        update = compare(poll_state(dormant=True), OLD, arrived)
        assert update is not None
        assert update.candidate.delta.initial


def test_an_unreadable_baseline_counts_as_none() -> None:
    unreadable = msgspec.msgpack.encode([b"traces", 7])
    assert compare(poll_state(), unreadable, listing("one")) is None


def test_entries_that_a_short_feed_drops_before_they_are_versioned_are_kept() -> None:
    state = poll_state()
    assert titles(compare(state, OLD, listing("two", "one"))) == ["two"]
    update = compare(state, OLD, listing("three"))
    assert update is not None
    assert titles(update) == ["two", "three"]
    version_of_another_node = findings(OLD, listing("three")).baseline
    left = build_update(
        poll_state().channel, update.documents, V3, findings(version_of_another_node, *update.documents), NOW_S
    )
    assert titles(left) == ["two"]


def test_unversioned_documents_are_bounded() -> None:
    state = poll_state()
    for number in range(20):
        keep_unversioned(state, documents_to_compare(state, Document(b"x" * 3_000_000, URL, {"n": str(number)})))
        assert sum(len(each.body) for each in state.unversioned) <= 8 * 1024 * 1024
    assert [each.headers["n"] for each in state.unversioned] == ["18", "19"]


def test_an_unchanged_document_keeps_the_update_of_a_concurrent_poll() -> None:
    state = poll_state()
    before = documents_to_compare(state, listing("one"))
    assert titles(compare(state, OLD, listing("two", "one"))) == ["two"]
    accept_unchanged(state, before, Validators("v2"))
    assert state.validators == V3
    assert titles(compare(state, OLD, None)) == ["two"]


def test_the_latest_document_is_compared_last() -> None:
    state = poll_state()
    keep_unversioned(state, (listing("two"), listing("three")))
    assert documents_to_compare(state, listing("two")) == (listing("three"), listing("two"))


def test_one_poll_a_day_omits_the_publishers_validators() -> None:
    state = poll_state()
    polls = [NOW_S + 600 * number for number in range(3 * 144)]
    full = 0
    for now_s in polls:
        asked = conditional_validators(state, now_s)
        assert asked.body_sha256 == V3.body_sha256
        if not asked.etag:
            full += 1
            state.full_day = channel_day(state.channel, now_s)
    assert full == pytest.approx(3, abs=1)


def test_a_reloaded_state_keeps_the_fields_that_are_not_stored() -> None:
    state = poll_state()
    state.slow, state.deadly_sha256, state.unversioned = True, "d" * 64, (listing("one"),)
    channel = msgspec.structs.replace(state.channel, version=4)
    stored = ChannelState(channel, 1, "", 4, "", Validators("v4"), None, UpdateHistory())
    after = build_poll_state(stored, 7, NOW_S, state)
    assert (after.channel.version, after.validators, after.subscribers) == (4, Validators("v4"), 7)
    assert (after.slow, after.deadly_sha256, after.unversioned) == (True, "d" * 64, ())
