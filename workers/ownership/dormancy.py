"""Dormancy: a channel (a feed or page) that nobody needs any more is not polled, but stays in the store.

A user's own protected channel, which has the user's credential and contents, is deleted instead.

A channel is needed in each of these cases:

- It has subscribers, or a user is about to subscribe.
- An admin has listed it in the public directory.
- Its move to another URL is not complete.

The next subscription to a dormant channel wakes it up (:mod:`workers.request_handlers.channel_creation`).
"""

from collections.abc import Sequence

from service.feeds.canonical_urls import SHARED, reader_of
from service.model import ChannelId
from service.store import Store

_EXPECTED_FOR_S = 60.0


class DormancyPolicy:
    """Decides which channels without subscribers are still polled, and marks the others as dormant."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._expected_s: dict[ChannelId, float] = {}

    def expect_subscribers(self, channel_id: ChannelId, now_s: float) -> None:
        """Keep a channel for a minute after ``now_s`` (monotonic time), even if it has no subscribers."""
        self._expected_s[channel_id] = now_s

    def take_expected(self, now_s: float) -> list[ChannelId]:
        """Return the channels that are kept although they have no subscribers, because a user is about to subscribe.

        A channel is kept for a minute. If its minute is over at ``now_s`` (monotonic time in seconds), the result
        contains the channel for the last time.
        """
        expected = list(self._expected_s)
        self._expected_s = {
            channel_id: at_s for channel_id, at_s in self._expected_s.items() if now_s - at_s < _EXPECTED_FOR_S
        }
        return expected

    async def needed_without_subscribers(self, channel_ids: Sequence[ChannelId]) -> set[ChannelId]:
        """Return the channels that are needed although they have no subscribers; mark the others as dormant.

        Dormant channels are not polled. Users' own protected channels are deleted instead. A channel is needed if

        - a user is about to subscribe to it, even if ``channel_ids`` does not contain it,
        - an admin has listed it, or
        - its move to another URL is not complete.
        """
        needed = set(self._expected_s)
        for channel in await self._store.channels.get_many(channel_ids):
            if channel is None or channel.id in needed:
                continue
            if channel.listed or (channel.moved_to and not channel.dormant):
                needed.add(channel.id)
            elif reader_of(channel.url) not in ("", SHARED):
                await self._store.remove_channel(channel.id)
            elif not channel.dormant:
                await self._store.channels.mark_dormant(channel.id)
                await self._store.poll_rate_history.record([(channel.id, 0.0)])
        return needed
