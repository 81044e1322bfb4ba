"""Moves of channels to new URLs: another channel, the *successor*, takes over the content and the subscriptions.

The last version of the old channel announces the move. The admins' settings are copied to the successor. When all
subscribers have moved, the old channel is no longer polled, but it is kept and redirects to its successor. Every step
can be repeated safely.

Each subscriber *joins* the successor at a certain version of the successor, and receives all later versions. Which
version that is depends on what the successor monitors:

- The same content, if the successor is not polled yet: it gets a new version with the old channel's state. Subscribers
  join at this version.
- The same content, if the successor is polled already: it keeps its own state. Subscribers join at the successor's
  newest version whose new entries were all delivered by the old channel.
- Another part of the same page: entries cannot be compared. Subscribers join at the version
  that the successor had when the move was decided. If the successor is not polled yet, the entries that its first poll
  finds are not delivered.
"""

import contextlib
from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec

from service.errors import LimitReached
from service.feeds.canonical_urls import channel_id, without_selector
from service.model import Channel, ChannelId, Delta, Entry, Validators
from service.store.channels.admin_settings import AdminSettings
from service.store.channels.channel_records import ChannelState, Snapshot
from service.store.channels.channels import Channels
from service.store.coordination.poll_bounds_store import PollBoundsStore
from service.store.subscriptions.subscriptions import Subscriptions

_COPIED_ENTRIES = 20
"""Maximum number of latest entries that are copied to a successor, so that users can request them there."""
_DELIVERED_ENTRIES = 100
_COMPARED_VERSIONS = 20
"""Number of a successor's latest versions that :func:`agreed_version` examines."""


