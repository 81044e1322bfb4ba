"""Changes of a page that are reported, and those that are not."""

import itertools
import random

import msgspec
import pytest

from service.feeds.pages.page_change_detection import STABLE_AFTER_S, detect_page_changes
from service.feeds.pages.page_diff import BLOCK_CHARS, MAX_CHANGES
from service.feeds.pages.volatile_text import MAX_REGIONS
from service.model import ParsedPage
from tests.support.page_reader import HOUR_S, START_S, URL, Reader, parsed

DAY_S = 24 * HOUR_S


def prices(*rows: tuple[str, str], visitors: int = 0, now: str = "12:00") -> str:
    table = "".join(f"<tr><td>{name}<td>{price} €" for name, price in rows)
    return (
        f"<main><h1>Shop</h1><h2>Prices</h2><table><tr><th>Item<th>Price{table}</table>"
        f"<p>{visitors} visitors are here, it is {now}</p></main>"
    )


def test_the_first_poll_reports_no_changes_and_a_preview() -> None:
    page = parsed("<title>Shop</title><p>One</p><p>" + "word " * 100)
    detected = detect_page_changes(None, page, url=URL, now_s=START_S)
    assert detected.changes == ()
    (proof,) = detected.latest
    assert (proof.title, proof.link) == ("Shop", URL)
    assert proof.summary.startswith("One word word")
    assert len(proof.summary) <= 300


def test_a_changed_price_is_a_replacement_with_its_line() -> None:
    reader = Reader(prices(("Box", "5"), ("Bag", "3")))
    (change,) = reader.look(parsed(prices(("Box", "6"), ("Bag", "3"))))
    assert (change.kind, change.line, change.before) == ("replacement", 4, "Box | 5 €")
    assert (change.entry.title, change.entry.summary, change.entry.link) == ("Prices", "Box | 6 €", URL)


def test_added_and_omitted_lines_are_reported_as_such() -> None:
    reader = Reader("<h1>Changes</h1><p>v1</p>")
    assert reader.sees("<h1>Changes</h1><p>v2: faster</p><p>v1</p>") == [("addition", "v2: faster", "")]
    assert reader.sees("<h1>Changes</h1><p>v2: faster</p>") == [("omission", "v1", "")]


def test_an_unchanged_page_keeps_its_state() -> None:
    reader = Reader(prices(("Box", "5")))
    reader.sees(prices(("Box", "5")))
    before = reader.state
    assert reader.sees(prices(("Box", "5"))) == []
    assert reader.state == before


def test_clocks_and_counters_are_not_reported_but_a_price_beside_them_is() -> None:
    reader = Reader(
        prices(("Box", "5"), visitors=531, now="Fri 20 Nov 23:58:59"),
        prices(("Box", "5"), visitors=540, now="Fri 20 Nov 23:59:04"),
    )
    before = reader.state
    assert reader.sees(prices(("Box", "5"), visitors=87, now="Sat 21 Nov 00:12:00")) == []
    assert reader.state == before
    assert reader.sees(prices(("Box", "6"), visitors=88, now="Sat 21 Nov 01:12:00")) == [
        ("replacement", "Box | 6 €", "Box | 5 €")
    ]


def test_a_volatile_number_does_not_hide_another_number_in_its_line() -> None:
    reader = Reader("<p>Box for 5 €, 12 are looking at it", "<p>Box for 5 €, 14 are looking at it")
    assert reader.sees("<p>Box for 5 €, 90 are looking at it") == []
    assert len(reader.sees("<p>Box for 6 €, 91 are looking at it")) == 1


def test_a_volatile_number_alone_in_its_line_does_not_hide_other_lines() -> None:
    def page(visitors: int, price: int) -> str:
        return f"<dl><dt>Visitors<dd>{visitors}<dt>Price<dd>{price}</dl>"

    reader = Reader(page(100, 5), page(101, 5))
    assert reader.sees(page(102, 5)) == []
    assert reader.sees(page(103, 6)) == [("replacement", "6", "5")]


def test_rotating_advertisements_and_nonces_are_not_reported() -> None:
    def page(advertisement: str, nonce: str, *news: str) -> str:
        return f"<h1>News</h1><div>{advertisement}</div><h2>Today</h2>{'<p>'.join(['', *news])}<p>Request {nonce}</p>"

    reader = Reader(page("Buy shoes!", "8f3a91", "Old"), page("Fly away now", "77ab01", "Old"))
    assert reader.sees(page("Drink more tea", "1c9d22", "Old")) == []
    assert reader.sees(page("Eat less", "99f0a3", "New", "Old")) == [("addition", "New", "")]


def test_an_advertisement_next_to_a_counter_is_not_reported() -> None:
    def page(advertisement: str, count: int) -> str:
        return f"<h1>News</h1><p>{advertisement}<p>Read by {count} people<p>Old"

    reader = Reader(page("Shoes", 7), page("Flights", 9))
    assert reader.sees(page("Tea", 12)) == []
    assert reader.sees(page("Tea", 12).replace("Old", "New")) == [("replacement", "New", "Old")]


