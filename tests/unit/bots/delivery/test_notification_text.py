"""The text of notifications: edits, pages, notices, duplicates, saved searches."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.delivery.batch_renderer import find_duplicates
from bots.delivery.notification_text import render_notification
from bots.i18n.translator import get_translator
from service.feeds.canonical_urls import SHARED, channel_id, page_url, protected_url
from service.feeds.entries.version_parts import select_part
from service.model import Change, Channel, Delta, Enclosure, Entry, Notice
from tests.unit.bots.text_safety import hostile, safe

NOW_S = 1_700_000_000.0
ENGLISH = get_translator("en")
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


def rendered(*deltas: Delta) -> str:
    return render_notification([FEED, OTHER, PAGE], deltas, {}, {}, ENGLISH)


def test_an_edit_is_marked_and_has_the_present_text() -> None:
    assert rendered(delta(FEED, edited("a", "Five dead", "It was five."))) == (
        "*The News*\nEdited: Five dead\nhttps://example.org/a\nIt was five."
    )


def test_a_correction_keeps_the_order_of_entries_and_shows_their_last_states() -> None:
    first = delta(FEED, added("a", "Three dead"), added("b", "Rain"))
    second, third = delta(FEED, edited("a", "Four dead"), version=3), delta(FEED, edited("a", "Five dead"), version=4)
    assert rendered(first, second, third) == (
        "*The News*\nEdited: Five dead\nhttps://example.org/a\n\nRain\nhttps://example.org/b"
    )


EPISODE = Enclosure("https://example.org/1.mp3", "audio/mpeg", 34_215_000, 2_530)


def with_files(entry: Entry, *enclosures: Enclosure) -> Change:
    return Change("addition", msgspec.structs.replace(entry, enclosures=enclosures))


@pytest.mark.parametrize(
    ("enclosures", "line"),
    [
        ((EPISODE,), "▶ Audio · 34.2 MB · 42:10 · https://example.org/1.mp3"),
        ((Enclosure("https://example.org/a.pdf", "application/pdf"), EPISODE),
         "▶ Audio · 34.2 MB · 42:10 · https://example.org/1.mp3"),
        ((Enclosure("https://example.org/1", "video", 1, 3_723),), "▶ Video · 1:02:03 · https://example.org/1"),
        ((Enclosure("https://example.org/1", "video/mp4", 61_499, 0, "Part 1"),),
         "▶ Part 1 · 61 kB · https://example.org/1"),
        ((Enclosure("https://example.org/e", "audio/ogg"),), "▶ Audio"),
    ],
)  # fmt: skip
def test_an_audio_or_video_file_is_shown_below_the_text(enclosures: tuple[Enclosure, ...], line: str) -> None:
    change = with_files(Entry("e", "Episode", "https://example.org/e", "About rain."), *enclosures)
    assert rendered(delta(FEED, change)) == f"*The News*\nEpisode\nhttps://example.org/e\nAbout rain.\n{line}"


def test_other_files_and_those_of_brief_messages_are_not_shown() -> None:
    other = with_files(Entry("e", "Report"), Enclosure("https://example.org/a.pdf", "application/pdf"))
    assert rendered(delta(FEED, other)) == "*The News*\nReport"
    long = Enclosure(f"https://example.org/{'x' * 900}", "audio/mpeg")
    many = [with_files(Entry(str(number), f"Title {number}"), long) for number in range(5)]
    assert "▶" not in rendered(delta(FEED, *many))


@pytest.mark.parametrize(("text_chars", "shown"), [(0, 0), (9, 9), (300, 299), (2_000, 1_999)])
def test_texts_have_the_chosen_length(text_chars: int, shown: int) -> None:
    changed = [delta(FEED, added("a", "Rain", "rain " * 500))]
    text = render_notification([FEED], changed, {}, {}, ENGLISH, text_chars={FEED.id: text_chars})
    summary = text.removeprefix("*The News*\nRain\nhttps://example.org/a").strip()
    assert shown - 5 <= len(summary) <= text_chars


def test_a_text_that_fills_more_than_a_message_is_shortened() -> None:
    changed = [delta(FEED, added("a", "Rain", "雨" * 2_000))]
    text = render_notification([FEED], changed, {}, {}, ENGLISH, text_chars={FEED.id: 2_000})
    assert text.count("雨") == 999
    assert safe(text)


def test_long_texts_of_several_entries_are_shortened_to_fit() -> None:
    changed = [delta(FEED, *(added(str(number), "Rain", "rain " * 500) for number in range(5)))]
    text = render_notification([FEED], changed, {}, {}, ENGLISH, text_chars={FEED.id: 2_000})
    assert text.count("…") == 5
    assert safe(text)


@given(hostile, hostile, hostile, st.integers(0, 10**11), st.integers(0, 10**6))
def test_a_message_with_files_of_any_values_is_safe(
    url: str, kind: str, title: str, size_bytes: int, duration_s: int
) -> None:
    change = with_files(Entry("e", title), Enclosure(url, f"audio/{kind}", size_bytes, duration_s, title))
    assert safe(rendered(delta(FEED, change)))


def test_edits_beyond_the_limit_are_listed_by_title() -> None:
    changes = [edited(str(number), f"Title {number}") for number in range(7)]
    assert rendered(delta(FEED, *changes)).endswith("and 2 more: Edited: Title 5 · Edited: Title 6")


def test_a_page_shows_its_changed_lines() -> None:
    changed = (
        line("replacement", 3, "Pears 2.10", "Pears 1.99"),
        line("addition", 12, "Plums"),
        line("omission", 4, "Figs"),
    )
    assert rendered(delta(PAGE, *changed)) == (
        "*Prices (#list)*\nhttps://shop.example/prices\n"
        "~ line 3: Pears 2.10 (was: Pears 1.99)\n+ line 12: Plums\n- line 4: Figs"
    )


def test_a_changed_block_has_its_heading_and_lines() -> None:
    block = Change("addition", Entry("k", "Fruit", PRICES, "Plums 3.00\nFigs 2.00"), 7)
    assert rendered(delta(PAGE, block)).endswith("+ line 7 (Fruit): Plums 3.00 · Figs 2.00")


def test_a_rewritten_page_shows_the_first_lines_and_counts_the_others() -> None:
    text = rendered(delta(PAGE, *(line("addition", number, "word " * 200) for number in range(1, 401))))
    assert text.count("+ line") == 12
    assert text.endswith("and 388 more changes")


def test_each_kind_of_notice_has_a_text() -> None:
    daily = (
        "I'll check it once a day and let you know when it works again; `unsubscribe https://example.org/feed` "
        "ends the subscription."
    )
    notices = {
        "dead": Notice("dead", "example.org answered 410 (Gone)."),
        "back": Notice("back"),
        "moved": Notice("moved", "https://new.example/feed"),
        "quarantined": Notice("quarantined"),
    }
    texts = {kind: rendered(Delta(FEED.id, 1, 2, NOW_S, (), notice=notice)) for kind, notice in notices.items()}
    assert texts == {
        "dead": f"*The News* can't be reached any more: example.org answered 410 (Gone). {daily}",
        "back": "*The News* is back: you'll get its news again.",
        "moved": "*The News* has moved to https://new.example/feed. I'll check it there from now on; "
        "you don't need to do anything.",
        "quarantined": f"*The News* has become too big or too complicated for me to read. {daily}",
    }


@pytest.mark.parametrize(
    ("selector", "words"),
    [
        ("", "*The News*: I now monitor the whole page. You don't need to do anything."),
        (
            "main > table",
            "*The News*: I now monitor another part of the page, main > table. You don't need to do anything.",
        ),
    ],
)
def test_a_new_selector_of_a_page_is_not_described_as_a_move(selector: str, words: str) -> None:
    notice = Notice("moved", page_url(FEED.url, selector))
    assert rendered(Delta(FEED.id, 1, 2, NOW_S, (), notice=notice)) == words


def test_a_channel_that_is_back_shows_its_entries_too() -> None:
    text = rendered(Delta(FEED.id, 1, 2, NOW_S, (), notice=Notice("back")), delta(FEED, added("a", "Rain"), version=3))
    assert text.startswith("*The News* is back")
    assert text.endswith("*The News*\nRain\nhttps://example.org/a")


def test_an_entry_in_two_channels_appears_once_and_names_the_other() -> None:
    one, two = delta(FEED, added("a", "Rain")), delta(OTHER, added("z", "Sun"), added("a", "Rain"))
    also_in = find_duplicates([one, select_part(two, edits=False, left_out=(1,))], [(OTHER.id, two.changes[1])])
    assert also_in == {(FEED.id, "a"): [OTHER.id]}
    text = render_notification(
        [FEED, OTHER], [one, select_part(two, edits=False, left_out=(1,))], {}, {(FEED.id, "a"): [OTHER]}, ENGLISH
    )
    assert text == (
        "*The News*\nRain\nhttps://example.org/a\nalso in: *The Planet*\n\n*The Planet*\nSun\nhttps://example.org/z"
    )


def test_a_channel_with_duplicates_only_appears_by_name() -> None:
    one, two = delta(FEED, added("a", "Rain")), delta(OTHER, added("a", "Rain"))
    text = render_notification(
        [FEED, OTHER], [one, select_part(two, edits=False, left_out=(0,))], {}, {(FEED.id, "a"): [OTHER]}, ENGLISH
    )
    assert text == "*The News*\nRain\nhttps://example.org/a\nalso in: *The Planet*"


change_strategy = st.builds(
    Change,
    st.sampled_from(["addition", "omission", "replacement"]),
    st.builds(Entry, st.text(max_size=3), title=hostile, link=hostile, summary=hostile),
    st.sampled_from([0, 1, 10**6]),
    hostile,
)
notice_strategy = st.builds(Notice, st.sampled_from(["dead", "back", "moved", "quarantined", "refused"]), hostile)


@given(st.lists(change_strategy, max_size=30), notice_strategy | st.none(), hostile, hostile)
def test_a_notification_with_hostile_text_is_safe(
    changes: list[Change], notice: Notice | None, title: str, url: str
) -> None:
    channel = Channel(FEED.id, url, title)
    deltas = [delta(channel, *changes), Delta(channel.id, 2, 3, NOW_S, (), notice=notice)]
    also_in = {(channel.id, change.entry.key): [channel] for change in changes}
    assert safe(render_notification([channel], deltas, {channel.id: 2}, also_in, ENGLISH))


def test_an_entry_names_the_saved_searches_it_matches() -> None:
    changes = delta(FEED, added("a", "A hole", "In a library."), added("b", "Another"), added("c", "A third"))
    matches = {(FEED.id, "a"): [(2, "tag=security")], (FEED.id, "b"): [(2, "tag=security"), (3, '"another"')]}
    assert render_notification([FEED], [changes], {}, {}, ENGLISH, matches=matches) == (
        "*The News*\nA hole\nhttps://example.org/a\nIn a library.\n`watch #2`: tag=security\n\n"
        'Another\nhttps://example.org/b\n`watch #2`: tag=security · `watch #3`: "another"\n\n'
        "A third\nhttps://example.org/c"
    )


def test_saved_searches_beyond_the_limit_are_counted() -> None:
    matches = {(FEED.id, "a"): [(number, f"tag=t{number}") for number in range(1, 9)]}
    text = render_notification([FEED], [delta(FEED, added("a", "A hole"))], {}, {}, ENGLISH, matches=matches)
    assert text.endswith("`watch #3`: tag=t3 · and 5 more")


@pytest.mark.parametrize(
    ("reader", "words"),
    [
        ("own", "To give me a new one, send `subscribe https://example.org/feed login NAME PASSWORD`"),
        (SHARED, "once a day"),
    ],
)
def test_a_refused_login_says_what_to_do(reader: str, words: str) -> None:
    url = protected_url("https://example.org/feed", reader)
    channel = Channel(channel_id(url), url, "The News")
    refused = Delta(channel.id, 1, 2, NOW_S, (), notice=Notice("refused", "example.org answered 401."))
    text = render_notification([channel], [refused], {}, {}, ENGLISH)
    assert words in text
    assert "example.org answered 401." in text
    assert "login=" not in text
