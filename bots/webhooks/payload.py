"""The requests to a person's webhook: the content as JSON, and the signature (Standard Webhooks).

One request is about one item of the queue: the new entries, or the edited entries, of one version of a channel.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from service.feeds.atom_writer import entry_uuid, format_date
from service.feeds.canonical_urls import shown_url
from service.model import Change, Channel, Delta
from service.store.delivery.outbox import OutboxItem

MAX_ENTRIES: Final = 50
"""Maximum number of entries in one request; the last ones are sent."""


def webhook_payload(
    item: OutboxItem, channel: Channel, number: int | None, deltas: Sequence[Delta], missing_count: int
) -> bytes:
    """Return the content of the request about ``item`` as JSON.

    - ``channel``: the channel, with the person's own title if there is one.
    - ``number``: the number of the subscription; None if a saved search has matched.
    - ``deltas``: the changes that are delivered, oldest first.
    - ``missing_count``: how many versions are no longer stored.
    """
    changes = [change for delta in deltas for change in delta.changes]
    data = {
        "channel": {"url": shown_url(channel.url), "title": channel.title, "number": number},
        "entries": [_entry(channel, change) for change in changes[-MAX_ENTRIES:]],
        "left_out": missing_count + len(changes[:-MAX_ENTRIES]),
        "notices": [each.notice for each in deltas if each.notice is not None],
        "searches": [{"number": each.number, "query": each.query} for each in item.matches or ()],
    }
    kind = "entries.edited" if item.edits else "entries.new"
    return msgspec.json.encode({"type": kind, "timestamp": format_date(item.queued_s), "data": data})


def signed_headers(secret: str, message_id: str, now_s: float, body: bytes) -> dict[str, str]:
    """Return the headers of a request with the content ``body``.

    ``secret`` is the webhook's secret: ``whsec_`` and the key in base64. ``message_id`` is the same whenever the same
    item is sent. ``now_s`` is the Unix time.
    """
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signature = hmac.digest(key, f"{message_id}.{int(now_s)}.".encode() + body, hashlib.sha256)
    return {
        "Content-Type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": str(int(now_s)),
        "webhook-signature": f"v1,{base64.b64encode(signature).decode()}",
    }


def _entry(channel: Channel, change: Change) -> Mapping[str, Any]:
    entry = change.entry
    if change.line:
        own = {"change": change.kind, "line": change.line, "before": change.before}
        return {**own, "title": entry.title, "summary": entry.summary}
    published = None if entry.published is None else format_date(entry.published)
    files = [{"url": each.url, "type": each.type, "size": each.size_bytes} for each in entry.enclosures]
    return {
        "id": f"urn:uuid:{entry_uuid(channel, entry)}",
        "title": entry.title,
        "link": entry.link,
        "summary": entry.summary,
        "authors": entry.authors,
        "tags": entry.tags,
        "published": published,
        "image": entry.image,
        "files": files,
    }