def test_at_most_500_volatile_regions_are_stored() -> None:
    names = ["".join(chr(97 + int(digit)) for digit in f"{n:04}") for n in range(700)]
    reader = Reader(*("".join(f"<p>Place {name} now has {look}" for name in names) for look in (1, 2)))
    assert reader.state is not None
    assert len(reader.state.volatile) == MAX_REGIONS


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("vor einer Stunde", "vor 2 Stunden"),
        ("il y a une heure", "il y a 2 heures"),
        ("hace una hora", "hace 2 horas"),
        ("un'ora fa", "2 ore fa"),
        ("há uma hora", "há 2 horas"),
        ("uma hora atrás", "2 horas atrás"),
        ("een uur geleden", "2 uur geleden"),
        ("godzinę temu", "2 godziny temu"),
    ],
)
def test_ages_in_the_languages_of_the_bot_are_ignored(before: str, after: str) -> None:
    reader = Reader(f"<p>Hello, reply {before}")
    assert reader.sees(f"<p>Hello, reply {after}") == []


def test_relative_ages_are_never_reported() -> None:
    def page(*threads: str) -> str:
        return "".join(f"<li>{thread}" for thread in threads)

    reader = Reader(page("Help! 3 replies, just now", "Hello 1 reply, vor 5 Minuten"))
    assert reader.sees(page("Help! 3 replies, 1 hour ago", "Hello 1 reply, vor 2 Stunden")) == []
    assert len(reader.sees(page("Help! 4 replies, 5 minutes ago", "Hello 1 reply, vor 3 Stunden"))) == 1


def test_a_late_second_poll_reports_changes() -> None:
    detected = detect_page_changes(None, parsed("<p>Price 5"), url=URL, now_s=START_S)
    later = detect_page_changes(detected.state, parsed("<p>Price 6"), url=URL, now_s=START_S + HOUR_S)
    assert [change.entry.summary for change in later.changes] == ["Price 6"]


def test_a_counter_becomes_volatile_after_ten_changes() -> None:
    reader = Reader("<p>This page was read 100 times</p>")
    reported = [reader.sees(f"<p>This page was read {100 + n} times</p>", after_s=1800) for n in range(1, 20)]
    assert [bool(changes) for changes in reported] == [True] * 10 + [False] * 9


def test_a_daily_change_of_a_price_is_reported_each_time() -> None:
    reader = Reader("<p>Gold costs 100 €</p>")
    assert all(reader.sees(f"<p>Gold costs {100 + n} €</p>", after_s=DAY_S) for n in range(1, 30))


def test_a_volatile_region_that_is_stable_for_a_week_is_reported_again() -> None:
    reader = Reader("<p>Gold costs 100 €</p>", "<p>Gold costs 101 €</p>")
    assert reader.sees("<p>Gold costs 102 €</p>") == []
    for _ in range(16):
        assert reader.sees("<p>Gold costs 102 €</p>", after_s=0.6 * DAY_S) == []
    assert len(reader.sees("<p>Gold costs 103 €</p>")) == 1


def test_a_clock_stays_volatile_after_a_month_without_polls() -> None:
    """A node that takes over a quiet page has the state of its last version, which may be old."""
    reader = Reader("<p>Now: 10:00:00</p><p>x", "<p>Now: 10:00:05</p><p>x")
    assert reader.sees("<p>Now: 11:12:13</p><p>x", after_s=4 * STABLE_AFTER_S) == []


def test_a_clock_stays_volatile_for_months() -> None:
    reader = Reader("<p>Now: 10:00:00</p><p>x", "<p>Now: 10:00:05</p><p>x")
    clocks = (
        f"<p>Now: {hour:02}:{n % 60:02}:00</p><p>x"
        for n, hour in enumerate(itertools.islice(itertools.cycle(range(24)), 500))
    )
    assert [changes for clock in clocks if (changes := reader.sees(clock, after_s=5 * HOUR_S))] == []


def test_an_outage_and_its_end_are_reported_but_not_an_alternating_page() -> None:
    versions = ["<h1>Status</h1><p>All systems are down", "<h1>Status</h1><p>All is well"]
    reader = Reader(versions[1])
    reported = [bool(reader.sees(version)) for version in versions * 5]
    assert reported == [True, True] + [False] * 8
    assert reader.sees(versions[0], after_s=2 * DAY_S)


def test_repeated_changes_have_different_keys() -> None:
    reader = Reader("<p>up")
    pages = [parsed("<p>down"), parsed("<p>up")] * 3
    keys = [change.entry.key for page in pages for change in reader.look(page, after_s=2 * DAY_S)]
    assert len(keys) == len(set(keys)) == 6


def test_at_most_twenty_changes_are_reported_and_the_others_counted() -> None:
    reader = Reader("".join(f"<p>text {n}<p>value {n}" for n in range(60)))
    changes = reader.look(parsed("".join(f"<p>text {n}<p>value {n}!" for n in range(60))))
    assert len(changes) == MAX_CHANGES + 1
    assert "40 more changes: +40 " in changes[-1].entry.summary


