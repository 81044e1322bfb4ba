"""What people are told of edits, pages, channels themselves, and articles that several channels have."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.delivery.message_bodies import find_duplicates
from bots.delivery.notification_text import render_notification
from bots.i18n.translator import voice
from service.feeds.entries.version_parts import select_part
from service.feeds.urls import channel_id, page_url
from service.model import Change, Channel, Delta, Entry, Notice
from tests.unit.bots.safety import hostile, safe

NOW_S = 1_700_000_000.0
ENGLISH = voice("en")
FEED = Channel(channel_id("https://example.org/feed"), "https://example.org/feed", "The News")
OTHER = Channel(channel_id("https://other.example/feed"), "https://other.example/feed", "The Planet")
PRICES = page_url("https://shop.example/prices", "#list")
PAGE = Channel(channel_id(PRICES), PRICES, "Prices", "https://shop.example/prices", kind="page")


def delta(channel: Channel, *changes: Change, version: int = 2) -> Delta:
    return Delta(channel.id, version - 1, version, NOW_S, changes)


def added(key: str, title: str, summary: str = "") -> Change:
    return Change("addition", Entry(key, title, f"https://example.org/{key}", summary))


def edited(key: str, title: str, summary: str = "") -> Change:
    return Change("replacement", Entry(key, title, f"https://example.org/{key}", summary))


def line(kind: str, number: int, text: str, before: str = "") -> Change:
    return Change(kind, Entry(f"{kind}-{number}", summary=text), number, before)  # type: ignore[arg-type]  # one of the three


def said(*deltas: Delta) -> str:
    return render_notification([FEED, OTHER, PAGE], deltas, {}, {}, ENGLISH)


def test_an_edit_says_so_and_what_the_entry_says_now() -> None:
    assert said(delta(FEED, edited("a", "Five dead", "It was five."))) == (
        "*The News*\nEdited: Five dead\nhttps://example.org/a\nIt was five."
    )


def test_a_corrected_message_has_each_entry_in_its_place_and_last_state() -> None:
    told = delta(FEED, added("a", "Three dead"), added("b", "Rain"))
    first, second = delta(FEED, edited("a", "Four dead"), version=3), delta(FEED, edited("a", "Five dead"), version=4)
    assert said(told, first, second) == (
        "*The News*\nEdited: Five dead\nhttps://example.org/a\n\nRain\nhttps://example.org/b"
    )


def test_many_edits_are_named() -> None:
    changes = [edited(str(number), f"Title {number}") for number in range(7)]
    assert said(delta(FEED, *changes)).endswith("and 2 more: Edited: Title 5 · Edited: Title 6")


def test_of_a_page_the_changed_lines_are_told() -> None:
    changed = (
        line("replacement", 3, "Pears 2.10", "Pears 1.99"),
        line("addition", 12, "Plums"),
        line("omission", 4, "Figs"),
    )
    assert said(delta(PAGE, *changed)) == (
        "*Prices (#list)*\nhttps://shop.example/prices\n"
        "~ line 3: Pears 2.10 (was: Pears 1.99)\n+ line 12: Plums\n- line 4: Figs"
    )


def test_a_changed_block_names_its_heading_and_shows_its_lines() -> None:
    block = Change("addition", Entry("k", "Fruit", PRICES, "Plums 3.00\nFigs 2.00"), 7)
    assert said(delta(PAGE, block)).endswith("+ line 7 (Fruit): Plums 3.00 · Figs 2.00")


def test_of_a_page_that_was_rewritten_the_first_lines_are_told_and_the_others_counted() -> None:
    told = said(delta(PAGE, *(line("addition", number, "word " * 200) for number in range(1, 401))))
    assert told.count("+ line") == 12
    assert told.endswith("and 388 more changes")


def test_each_notice_is_one_friendly_sentence() -> None:
    daily = "I look once a day and tell you when it is well again; `unsubscribe https://example.org/feed` ends it."
    notices = {
        "dead": Notice("dead", "example.org answered 410 (Gone)."),
        "back": Notice("back"),
        "moved": Notice("moved", "https://new.example/feed"),
        "quarantined": Notice("quarantined"),
    }
    told = {kind: said(Delta(FEED.id, 1, 2, NOW_S, (), notice=notice)) for kind, notice in notices.items()}
    assert told == {
        "dead": f"*The News* cannot be reached any more: example.org answered 410 (Gone). {daily}",
        "back": "*The News* is back: I tell you what is new there again.",
        "moved": "*The News* has moved to https://new.example/feed; I watch it there from now on, "
        "and you need not do anything.",
        "quarantined": f"*The News* takes more time or memory to read than I give one channel. {daily}",
    }


@pytest.mark.parametrize(
    ("selector", "words"),
    [
        ("", "Of *The News* I watch the whole page from now on, and you need not do anything."),
        (
            "main > table",
            "Of *The News* I watch another part from now on, main > table, and you need not do anything.",
        ),
    ],
)
def test_another_part_of_a_page_is_no_move_to_another_place(selector: str, words: str) -> None:
    notice = Notice("moved", page_url(FEED.url, selector))
    assert said(Delta(FEED.id, 1, 2, NOW_S, (), notice=notice)) == words


def test_a_channel_that_is_back_tells_its_news_too() -> None:
    told = said(Delta(FEED.id, 1, 2, NOW_S, (), notice=Notice("back")), delta(FEED, added("a", "Rain"), version=3))
    assert told.startswith("*The News* is back")
    assert told.endswith("*The News*\nRain\nhttps://example.org/a")


def test_an_article_of_two_channels_is_told_once_and_names_the_other() -> None:
    one, two = delta(FEED, added("a", "Rain")), delta(OTHER, added("z", "Sun"), added("a", "Rain"))
    also_in = find_duplicates([one, select_part(two, edits=False, left_out=(1,))], [(OTHER.id, two.changes[1])])
    assert also_in == {(FEED.id, "a"): [OTHER.id]}
    told = render_notification(
        [FEED, OTHER], [one, select_part(two, edits=False, left_out=(1,))], {}, {(FEED.id, "a"): [OTHER]}, ENGLISH
    )
    assert told == (
        "*The News*\nRain\nhttps://example.org/a\nalso in: *The Planet*\n\n*The Planet*\nSun\nhttps://example.org/z"
    )


def test_what_is_left_out_whole_leaves_no_trace_but_the_name() -> None:
    one, two = delta(FEED, added("a", "Rain")), delta(OTHER, added("a", "Rain"))
    told = render_notification(
        [FEED, OTHER], [one, select_part(two, edits=False, left_out=(0,))], {}, {(FEED.id, "a"): [OTHER]}, ENGLISH
    )
    assert told == "*The News*\nRain\nhttps://example.org/a\nalso in: *The Planet*"


changes = st.builds(
    Change,
    st.sampled_from(["addition", "omission", "replacement"]),
    st.builds(Entry, st.text(max_size=3), title=hostile, link=hostile, summary=hostile),
    st.sampled_from([0, 1, 10**6]),
    hostile,
)
notices = st.builds(Notice, st.sampled_from(["dead", "back", "moved", "quarantined"]), hostile)


@given(st.lists(changes, max_size=30), notices | st.none(), hostile, hostile)
def test_whatever_is_written_on_pages_and_of_channels_a_notification_is_safe(
    written: list[Change], notice: Notice | None, title: str, url: str
) -> None:
    channel = Channel(FEED.id, url, title)
    deltas = [delta(channel, *written), Delta(channel.id, 2, 3, NOW_S, (), notice=notice)]
    also_in = {(channel.id, change.entry.key): [channel] for change in written}
    assert safe(render_notification([channel], deltas, {channel.id: 2}, also_in, ENGLISH))


def test_what_standing_queries_met_says_which_they_were() -> None:
    changes = delta(FEED, added("a", "A hole", "In a library."), added("b", "Another"), added("c", "A third"))
    met = {(FEED.id, "a"): [(2, "tag=security")], (FEED.id, "b"): [(2, "tag=security"), (3, '"another"')]}
    assert render_notification([FEED], [changes], {}, {}, ENGLISH, met=met) == (
        "*The News*\nA hole\nhttps://example.org/a\nIn a library.\n`watch #2`: tag=security\n\n"
        'Another\nhttps://example.org/b\n`watch #2`: tag=security · `watch #3`: "another"\n\n'
        "A third\nhttps://example.org/c"
    )


def test_of_many_standing_queries_some_are_named() -> None:
    met = {(FEED.id, "a"): [(number, f"tag=t{number}") for number in range(1, 9)]}
    said = render_notification([FEED], [delta(FEED, added("a", "A hole"))], {}, {}, ENGLISH, met=met)
    assert said.endswith("`watch #3`: tag=t3 · and 5 more")
