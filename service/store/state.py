"""A channel as its hash holds it, and as a value."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from service.corona.estimates import Updates
from service.feeds.urls import channel_id
from service.model import Channel, ChannelId, NodeId, Notice, Validators, Wishes

OF_CHANNEL = (
    *("url", "title", "link", "kind", "version", "created"),
    *("private", "listed", "dormant", "condition", "moved_to", "language"),
)
OF_STATE = (
    *OF_CHANNEL,
    *("epoch", "owner", "fanned", "cursor", "etag", "last_modified", "body_sha256"),
    *("failing_since", "wishes", "updates", "digest"),
)


_NO_WISHES = Wishes()
_NONE = msgspec.msgpack.encode(_NO_WISHES)


class ChannelState(msgspec.Struct, frozen=True):
    """A channel with what its pollers and owner need to go on; what it remembers of its content is read apart.

    ``epoch`` is the owner's fencing token, ``digest`` its content's name.
    """

    channel: Channel
    epoch: int
    owner: NodeId
    fanned: int
    cursor: str
    validators: Validators
    failing_since_s: float | None
    updates: Updates
    wishes: Wishes = Wishes()
    digest: bytes = b""


def present(names: Sequence[str], values: Sequence[bytes | None]) -> dict[bytes, bytes]:
    """Return the fields that a channel has among those asked for."""
    return {name.encode(): value for name, value in zip(names, values, strict=True) if value is not None}


def state_of(cid: ChannelId, fields: dict[bytes, bytes]) -> ChannelState | None:
    """Return what the fields say, None if they are no channel's."""
    if b"url" not in fields:
        return None

    def text(name: bytes) -> str:
        return fields.get(name, b"").decode()

    channel = Channel(
        id=cid,
        url=text(b"url"),
        title=text(b"title"),
        link=text(b"link"),
        kind="page" if text(b"kind") == "page" else "feed",
        version=int(text(b"version") or 0),
        created_s=float(text(b"created") or 0),
        private=text(b"private") == "1",
        listed=text(b"listed") == "1",
        dormant=text(b"dormant") == "1",
        condition=_condition(text(b"condition")),
        moved_to=text(b"moved_to"),
        language=text(b"language"),
    )
    failing = text(b"failing_since")
    return ChannelState(
        channel=channel,
        epoch=int(text(b"epoch") or 0),
        owner=text(b"owner"),
        fanned=int(text(b"fanned") or 0),
        cursor=text(b"cursor"),
        validators=Validators(text(b"etag"), text(b"last_modified"), text(b"body_sha256")),
        failing_since_s=float(failing) if failing else None,
        updates=_updates(fields.get(b"updates"), channel),
        wishes=_wishes(fields.get(b"wishes", _NONE)),
        digest=fields.get(b"digest", b""),
    )


def _wishes(raw: bytes) -> Wishes:
    """Return what a publisher wants; those that want nothing, which are most, share one value."""
    return _NO_WISHES if raw == _NONE else msgspec.msgpack.decode(raw, type=Wishes)


def _updates(raw: bytes | None, channel: Channel) -> Updates:
    """Return what is known of a channel's updates: at first, that nothing was seen since it was made."""
    return msgspec.msgpack.decode(raw, type=Updates) if raw else Updates(since_s=channel.created_s)


def _condition(text: str) -> Literal["", "dead", "quarantined"]:
    return "dead" if text == "dead" else "quarantined" if text == "quarantined" else ""


def told_fields(notice: Notice | None) -> tuple[str, str]:
    """Return the field in which a channel keeps what its subscribers were told, and its value."""
    if notice is None:
        return "", ""
    if notice.kind == "moved":
        return "moved_to", channel_id(notice.detail)
    return "condition", "" if notice.kind == "back" else notice.kind


def channel_fields(channel: Channel) -> list[str]:
    """Return what a channel keeps of what it was made with, as fields and values."""
    return [
        *("url", channel.url, "kind", channel.kind, "created", repr(channel.created_s)),
        *("private", str(int(channel.private)), "listed", str(int(channel.listed))),
        *(("dormant", "1") if channel.dormant else ()),
    ]
