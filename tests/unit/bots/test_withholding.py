"""What of a person's queue may be told now, and when the rest may. Times are plain numbers."""

from math import inf

import pytest

from bots.delivery.recipient_cache import Recipient
from bots.delivery.suppression import LOOKED_AT, Choice
from service.model import ChannelId
from service.store.delivery.outbox import MatchedSearch, OutboxItem, QueuedItem
from service.users.preferences import FOR_ALL, Preferences
from service.users.quiet_hours import DEFAULT_USER_SETTINGS, DigestSchedule, UserSettings, next_digest_s

NEWS, BLOG = ChannelId("1" * 40), ChannelId("2" * 40)
HOUR_S, DAY_S = 3_600.0, 86_400.0
MIDNIGHT_S = 20_000 * DAY_S


def item(channel: ChannelId, queued_s: float, *met: MatchedSearch) -> QueuedItem:
    return QueuedItem(f"{queued_s * 1000:.0f}-0", OutboxItem(channel, 2, 0.0, met=met))


def choice(
    told_s: float | None,
    user_settings: UserSettings = DEFAULT_USER_SETTINGS,
    *,
    interval_s: float = HOUR_S,
    number: int = 1,
) -> Choice:
    """Of somebody who is told of NEWS at intervals, the last time at this moment, if at all."""
    recipient = Recipient(user_settings, {number: Preferences(interval_s=int(interval_s))})
    return Choice(recipient, {} if told_s is None else {NEWS: told_s}, numbers={NEWS: 1, BLOG: 2})


def test_after_silence_an_item_is_told_at_once_and_its_channel_remembered() -> None:
    new, old = choice(None), choice(MIDNIGHT_S - 2 * HOUR_S)
    for each in (new, old):
        assert each.takes(item(NEWS, MIDNIGHT_S), MIDNIGHT_S)
        assert (each.since_s, each.later_s, each.spaced) == (MIDNIGHT_S, inf, {NEWS})


def test_an_item_that_came_too_soon_waits_and_others_do_not() -> None:
    told = choice(MIDNIGHT_S)
    assert not told.takes(item(NEWS, MIDNIGHT_S + 10), MIDNIGHT_S + 60)
    assert told.takes(item(BLOG, MIDNIGHT_S + 20), MIDNIGHT_S + 60)
    assert (told.since_s, told.later_s, told.spaced) == (MIDNIGHT_S + 20, MIDNIGHT_S + HOUR_S, {NEWS})
    assert told.takes(item(NEWS, MIDNIGHT_S + 10), MIDNIGHT_S + HOUR_S)


def test_what_had_no_room_in_a_message_follows_at_once() -> None:
    assert choice(MIDNIGHT_S).takes(item(NEWS, MIDNIGHT_S - 1), MIDNIGHT_S + 1)


def test_of_a_store_whose_clock_is_ahead_nothing_waits_for_that() -> None:
    assert choice(None).takes(item(NEWS, MIDNIGHT_S + 5), MIDNIGHT_S)


def test_what_is_wanted_of_all_holds_for_subscriptions_and_not_for_what_is_watched_for() -> None:
    told = choice(MIDNIGHT_S, number=FOR_ALL)
    assert not told.takes(item(NEWS, MIDNIGHT_S + 10), MIDNIGHT_S + 60)
    assert told.takes(item(NEWS, MIDNIGHT_S + 10, MatchedSearch(1, "tag=python", (0,))), MIDNIGHT_S + 60)


@pytest.mark.parametrize(
    ("digest", "interval_s"), [(DigestSchedule("hour"), 6 * HOUR_S), (DigestSchedule("day", 0), DAY_S)]
)
def test_a_digest_that_was_a_little_late_does_not_put_off_the_next_by_a_round(
    digest: DigestSchedule, interval_s: float
) -> None:
    told = choice(MIDNIGHT_S + 30, UserSettings(digest=digest), interval_s=interval_s)
    due_s = MIDNIGHT_S + interval_s
    assert told.takes(item(NEWS, MIDNIGHT_S + 60), due_s)
    assert told.since_s is not None
    assert next_digest_s(digest, "UTC", told.since_s) == due_s
    assert not told.takes(item(NEWS, MIDNIGHT_S + 60), due_s - HOUR_S)


def test_no_more_is_looked_at_than_one_burst_can_tell() -> None:
    told = choice(MIDNIGHT_S)
    for number in range(LOOKED_AT):
        assert not told.more
        told.takes(item(NEWS, MIDNIGHT_S + 1), MIDNIGHT_S + 1)
        told.takes(item(BLOG, MIDNIGHT_S + number), MIDNIGHT_S + 1)
    assert told.more
