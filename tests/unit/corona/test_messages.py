"""Encoding of messages, and data that cannot be decoded."""

import msgspec
import pytest

from service.corona import messages
from service.corona.polling_schedule import PollingSchedule
from service.model import Change, Delta, Entry, Validators

CHANNEL = "c" * 40
NODE = "a" * 40
DELTA = Delta(CHANNEL, 3, 0, 1.5, (Change("addition", Entry("key", "Title")),))
EVERY_MESSAGE: list[messages.Message] = [
    messages.Assign(7, (messages.Assignment(CHANNEL, 1, PollingSchedule(1e9, 300.0, 3, 2), 3),)),
    messages.AssignmentDigest(7, (1 << 64) - 1),
    messages.BucketDigests(7, b"\xff" * 8),
    messages.Unassign(7, CHANNEL),
    messages.Candidate(DELTA, Validators(etag='"x"'), b"\x00state"),
    messages.VersionAnnouncement(CHANNEL, 4),
    messages.Rejection(CHANNEL, 3, 5),
    messages.ChannelAdded(CHANNEL),
    messages.ChannelRemoved(CHANNEL),
    messages.Summary(2, messages.Aggregate(3, 12.0, b"clusters")),
    messages.SiteShares((messages.SiteShare("example.org", b"clusters"),)),
    messages.SiteScales((messages.SiteScale("example.org", 0.5),)),
]


@pytest.mark.parametrize("message", EVERY_MESSAGE, ids=lambda message: type(message).__name__)
def test_messages_survive_encoding(message: messages.Message) -> None:
    assert messages.decode(messages.encode(NODE, message)) == messages.Envelope(messages.WIRE_VERSION, NODE, message)


def test_a_candidate_names_its_channel_and_base() -> None:
    candidate = messages.Candidate(DELTA, Validators(), b"")
    assert (candidate.channel, candidate.base_version) == (CHANNEL, 3)


@pytest.mark.parametrize(
    "sent",
    [
        [1, NODE, {"type": "Versioned", "channel": CHANNEL, "version": 4}],
        [messages.WIRE_VERSION, NODE, {"type": "Invented", "channel": CHANNEL}],
        [messages.WIRE_VERSION, NODE, {"type": "Versioned", "channel": CHANNEL}],
        [messages.WIRE_VERSION, NODE, {"type": "Versioned", "channel": "not hex", "version": 4}],
        [
            messages.WIRE_VERSION,
            NODE,
            {"type": "Assign", "ring_version": 1, "assignments": [[CHANNEL, 0, [1e9, 900.0, 0, 0], 1]]},
        ],
        [
            messages.WIRE_VERSION,
            NODE,
            {"type": "Assign", "ring_version": 1, "assignments": [[CHANNEL, 0, [1e9, 0.0, 1, 0], 1]]},
        ],
        [messages.WIRE_VERSION, NODE, {"type": "Summary", "digits": 1, "part": [0, 1.0, b""]}],
        [messages.WIRE_VERSION, NODE, {"type": "SiteScales", "scales": [["example.org", -1.5]]}],
        [messages.WIRE_VERSION, NODE, {"type": "BucketDigests", "ring_version": 1, "digests": b"\0" * 8_193}],
        "nonsense",
    ],
    ids=[
        "another wire version",
        "unknown type",
        "field missing",
        "bad channel",
        "empty set",
        "no gap",
        "no nodes",
        "less than nothing",
        "too many buckets",
        "no list",
    ],
)
def test_unknown_messages_decode_to_none(sent: object) -> None:
    assert messages.decode(msgspec.msgpack.encode(sent)) is None


@pytest.mark.parametrize("raw", [b"", b"\xc1", messages.encode(NODE, EVERY_MESSAGE[2])[:-3]])
def test_malformed_bytes_decode_to_none(raw: bytes) -> None:
    assert messages.decode(raw) is None


def test_a_field_added_later_is_ignored() -> None:
    sent = [messages.WIRE_VERSION, NODE, {"type": "Versioned", "channel": CHANNEL, "version": 4, "mood": "new"}]
    envelope = messages.decode(msgspec.msgpack.encode(sent))
    assert envelope is not None
    assert envelope.message == messages.VersionAnnouncement(CHANNEL, 4)
