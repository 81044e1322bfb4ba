"""Which items of a queue are due now, and when the others are. Times are plain numbers."""

from math import inf
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.delivery.notification_intervals import MAX_DUE_ITEMS, Selection
from bots.delivery.recipient_cache import Recipient
from service.model import ChannelId
from service.store.delivery.outbox import ANNOUNCEMENTS, MatchedSearch, OutboxItem, QueuedItem
from service.users.preferences import FOR_ALL, Preferences, folder_number
from service.users.quiet_hours_and_digests import DigestSchedule, next_digest_s
from service.users.user_settings import DEFAULT_USER_SETTINGS, UserSettings

NEWS, BLOG = ChannelId("1" * 40), ChannelId("2" * 40)
HOUR_S, DAY_S = 3_600.0, 86_400.0
MIDNIGHT_S = 20_000 * DAY_S


def item(channel: ChannelId, queued_s: float, *matches: MatchedSearch) -> QueuedItem:
    return QueuedItem(f"{queued_s * 1000:.0f}-0", OutboxItem(channel, 2, 0.0, matches=matches))


def selection(
    last_sent_s: float | None,
    user_settings: UserSettings = DEFAULT_USER_SETTINGS,
    *,
    interval_s: float = HOUR_S,
    number: int = 1,
) -> Selection:
    """The selection of a user with an interval for NEWS, whose items were last sent at ``last_sent_s``."""
    recipient = Recipient(user_settings, {number: Preferences(interval_s=int(interval_s))})
    return Selection(recipient, {} if last_sent_s is None else {NEWS: last_sent_s}, numbers={NEWS: 1, BLOG: 2})


def test_the_first_item_after_the_interval_is_due_and_its_channel_is_recorded() -> None:
    for each in (selection(None), selection(MIDNIGHT_S - 2 * HOUR_S)):
        assert each.count_if_due(item(NEWS, MIDNIGHT_S), MIDNIGHT_S)
        assert (each.since_s, each.next_due_s, each.interval_channels) == (MIDNIGHT_S, inf, {NEWS})


def test_an_item_within_the_interval_waits_and_items_of_other_channels_do_not() -> None:
    selected = selection(MIDNIGHT_S)
    assert not selected.count_if_due(item(NEWS, MIDNIGHT_S + 10), MIDNIGHT_S + 60)
    assert selected.count_if_due(item(BLOG, MIDNIGHT_S + 20), MIDNIGHT_S + 60)
    assert (selected.since_s, selected.next_due_s, selected.interval_channels) == (
        MIDNIGHT_S + 20,
        MIDNIGHT_S + HOUR_S,
        {NEWS},
    )
    assert selected.count_if_due(item(NEWS, MIDNIGHT_S + 10), MIDNIGHT_S + HOUR_S)


def test_an_item_queued_before_the_last_message_is_due_at_once() -> None:
    assert selection(MIDNIGHT_S).count_if_due(item(NEWS, MIDNIGHT_S - 1), MIDNIGHT_S + 1)


def test_an_item_does_not_wait_because_the_clock_of_the_store_is_ahead() -> None:
    assert selection(None).count_if_due(item(NEWS, MIDNIGHT_S + 5), MIDNIGHT_S)


def test_an_interval_for_all_subscriptions_does_not_apply_to_saved_searches() -> None:
    selected = selection(MIDNIGHT_S, number=FOR_ALL)
    assert not selected.count_if_due(item(NEWS, MIDNIGHT_S + 10), MIDNIGHT_S + 60)
    assert selected.count_if_due(item(NEWS, MIDNIGHT_S + 10, MatchedSearch(1, "tag=python", (0,))), MIDNIGHT_S + 60)


@pytest.mark.parametrize(
    ("digest", "interval_s"), [(DigestSchedule("hour"), 6 * HOUR_S), (DigestSchedule("day", 0), DAY_S)]
)
def test_a_digest_sent_late_does_not_postpone_the_next_one(digest: DigestSchedule, interval_s: float) -> None:
    selected = selection(MIDNIGHT_S + 30, UserSettings(digest=digest), interval_s=interval_s)
    due_s = MIDNIGHT_S + interval_s
    assert selected.count_if_due(item(NEWS, MIDNIGHT_S + 60), due_s)
    assert selected.since_s is not None
    assert next_digest_s(digest, "UTC", selected.since_s) == due_s
    assert not selected.count_if_due(item(NEWS, MIDNIGHT_S + 60), due_s - HOUR_S)


