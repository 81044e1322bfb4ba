"""What follows for a node from what its documents say, and what its next poll is made conditional with."""

import msgspec
import pytest

from service.feeds.entries.change_detection import detect_changes
from service.feeds.sandbox.protocol import DetectChanges, DetectionResult, Document
from service.model import Channel, Validators
from tests.support.feed_documents import item, rss
from workers.polling.poll_state import (
    DetectedUpdate,
    PollState,
    condition,
    day_of,
    documents_of,
    found,
    kept,
    moved_on,
    renewed,
)

URL = "https://example.org/feed"
NOW_S = 1_700_000_000.0
V3 = Validators("v3", body_sha256="3" * 64)


def listing(*names: str) -> Document:
    return Document(rss([item(name) for name in names]), URL, {"content-type": "text/xml"})


def known(*, dormant: bool = False) -> PollState:
    return PollState(Channel("a" * 40, URL, version=3, dormant=dormant), V3, 1)


def findings(memory: bytes, *documents: Document) -> DetectionResult:
    return detect_changes(DetectChanges(documents, memory, URL, "feed", NOW_S))


def compared(held: PollState, memory: bytes, arrived: Document | None) -> DetectedUpdate | None:
    documents = documents_of(held, arrived)
    find = found(held.channel, documents, Validators("v4"), findings(memory, *documents), NOW_S)
    if find is None:
        moved_on(held, documents, Validators("v4"))
    else:
        kept(held, documents)
    return find


def titles(find: DetectedUpdate | None) -> list[str]:
    assert find is not None
    return [change.entry.title.removeprefix("Title ") for change in find.candidate.delta.changes]


OLD = findings(b"", listing("one")).baseline


def test_nothing_new_moves_the_base_on_and_finds_nothing() -> None:
    held = known()
    assert compared(held, OLD, listing("one")) is None
    assert held.validators == Validators("v4")


def test_something_new_is_found_against_the_version_and_leaves_the_base_so_that_it_would_be_found_again() -> None:
    held = known()
    find = compared(held, OLD, listing("two", "one"))
    assert find is not None
    assert titles(find) == ["two"]
    assert (find.candidate.delta.base_version, find.candidate.delta.initial) == (3, False)
    assert held.validators == V3
    again = compared(held, OLD, listing("two", "one"))
    assert again is not None
    assert again.candidate == find.candidate


def test_what_is_remembered_of_a_find_knows_what_was_found() -> None:
    find = compared(known(), OLD, listing("two", "one"))
    assert find is not None
    assert compared(known(), find.candidate.memory, listing("two", "one")) is None


def test_what_a_dormant_channel_lists_is_always_found_to_be_taken_in_silently() -> None:
    for arrived in (listing("two", "one"), listing("one")):
        find = compared(known(dormant=True), OLD, arrived)
        assert find is not None
        assert find.candidate.delta.initial


def test_what_another_version_of_coronet_remembered_is_forgotten_and_the_poll_is_like_a_first_one() -> None:
    unreadable = msgspec.msgpack.encode([b"traces", 7])
    assert compared(known(), unreadable, listing("one")) is None


def test_what_a_short_feed_drops_before_it_is_versioned_is_still_found() -> None:
    held = known()
    assert titles(compared(held, OLD, listing("two", "one"))) == ["two"]
    find = compared(held, OLD, listing("three"))
    assert find is not None
    assert titles(find) == ["two", "three"]
    version_of_another_node = findings(OLD, listing("three")).baseline
    left = found(known().channel, find.documents, V3, findings(version_of_another_node, *find.documents), NOW_S)
    assert titles(left) == ["two"]


def test_documents_wait_for_their_version_within_bounds() -> None:
    held = known()
    for number in range(20):
        kept(held, documents_of(held, Document(b"x" * 3_000_000, URL, {"n": str(number)})))
        assert sum(len(each.body) for each in held.unversioned) <= 8 * 1024 * 1024
    assert [each.headers["n"] for each in held.unversioned] == ["18", "19"]


def test_what_another_poll_found_meanwhile_still_waits_for_its_version() -> None:
    held = known()
    before = documents_of(held, listing("one"))
    assert titles(compared(held, OLD, listing("two", "one"))) == ["two"]
    moved_on(held, before, Validators("v2"))
    assert held.validators == V3
    assert titles(compared(held, OLD, None)) == ["two"]


def test_the_latest_document_is_compared_last_though_it_was_there_before() -> None:
    held = known()
    kept(held, (listing("two"), listing("three")))
    assert documents_of(held, listing("two")) == (listing("three"), listing("two"))


def test_once_a_day_a_poll_does_not_rely_on_the_publishers_validators() -> None:
    held = known()
    polls = [NOW_S + 600 * number for number in range(3 * 144)]
    full = 0
    for now_s in polls:
        asked = condition(held, now_s)
        assert asked.body_sha256 == V3.body_sha256
        if not asked.etag:
            full += 1
            held.full_day = day_of(held.channel, now_s)
    assert full == pytest.approx(3, abs=1)


def test_a_new_version_leaves_what_only_this_node_knows() -> None:
    held = known()
    held.slow, held.deadly_sha256, held.unversioned = True, "d" * 64, (listing("one"),)
    loaded = PollState(msgspec.structs.replace(held.channel, version=4), Validators("v4"), 7)
    after = renewed(held, loaded)
    assert (after.channel.version, after.validators, after.subscribers) == (4, Validators("v4"), 7)
    assert (after.slow, after.deadly_sha256, after.unversioned) == (True, "d" * 64, ())
