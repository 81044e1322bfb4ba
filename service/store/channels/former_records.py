"""Conversion of channel records that former versions of Coronet have written.

Former versions stored each value of a snapshot in a field of its own, and the log in a stream, with one delta per
entry. A record is converted when it is read first. Processes of a former version cannot use it then.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from service.corona.update_rates import UpdateHistory
from service.model import ChannelId, Delta, FeedMetadata, PollingHints, Validators
from service.store.channels import version_log
from service.store.channels.channel_records import Snapshot, StoredSnapshot, existing_fields
from service.store.client import keys
from service.store.client.connection import BatchingClient, script_command

_FORMER_FIELDS = (
    *("title", "link", "language", "imprint", "kind", "created", "etag", "last_modified", "body_sha256", "digest"),
    *("wishes", "updates"),
)


async def read_records(
    redis: BatchingClient, cids: Sequence[ChannelId], names: Sequence[str]
) -> list[dict[bytes, bytes]]:
    """Return the existing fields among ``names`` of channels, in the order of ``cids``.

    ``names`` include "url" and "snapshot".
    """
    records = await _read(redis, cids, names)
    return await _read(redis, cids, names) if await convert_former(redis, cids, records) else records


async def _read(redis: BatchingClient, cids: Sequence[ChannelId], names: Sequence[str]) -> list[dict[bytes, bytes]]:
    found = await redis.call_many([("HMGET", keys.channel(cid), *names) for cid in cids])
    return [existing_fields(names, values) for values in found]


async def convert_former(
    redis: BatchingClient, cids: Sequence[ChannelId], records: Sequence[dict[bytes, bytes]] | None = None
) -> bool:
    """Convert those of the channels whose records are of a former version; return whether there were any.

    ``records`` have the fields "url" and "snapshot" of the channels; None reads them.
    """
    if records is None:
        records = await _read(redis, cids, ("url", "snapshot"))
    former = [cid for cid, each in zip(cids, records, strict=True) if b"url" in each and b"snapshot" not in each]
    for cid in former:
        own = (keys.channel(cid), keys.former_channel_log(cid))
        fields, log = await redis.call_many([("HGETALL", own[0]), ("XRANGE", own[1], "-", "+")])
        if b"url" in fields and b"snapshot" not in fields:
            converted = _convert(fields, log)
            version, epoch = fields.get(b"version", b""), fields.get(b"epoch", b"")
            arguments = (version, epoch, len(_FORMER_FIELDS), *_FORMER_FIELDS, *converted)
            await redis.call_many([script_command("channel_convert", own, *arguments)])
    return bool(former)


def _convert(fields: dict[bytes, bytes], log: Sequence[Any]) -> list[str | bytes]:
    """Return the fields to set, as alternating names and values."""

    def text(name: bytes) -> str:
        return fields.get(name, b"").decode()

    def decode(name: bytes, kind: type[Any]) -> Any:
        return msgspec.msgpack.decode(fields[name], type=kind) if fields.get(name) else None

    snapshot = Snapshot(
        Validators(text(b"etag"), text(b"last_modified"), text(b"body_sha256")),
        b"",
        text(b"title"),
        text(b"link"),
        decode(b"wishes", PollingHints) or PollingHints(),
        "page" if text(b"kind") == "page" else "feed",
        decode(b"updates", UpdateHistory),
        text(b"language"),
        decode(b"imprint", FeedMetadata) or FeedMetadata(),
    )
    before = StoredSnapshot(created_s=float(text(b"created") or 0))
    stored = before.after(snapshot, fields.get(b"digest", b""))
    deltas = [msgspec.msgpack.decode(entry[b"d"], type=Delta) for _, entry in log]
    return ["snapshot", msgspec.msgpack.encode(stored), *version_log.pack(deltas)]