def test_the_changed_part_of_a_long_line_is_reported() -> None:
    beginning = "It was a dark and stormy night. " * 40
    reader = Reader(f"<p>{beginning} The price is 5 €.")
    (change,) = reader.look(parsed(f"<p>{beginning} The price is 6 €."))
    assert change.entry.summary.endswith("The price is 6 €.")
    assert change.before.endswith("The price is 5 €.")
    assert len(change.entry.summary) <= BLOCK_CHARS


@pytest.mark.parametrize("after", [[f"new {n}" for n in range(20_000)], [*range(1, 20_000), 0]])
def test_a_total_rewrite_is_one_change_within_the_bound(after: list[object]) -> None:
    state = detect_page_changes(
        None, ParsedPage(lines=tuple(str(n) for n in range(20_000))), url=URL, now_s=START_S
    ).state
    detected = detect_page_changes(state, ParsedPage(lines=tuple(map(str, after))), url=URL, now_s=START_S + HOUR_S)
    (change,) = detected.changes
    assert change.entry.summary.startswith("Rewritten: 20,000 lines.")
    assert len(change.entry.summary) <= BLOCK_CHARS
    assert len(msgspec.msgpack.encode(detected.state)) < 256_000


def test_the_size_of_the_state_is_limited() -> None:
    chance = random.Random(7)  # noqa: S311 - reproducible noise
    state = None
    for look in range(4):
        lines = tuple(f"{chance.getrandbits(200):x} {n} word" for n in range(20_000))
        page = ParsedPage(lines=lines)
        state = detect_page_changes(state, page, url=URL, now_s=START_S + look * 60).state
    assert len(msgspec.msgpack.encode(state)) <= 1_200_000


def test_a_new_forum_thread_is_reported_but_not_the_ages_of_others() -> None:
    def index(*threads: tuple[str, int, str], online: int) -> str:
        rows = "".join(
            f'<tr class="row{n % 2}"><td><a href="/t?id={n}&amp;sid={online:x}">{title}</a><br><small>by Ann</small>'
            f"</td><td>{replies}</td><td><time>{age}</time></td></tr>"
            for n, (title, replies, age) in enumerate(threads)
        )
        return (
            "<nav>Board index</nav><form>Login</form><table><tr><th>Thread<th>Replies<th>Last"
            f"{rows}</table><p>In total there are {online} users online</p><footer>Powered by a forum</footer>"
        )

    reader = Reader(
        index(("Rules", 0, "2 years ago"), ("Help!", 3, "a minute ago"), online=31),
        index(("Rules", 0, "2 years ago"), ("Help!", 3, "2 minutes ago"), online=32),
    )
    quiet = index(("Rules", 0, "2 years ago"), ("Help!", 3, "an hour ago"), online=18)
    assert reader.sees(quiet) == []
    busy = index(("Rules", 0, "2 years ago"), ("Hello", 0, "just now"), ("Help!", 4, "5 mins ago"), online=20)
    assert reader.sees(busy) == [
        (
            "replacement",
            "Hello by Ann | 0 | just now\nHelp! by Ann | 4 | 5 mins ago",
            "Help! by Ann | 3 | 2 minutes ago",
        )
    ]


def test_an_incident_on_a_status_page_is_reported_line_by_line() -> None:
    def status(api: str, *incidents: str) -> str:
        history = "".join(f"<article><h3>{incident}</h3><p>Investigating.</p></article>" for incident in incidents)
        return (
            f'<main><h1>Status</h1><ul><li>API <img src="{api}.png" alt="{api}"><li>Website <span>up</span></ul>'
            f"<section><header><h2>Past incidents</h2></header>{history or '<p>None.</p>'}</section></main>"
        )

    reader = Reader(status("up"))
    changes = reader.look(parsed(status("down", "API errors")))
    assert [(change.kind, change.entry.title, change.entry.summary, change.before) for change in changes] == [
        ("replacement", "Status", "API down", "API up"),
        ("replacement", "Past incidents", "API errors\nInvestigating.", "None."),
    ]


def test_only_the_edited_paragraph_of_an_article_is_reported() -> None:
    def article(figure: str, related: str) -> str:
        return (
            f"<header>The Paper</header><div class=layout><article><h1>Harvest</h1><p>First paragraph.</p>"
            f"<p>It grew by {figure} percent.</p><p>Last paragraph.</p></article>"
            f"<aside>Related: {related}</aside></div>"
        )

    reader = Reader(article("3", "Cats"))
    assert reader.sees(article("3", "Dogs")) == []
    assert reader.sees(article("4", "Birds")) == [("replacement", "It grew by 4 percent.", "It grew by 3 percent.")]


def test_a_selected_line_that_changes_at_each_poll_is_reported_each_time() -> None:
    prices = [f"{20 + number * 1.01:.2f} €" for number in range(30)]
    state, now_s, reported = None, START_S, []
    for number, price in enumerate(prices):
        page = ParsedPage("Shop", (price,))
        detected = detect_page_changes(state, page, url=URL, now_s=now_s, is_selected=True)
        state, now_s = detected.state, now_s + (5 if number == 0 else HOUR_S / 4)
        reported += [(change.before, change.entry.summary) for change in detected.changes]
    assert reported == list(itertools.pairwise(prices))[1:]