class ChannelMoves:
    """Moves channels to new URLs, after their subscribers have been notified of the move.

    Each step of a move can be repeated safely, by any process.
    """

    def __init__(
        self, channels: Channels, subscriptions: Subscriptions, admin_settings: AdminSettings, bounds: PollBoundsStore
    ) -> None:
        self._channels = channels
        self._admin_settings = admin_settings
        self._bounds = bounds
        self._subscriptions = subscriptions

    async def carry_out(self, moved: ChannelState, now_s: float) -> None:
        """Move a channel's content, settings and subscriptions to its successor, the channel at the new URL.

        ``moved`` is the state of the old channel. All versions of the old channel must already have been queued for its
        subscribers. ``now_s`` is the Unix time.
        """
        old, successor = moved.channel, moved.channel.moved_to
        announcement = await self._channels.delta(old.id, old.version)
        if announcement is None or announcement.notice is None:
            return  # deleted meanwhile
        if old.dormant and not await self._subscriptions.count(old.id):
            return  # complete, and nobody has subscribed since
        joins_at = await self._create_successor(moved, announcement, announcement.notice.detail, now_s)
        await self._copy_admin_settings(old.id, successor, now_s)
        if old.listed:
            await self._channels.set_listed(successor, listed=True)
            await self._channels.set_listed(old.id, listed=False)
        await self._subscriptions.move(old.id, successor, joins_at)
        await self._channels.finish_joining(old.id, successor)
        await self._channels.mark_dormant(old.id)

    async def _copy_admin_settings(self, old: ChannelId, successor: ChannelId, now_s: float) -> None:
        """Copy the admins' settings to the successor, except those that the successor already has."""
        then, now = await self._admin_settings.read([old, successor])
        if then is None or now is None:
            return
        if then.tags and not now.tags:
            await self._admin_settings.set_tags([(successor, then.tags)])
        if (note := await self._admin_settings.note(old)) and not await self._admin_settings.note(successor):
            await self._admin_settings.set_note(successor, note)
        if then.paused_until_s > now_s and not now.paused_until_s:
            await self._admin_settings.pause([successor], then.paused_until_s - now_s)
        bounded = await self._bounds.get(old)
        if bounded is not None and await self._bounds.get(successor) is None:
            with contextlib.suppress(LimitReached):
                await self._bounds.set(successor, bounded.bounds, by=bounded.by)
            await self._bounds.delete(old)

    async def _create_successor(self, moved: ChannelState, announcement: Delta, url: str, now_s: float) -> int:
        """Create or update the channel at the new URL; return the version at which subscribers join it.

        Subscribers will receive all versions of the new channel after the returned one. If the old channel is dormant
        (not polled), the new channel becomes dormant too.

        - ``moved``: state of the old channel.
        - ``announcement``: the old channel's version that announced the move to subscribers.
        - ``url``: the new URL.
        - ``now_s``: the Unix time.
        """
        # Nobody is subscribed to a dormant channel. Later subscribers of the successor thus get no older entries.
        old, other_part = moved.channel, without_selector(url) == without_selector(moved.channel.url)
        _, _, content = await self._channels.content(old.id)
        metadata = await self._channels.feed_metadata(old.id)
        snapshot = Snapshot(
            moved.validators,
            content.memory,
            old.title,
            old.link,
            moved.polling_hints,
            language=old.language,
            metadata=metadata,
        )
        latest = tuple(reversed(await self._channels.latest(old.id, _COPIED_ENTRIES)))
        if other_part:
            snapshot, latest = msgspec.structs.replace(snapshot, validators=Validators(), memory=b""), ()
        joins_at = None
        while joins_at is None:
            present = await self._channels.get(old.moved_to)
            successor = msgspec.structs.replace(present or _new_successor(old, url, now_s), dormant=old.dormant)
            joining_version = await self._joining_version(
                old, successor, announcement.detected_s if other_part else None
            )
            joins_at = await self._channels.take_over(
                old.id, successor, snapshot, latest, joins_at=joining_version, now_s=now_s
            )
        return joins_at

    async def _joining_version(self, old: Channel, successor: Channel, decided_s: float | None) -> int:
        """Return the version of ``successor`` at which the subscribers of ``old`` join it.

        They will receive all later versions of the successor. The caller uses the result only if the successor is
        already being polled. ``decided_s`` is None if both channels monitor the same content. If they monitor
        different parts of the same page, it is the time when the move was decided (Unix s).

        - If ``old`` is dormant, all its subscribers have moved already. The result is the successor's present
          version.
        - Otherwise, if ``decided_s`` is None, the result is the newest version that adds only entries that ``old``
          has delivered too (:func:`agreed_version`).
        - Otherwise, the result is the last version that the successor had at ``decided_s``.
        """
        if old.dormant:  # all subscribers have moved; later ones have missed nothing
            return successor.version
        deltas = await self._channels.versions(successor.id, _COMPARED_VERSIONS)
        if decided_s is not None:
            return next((each.version for each in deltas if each.detected_s <= decided_s), successor.version)
        return agreed_version(await self._channels.latest(old.id, _DELIVERED_ENTRIES), deltas, successor.version)


def _new_successor(old: Channel, url: str, now_s: float) -> Channel:
    """Return a new channel at ``url`` that monitors the same content as ``old``."""
    same_host = urlsplit(url).hostname == urlsplit(old.url).hostname
    return Channel(channel_id(url), url, kind=old.kind, created_s=now_s, private=old.private and same_host)


def agreed_version(delivered: Sequence[Entry], deltas: Sequence[Delta], newest: int) -> int:
    """Return the newest version of a channel whose new entries were all delivered by the channel's predecessor.

    The predecessor is a channel that has moved to this one.

    - ``delivered``: entries that the predecessor has delivered.
    - ``deltas``: the changes in the channel's latest versions, newest first. Only these versions are examined.
    - ``newest``: the channel's present version. It is returned if no examined version qualifies.

    A new entry counts as delivered if its key or link occurs in ``delivered``. A version without new entries does not
    qualify. A version that is not delivered to subscribers, such as the channel's first one, always qualifies.
    """
    known = {entry.key for entry in delivered} | {entry.link for entry in delivered if entry.link}
    for delta in deltas:
        entries = [change.entry for change in delta.changes if change.kind == "addition"]
        if delta.initial or (entries and all(entry.key in known or entry.link in known for entry in entries)):
            return delta.version
    return newest
