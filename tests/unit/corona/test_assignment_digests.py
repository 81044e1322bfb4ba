"""Digests of assignments: equal for equal assignments, whatever the order of changes."""

from hypothesis import given
from hypothesis import strategies as st

from service.corona.assignment_digests import (
    AssignmentDigests,
    bucket_of,
    decode_digests,
    encode_digests,
    fingerprint,
    version_fingerprint,
)
from service.corona.messages import MAX_BUCKETS, Assign, Assignment, decode, encode
from service.corona.polling_schedule import PollingSchedule

CHANNEL = "c" * 40
ASSIGNMENT = Assignment(CHANNEL, 1, PollingSchedule(1.5, 300.0, 3), 7)

channels = st.integers(0, 300).map(lambda number: f"{number * 7919:040x}")
fingerprints = st.integers(0, (1 << 64) - 1)


def test_a_fingerprint_is_the_same_in_every_process() -> None:
    assert fingerprint(ASSIGNMENT) == 0xE015981589B6D09F


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_a_fingerprint_follows_the_version(before: int, after: int) -> None:
    old = Assignment(CHANNEL, 1, PollingSchedule(1.5, 300.0, 3), before)
    new = Assignment(CHANNEL, 1, PollingSchedule(1.5, 300.0, 3), after)
    change = version_fingerprint(CHANNEL, before) ^ version_fingerprint(CHANNEL, after)
    assert fingerprint(old) ^ change == fingerprint(new)


def test_a_received_assignment_has_the_fingerprint_of_the_sent_one() -> None:
    received = decode(encode("a" * 40, Assign(1, (ASSIGNMENT,))))
    assert received is not None
    assert isinstance(received.message, Assign)
    assert fingerprint(received.message.assignments[0]) == fingerprint(ASSIGNMENT)


@given(st.lists(st.tuples(channels, fingerprints), max_size=100), st.sampled_from([1, 2, 64, MAX_BUCKETS]))
def test_digests_depend_on_the_present_fingerprints_only(changes: list[tuple[str, int]], buckets: int) -> None:
    changed, fresh = AssignmentDigests(), AssignmentDigests()
    present: dict[str, int] = {}
    for channel, after in changes:
        changed.replace(channel, present.get(channel, 0), after)
        present[channel] = after
    for channel, after in sorted(present.items()):
        fresh.replace(channel, 0, after)
    assert (changed.total, changed.count) == (fresh.total, fresh.count)
    digests = changed.by_bucket(buckets)
    assert digests == fresh.by_bucket(buckets)
    assert decode_digests(encode_digests(digests)) == tuple(digests)
    for channel, after in present.items():
        digests[bucket_of(channel, buckets)] ^= after
    assert digests == [0] * buckets


def test_a_bucket_has_at_most_64_channels_until_there_are_too_many() -> None:
    digests = AssignmentDigests()
    found = {}
    for number in range(100_000):
        digests.replace(f"{number:040x}", 0, 1)
        found[digests.count] = digests.suitable_buckets
    assert [found[count] for count in (1, 64, 65, 128, 129, 5_000, 65_536, 100_000)] == [1, 1, 2, 2, 4, 128, 1024, 1024]


def test_impossible_digests_are_refused() -> None:
    assert decode_digests(b"") is None
    assert decode_digests(b"1234567") is None
    assert decode_digests(b"12345678" * 3) is None