NUMBER_OF_FOLDER = folder_number("News")


@pytest.mark.parametrize("general", [None, DigestSchedule("day", 8 * 60)])
def test_the_digest_of_a_folder_delays_only_the_items_of_its_channels(general: DigestSchedule | None) -> None:
    preferences = {
        NUMBER_OF_FOLDER: Preferences(folder="News", digest=DigestSchedule("day", 6 * 60)),
        1: Preferences(folder="News"),
    }
    recipient = Recipient(UserSettings(digest=general), preferences)
    selected = Selection(recipient, {}, numbers={NEWS: 1, BLOG: 2})
    assert recipient.common_settings.digest is None
    now_s = MIDNIGHT_S + 60
    match = item("3" * 40, now_s, MatchedSearch(1, "tag=python", (0,)))
    announcement = item(ANNOUNCEMENTS, now_s)
    assert not selected.count_if_due(item(NEWS, now_s), now_s)
    assert selected.next_due_s == MIDNIGHT_S + 6 * HOUR_S
    for other in (item(BLOG, now_s), match, announcement):
        assert selected.count_if_due(other, now_s) is (general is None)
    assert selected.count_if_due(item(NEWS, now_s), MIDNIGHT_S + 6 * HOUR_S)
    assert selected.count_if_due(item(BLOG, now_s), MIDNIGHT_S + 8 * HOUR_S)


def test_a_folder_without_digest_is_not_delayed_by_the_digest_of_the_user() -> None:
    preferences = {NUMBER_OF_FOLDER: Preferences(folder="News", digest="off"), 1: Preferences(folder="News")}
    selected = Selection(
        Recipient(UserSettings(digest=DigestSchedule("day")), preferences), {}, numbers={NEWS: 1, BLOG: 2}
    )
    assert selected.count_if_due(item(NEWS, MIDNIGHT_S), MIDNIGHT_S)
    assert not selected.count_if_due(item(BLOG, MIDNIGHT_S), MIDNIGHT_S)


def test_without_digests_of_folders_the_digest_of_the_user_delays_all_items_alike() -> None:
    recipient = Recipient(UserSettings(digest=DigestSchedule("day")), {1: Preferences(folder="News", interval_s=60)})
    assert recipient.common_settings == recipient.user_settings
    assert Selection(recipient, {}, numbers={NEWS: 1}).count_if_due(item(NEWS, MIDNIGHT_S), MIDNIGHT_S)


@given(
    st.lists(st.floats(0, 3 * DAY_S), min_size=2, max_size=6).map(sorted),
    st.sampled_from([None, "off", DigestSchedule("hour"), DigestSchedule("day", 480), DigestSchedule("week", 60, 3)]),
    st.sampled_from([0, 3_600, 86_400]),
    st.none() | st.floats(0, 3 * DAY_S),
    st.floats(0, 10 * DAY_S),
)
def test_no_item_of_a_channel_is_due_before_an_older_one(
    queued_s: list[float],
    digest: DigestSchedule | Literal["off"] | None,
    interval_s: int,
    sent_s: float | None,
    now_s: float,
) -> None:
    preferences = {
        NUMBER_OF_FOLDER: Preferences(folder="News", digest=digest, interval_s=interval_s),
        1: Preferences(folder="News"),
    }
    last_sent_s = {} if sent_s is None else {NEWS: MIDNIGHT_S + sent_s}
    selected = Selection(
        Recipient(UserSettings(digest=DigestSchedule("day")), preferences), last_sent_s, numbers={NEWS: 1}
    )
    due = [
        selected.count_if_due(item(NEWS, MIDNIGHT_S + each), MIDNIGHT_S + now_s) for each in queued_s if each <= now_s
    ]
    assert due == sorted(due, reverse=True)


def test_a_selection_is_full_after_the_maximum_of_due_items() -> None:
    selected = selection(MIDNIGHT_S)
    for number in range(MAX_DUE_ITEMS):
        assert not selected.is_full
        selected.count_if_due(item(NEWS, MIDNIGHT_S + 1), MIDNIGHT_S + 1)
        selected.count_if_due(item(BLOG, MIDNIGHT_S + number), MIDNIGHT_S + 1)
    assert selected.is_full
