"""How a fetched document compares with what a node knows of its channel."""

import msgspec

from service.feeds.identity import IdentityState
from service.model import Channel, ParsedEntry, ParsedFeed, Validators
from service.net.fetch import Fetched
from service.store.channels import ChannelState
from workers.watch import Watch, compare, compare_again, watch

URL = "https://example.org/feed"
OLD = ParsedFeed(title="Old", entries=(ParsedEntry(id="1", link="https://example.org/1", title="One"),))
NEW = ParsedFeed(title="New", entries=(ParsedEntry(id="2", link="https://example.org/2", title="Two"), *OLD.entries))


def fetched(etag: str) -> Fetched:
    return Fetched(200, URL, b"", {}, Validators(etag), False, None, 0.0, None)


def known(*, dormant: bool = False) -> Watch:
    held = Watch(Channel("a" * 40, URL, version=3), Validators("v3"), None, 1)
    assert compare(held, fetched("v3"), OLD, 1_000.0) is None
    held.channel = msgspec.structs.replace(held.channel, dormant=dormant)
    return held


def test_nothing_new_moves_the_base_on_and_finds_nothing() -> None:
    held = known()
    assert compare(held, fetched("v4"), OLD, 1_000.0) is None
    assert held.validators == Validators("v4")


def test_something_new_is_found_against_the_version_and_leaves_the_base_so_that_it_would_be_found_again() -> None:
    held = known()
    found = compare(held, fetched("v4"), NEW, 1_000.0)
    assert found is not None
    delta = found.candidate.delta
    assert [change.entry.title for change in delta.changes] == ["Two"]
    assert (delta.base_version, delta.initial, found.candidate.title) == (3, False, "New")
    assert held.validators == Validators("v3")
    again = compare(held, fetched("v4"), NEW, 1_000.0)
    assert again is not None
    assert again.candidate == found.candidate


def test_the_state_of_a_find_knows_what_was_found() -> None:
    held = known()
    found = compare(held, fetched("v4"), NEW, 1_000.0)
    assert found is not None
    held.identity = msgspec.msgpack.decode(found.candidate.identity, type=IdentityState)
    assert compare(held, fetched("v5"), NEW, 1_000.0) is None


def test_a_dormant_channel_is_always_found_to_be_taken_in_silently() -> None:
    assert [
        found is not None and found.candidate.delta.initial
        for found in (
            compare(known(dormant=True), fetched("v4"), NEW, 1_000.0),
            compare(known(dormant=True), fetched("v3"), None, 1_000.0),
        )
    ] == [True, True]


def test_what_another_version_of_coronet_remembered_is_forgotten_and_the_next_poll_is_a_full_first_one() -> None:
    unreadable = msgspec.msgpack.encode([b"traces", 7])
    state = ChannelState(Channel("a" * 40, URL, version=3), 1, "", 3, "", Validators("v3"), unreadable, None)
    held = watch(state, 1)
    assert (held.identity, held.validators) == (None, Validators())
    assert compare(held, fetched("v4"), OLD, 1_000.0) is None
    assert compare(held, fetched("v5"), NEW, 1_000.0) is not None


def test_what_a_short_feed_drops_before_it_is_versioned_is_still_found() -> None:
    held = known()
    third = ParsedFeed(entries=(ParsedEntry(id="3", link="https://example.org/3", title="Three"),))
    assert compare(held, fetched("v4"), NEW, 1_000.0) is not None
    found = compare(held, fetched("v5"), third, 1_000.0)
    assert found is not None
    assert [change.entry.title for change in found.candidate.delta.changes] == ["Two", "Three"]
    version = known()
    version.identity = msgspec.msgpack.decode(found_alone(third), type=IdentityState)
    left = compare_again(version, found, 1_000.0)
    assert left is not None
    assert [change.entry.title for change in left.candidate.delta.changes] == ["Two"]


def found_alone(feed: ParsedFeed) -> bytes:
    """The identities of the version that another node's find of this document became."""
    found = compare(known(), fetched("v5"), feed, 1_000.0)
    assert found is not None
    return found.candidate.identity
