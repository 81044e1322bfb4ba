"""What a message of one entry says of its link, for software: no more than its words say, and never too much."""

from xml.etree.ElementTree import fromstring

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.delivery.notification_text import MAX_PREVIEW_BYTES, link_preview, render_notification
from bots.i18n.translator import voice
from bots.replies.entry_templates import Template
from service.feeds.urls import channel_id
from service.model import Change, Channel, Delta, Entry, Notice

FEED = Channel(channel_id("https://example.org/feed"), "https://example.org/feed", "The <News>")
OTHER = Channel(channel_id("https://example.org/other"), "https://example.org/other", "The Planet")
ABOUT = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}about"


def delta(*entries: Entry, channel: Channel = FEED, kind: str = "addition", notice: Notice | None = None) -> Delta:
    changes = tuple(Change(kind, entry) for entry in entries)  # type: ignore[arg-type]  # one of the three
    return Delta(channel.id, 1, 2, 0.0, changes, notice=notice)


def entry(key: str = "a", title: str = "Rain & sun", summary: str = "It rains.", link: str = "") -> Entry:
    return Entry(key, title, link or f"https://example.org/{key}", summary)


def preview(*deltas: Delta, written: str = "$link") -> str:
    """What is said beside a message in which entries are written so."""
    templates = dict.fromkeys((FEED.id, OTHER.id), Template(written, "UTC")) if written else {}
    text = render_notification([FEED, OTHER], deltas, {}, {}, voice("en"), templates=templates)
    return link_preview(text, deltas, {FEED.id: FEED, OTHER.id: OTHER})


@pytest.mark.parametrize("written", ["", "$title\n$summary\n$link"])
def test_what_the_text_says_is_not_said_again(written: str) -> None:
    assert preview(delta(entry()), written=written) == ""


def test_what_it_leaves_out_is() -> None:
    assert "It rains." in preview(delta(entry()), written="$title $link")


def test_of_one_entry_its_title_text_and_channel_are_said() -> None:
    said = fromstring(preview(delta(entry())))  # noqa: S314 - we wrote it
    assert said.get(ABOUT) == "https://example.org/a"
    assert {child.tag.rpartition("}")[2]: child.text for child in said} == {
        "title": "Rain & sun", "description": "It rains.", "site_name": "The <News>",
    }  # fmt: skip


def test_of_an_entry_that_was_edited_its_last_words_are_said() -> None:
    told = preview(delta(entry()), delta(entry(title="Snow"), kind="replacement"))
    assert "Snow" in told
    assert "Rain" not in told


@pytest.mark.parametrize(
    "deltas",
    [
        (),
        (delta(entry("a"), entry("b")),),
        (delta(entry("a")), delta(entry("a"), channel=OTHER)),
        (delta(entry("a")), delta(notice=Notice("back"))),
        (delta(entry(link="ftp://example.org/a")),),
        (delta(Entry("a", "No link", "", "It rains.")),),
        (delta(Entry("a", "", "https://example.org/a", "")),),
    ],
)
def test_of_anything_else_nothing_is(deltas: tuple[Delta, ...]) -> None:
    assert preview(*deltas) == ""


def test_of_a_link_that_the_text_does_not_show_nothing_is_said() -> None:
    assert preview(delta(entry()), written="$title") == ""


@given(st.text(), st.text(), st.text())
def test_whatever_a_publisher_writes_it_is_short_and_well_formed(title: str, link: str, summary: str) -> None:
    told = preview(delta(entry(title=title, link=f"https://example.org/{link}", summary=summary * 50)))
    assert len(told.encode()) <= MAX_PREVIEW_BYTES
    if told:
        fromstring(told)  # noqa: S314 - we wrote it


def test_of_a_link_that_is_far_too_long_nothing_is_said() -> None:
    assert preview(delta(entry(link="https://example.org/" + "&" * 1_900))) == ""
