"""Requests to webhooks: the content is JSON, bounded in size, and signed as Standard Webhooks say."""

import msgspec

from bots.webhooks.payload import MAX_ENTRIES, signed_headers, webhook_payload
from service.feeds.canonical_urls import channel_id, protected_url
from service.model import Change, Channel, Delta, Enclosure, Entry, Notice
from service.store.delivery.outbox import MatchedSearch, OutboxItem

URL = "https://example.org/feed"
CHANNEL = Channel(channel_id(URL), URL, title="A feed", version=9)


def delta(*changes: Change, notice: Notice | None = None) -> Delta:
    return Delta(CHANNEL.id, 1, 2, 1_000.0, changes, notice=notice)


def test_the_signature_is_that_of_the_example_in_the_specification() -> None:
    headers = signed_headers(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1_614_265_330.7,
        b'{"test": 2432232314}',
    )
    assert headers["webhook-id"] == "msg_p5jXN8AQM9LWM0D4loKWxJek"
    assert headers["webhook-timestamp"] == "1614265330"
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_request_contains_the_entries_of_a_version() -> None:
    file = Enclosure("https://example.org/a.mp3", "audio/mpeg", 9)
    entry = Entry("k", "Title", "https://example.org/a", "Text.", ("Ann",), ("tea",), 1_000.0, "", (file,))
    item = OutboxItem(CHANNEL.id, 2, 2_000.0, matches=(MatchedSearch(1, "python", (0,)),))
    content = msgspec.json.decode(webhook_payload(item, CHANNEL, 3, [delta(Change("addition", entry))], 0))
    assert content["type"] == "entries.new"
    assert content["timestamp"] == "1970-01-01T00:33:20Z"
    assert content["data"]["channel"] == {"url": URL, "title": "A feed", "number": 3}
    assert content["data"]["searches"] == [{"number": 1, "query": "python"}]
    (shown,) = content["data"]["entries"]
    assert shown.pop("id").startswith("urn:uuid:")
    assert shown == {
        "title": "Title",
        "link": "https://example.org/a",
        "summary": "Text.",
        "authors": ["Ann"],
        "tags": ["tea"],
        "published": "1970-01-01T00:16:40Z",
        "image": "",
        "files": [{"url": "https://example.org/a.mp3", "type": "audio/mpeg", "size": 9}],
    }


def test_the_reader_of_a_protected_channel_is_not_shown() -> None:
    channel = Channel("c" * 40, protected_url(URL, "somebody"))
    body = webhook_payload(OutboxItem(channel.id, 2, 0.0), channel, 3, [delta(Change("addition", Entry("k")))], 0)
    assert b"somebody" not in body


def test_an_edit_has_the_id_of_the_entry() -> None:
    changes = (Change("addition", Entry("k", "Old")), Change("replacement", Entry("k", "New")))
    contents = []
    for change in changes:
        item = OutboxItem(CHANNEL.id, 2, 0.0, edits=change.kind == "replacement")
        contents.append(msgspec.json.decode(webhook_payload(item, CHANNEL, 3, [delta(change)], 0)))
    assert [content["type"] for content in contents] == ["entries.new", "entries.edited"]
    assert len({content["data"]["entries"][0]["id"] for content in contents}) == 1


def test_changed_lines_and_notices_are_shown() -> None:
    line = Change("replacement", Entry("l", "Prices", summary="19"), line=4, before="21")
    deltas = [delta(line), delta(notice=Notice("moved", "https://example.org/new"))]
    data = msgspec.json.decode(webhook_payload(OutboxItem(CHANNEL.id, 2, 0.0), CHANNEL, 3, deltas, 2))["data"]
    assert data["entries"] == [{"change": "replacement", "line": 4, "before": "21", "title": "Prices", "summary": "19"}]
    assert data["notices"] == [{"kind": "moved", "detail": "https://example.org/new"}]
    assert data["left_out"] == 2


def test_only_the_last_entries_of_many_are_sent() -> None:
    many = [Change("addition", Entry(str(n), f"Entry {n}", summary="ü" * 2_000)) for n in range(500)]
    body = webhook_payload(OutboxItem(CHANNEL.id, 2, 0.0), CHANNEL, 3, [delta(*many)], 0)
    data = msgspec.json.decode(body)["data"]
    assert [entry["title"] for entry in data["entries"]] == [f"Entry {n}" for n in range(500 - MAX_ENTRIES, 500)]
    assert data["left_out"] == 500 - MAX_ENTRIES
    assert len(body) < 500_000
