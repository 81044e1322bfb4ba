"""Channels that have moved: another channel takes over, and their subscriptions follow. Resumable at any step.

Once the notice is versioned the channel is frozen, so what its subscribers were told is known for good.
Its successor goes on from exactly there; one that is polled already, from where both last agreed. Where another part
of the same page is watched, there is nothing to agree on: its subscribers join at what there was when it was decided,
and of a successor that is not polled the next poll tells nothing. What admins said of the channel goes along. The
channel stays as a signpost to its successor, and dozes as soon as everybody is there.
"""

import contextlib
from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec

from service.errors import LimitReached
from service.feeds.urls import channel_id, without_selector
from service.model import Channel, ChannelId, Delta, Entry, Validators
from service.store.channels.admin_settings import AdminSettings
from service.store.channels.channels import Channels, ChannelState, Snapshot
from service.store.coordination.fleet_policy import BoundsStore
from service.store.subscriptions.subscriptions import Subscriptions

_LATEST = 20
"""Entries that a successor begins with, for people who ask for the latest."""
_TOLD = 100
_COMPARED = 20
"""Versions of a successor that are searched for one with none but the last entries that the old channel told."""


class ChannelMoves:
    """Carries out moves that have been told; anybody may repeat one."""

    def __init__(
        self, channels: Channels, subscriptions: Subscriptions, remarks: AdminSettings, bounds: BoundsStore
    ) -> None:
        """Move these subscriptions between these channels, and what admins said of one."""
        self._channels = channels
        self._remarks = remarks
        self._bounds = bounds
        self._subscriptions = subscriptions

    async def carry_out(self, moved: ChannelState, now_s: float) -> None:
        """Hand a channel over to its successor. All its versions have to be fanned out before."""
        old, successor = moved.channel, moved.channel.moved_to
        told = await self._channels.delta(old.id, old.version)
        if told is None or told.notice is None:
            return  # removed meanwhile
        if old.dormant and not await self._subscriptions.count(old.id):
            return  # through, and nobody came later
        joins_at = await self._taken_over(moved, told, told.notice.detail, now_s)
        await self._say_the_same(old.id, successor, now_s)
        if old.listed:
            await self._channels.set_listed(successor, listed=True)
            await self._channels.set_listed(old.id, listed=False)
        await self._subscriptions.move(old.id, successor, joins_at)
        await self._channels.finish_joining(old.id, successor)
        await self._channels.mark_dormant(old.id)

    async def _say_the_same(self, old: ChannelId, successor: ChannelId, now_s: float) -> None:
        """Have of the successor what admins said of the channel, unless they said something of it already."""
        then, now = await self._remarks.read([old, successor])
        if then is None or now is None:
            return
        if then.tags and not now.tags:
            await self._remarks.set_tags([(successor, then.tags)])
        if (note := await self._remarks.note(old)) and not await self._remarks.note(successor):
            await self._remarks.set_note(successor, note)
        if then.paused_until_s > now_s and not now.paused_until_s:
            await self._remarks.pause([successor], then.paused_until_s - now_s)
        bounded = await self._bounds.get(old)
        if bounded is not None and await self._bounds.get(successor) is None:
            with contextlib.suppress(LimitReached):
                await self._bounds.set(successor, bounded.bounds, by=bounded.by)
            await self._bounds.delete(old)

    async def _taken_over(self, moved: ChannelState, told: Delta, url: str, now_s: float) -> int:
        """Have the successor exist; return the version at which the subscribers join it.

        It is awake, unless what the channel knew is long out of date: who comes to a signpost wants no backlog.
        """
        old, other_part = moved.channel, without_selector(url) == without_selector(moved.channel.url)
        _, memory = await self._channels.memory(old.id)
        (imprint,) = await self._channels.feed_metadata([old.id])
        snapshot = Snapshot(
            moved.validators, memory, old.title, old.link, moved.wishes, language=old.language, imprint=imprint
        )
        latest = tuple(reversed(await self._channels.latest(old.id, _LATEST)))
        if other_part:
            snapshot, latest = msgspec.structs.replace(snapshot, validators=Validators(), memory=b""), ()
        joins_at = None
        while joins_at is None:
            present = await self._channels.get(old.moved_to)
            successor = msgspec.structs.replace(present or _heir(old, url, now_s), dormant=old.dormant)
            agreed = await self._agreed(old, successor, told.detected_s if other_part else None)
            joins_at = await self._channels.take_over(old.id, successor, snapshot, latest, joins_at=agreed, now_s=now_s)
        return joins_at

    async def _agreed(self, old: Channel, successor: Channel, decided_s: float | None) -> int:
        """Return the successor's version after which it may have told what the old channel did not.

        ``decided_s`` (Unix s) is when it was decided to watch another part of the page, if that is the case.
        """
        if old.dormant:  # everybody has moved; who came later has missed nothing
            return successor.version
        versions = range(successor.version, max(0, successor.version - _COMPARED), -1)
        deltas = [delta for version in versions if (delta := await self._channels.delta(successor.id, version))]
        if decided_s is not None:
            return next((each.version for each in deltas if each.detected_s <= decided_s), successor.version)
        return agreed_version(await self._channels.latest(old.id, _TOLD), deltas, successor.version)


def _heir(old: Channel, url: str, now_s: float) -> Channel:
    """Return the channel that watches at ``url`` what the old one watched."""
    same_host = urlsplit(url).hostname == urlsplit(old.url).hostname
    return Channel(channel_id(url), url, kind=old.kind, created_s=now_s, private=old.private and same_host)


def agreed_version(told: Sequence[Entry], deltas: Sequence[Delta], newest: int) -> int:
    """Return the last version of ``deltas`` (newest first) that tells nothing besides ``told``; else ``newest``."""
    known = {entry.key for entry in told} | {entry.link for entry in told if entry.link}
    for delta in deltas:
        entries = [change.entry for change in delta.changes if change.kind == "addition"]
        if delta.initial or (entries and all(entry.key in known or entry.link in known for entry in entries)):
            return delta.version
    return newest
