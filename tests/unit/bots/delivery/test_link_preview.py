"""Link previews (XEP-0511) of messages with one entry: when there is one, and what it contains."""

from xml.etree.ElementTree import fromstring

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.delivery.link_preview import MAX_PREVIEW_BYTES, link_preview, single_entry
from bots.delivery.notification_text import render_notification
from bots.i18n.translator import get_translator
from bots.replies.entry_templates import EntryTemplate
from service.feeds.canonical_urls import channel_id
from service.model import Change, Channel, Delta, Entry, Notice

FEED = Channel(channel_id("https://example.org/feed"), "https://example.org/feed", "The <News>")
OTHER = Channel(channel_id("https://example.org/other"), "https://example.org/other", "The Planet")
ABOUT = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}about"


def delta(*entries: Entry, channel: Channel = FEED, kind: str = "addition", notice: Notice | None = None) -> Delta:
    changes = tuple(Change(kind, entry) for entry in entries)  # type: ignore[arg-type]  # one of the three
    return Delta(channel.id, 1, 2, 0.0, changes, notice=notice)


def entry(key: str = "a", title: str = "Rain & sun", summary: str = "It rains.", link: str = "") -> Entry:
    return Entry(key, title, link or f"https://example.org/{key}", summary)


def preview(*deltas: Delta, template: str = "$link", text_chars: int = 300) -> str:
    """The preview of a message whose entries are written by this template; "" also if it has several entries."""
    templates = dict.fromkeys((FEED.id, OTHER.id), EntryTemplate(template, "UTC")) if template else {}
    lengths = {FEED.id: text_chars}
    text = render_notification(
        [FEED, OTHER], deltas, {}, {}, get_translator("en"), templates=templates, text_chars=lengths
    )
    single = single_entry(deltas, {FEED.id: FEED, OTHER.id: OTHER})
    return link_preview(single[0], single[1].entry, text, text_chars) if single else ""


@pytest.mark.parametrize("template", ["", "$title\n$summary\n$link"])
def test_a_text_with_title_and_summary_has_no_preview(template: str) -> None:
    assert preview(delta(entry()), template=template) == ""


@pytest.mark.parametrize("text_chars", [0, 20, 1_500])
def test_a_text_of_the_chosen_length_has_no_preview(text_chars: int) -> None:
    assert preview(delta(entry(summary="It rains. " * 200)), template="", text_chars=text_chars) == ""


def test_a_text_without_the_summary_has_a_preview() -> None:
    assert "It rains." in preview(delta(entry()), template="$title $link")


def test_a_preview_has_title_summary_and_channel() -> None:
    metadata = fromstring(preview(delta(entry())))  # noqa: S314 - we wrote it
    assert metadata.get(ABOUT) == "https://example.org/a"
    assert {child.tag.rpartition("}")[2]: child.text for child in metadata} == {
        "title": "Rain & sun", "description": "It rains.", "site_name": "The <News>",
    }  # fmt: skip


def test_the_preview_of_an_edited_entry_has_its_last_state() -> None:
    xml = preview(delta(entry()), delta(entry(title="Snow"), kind="replacement"))
    assert "Snow" in xml
    assert "Rain" not in xml


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
def test_other_messages_have_no_preview(deltas: tuple[Delta, ...]) -> None:
    assert preview(*deltas) == ""


def test_a_link_that_the_text_omits_has_no_preview() -> None:
    assert preview(delta(entry()), template="$title") == ""


@given(st.text(), st.text(), st.text())
def test_a_preview_of_any_text_is_short_and_well_formed(title: str, link: str, summary: str) -> None:
    xml = preview(delta(entry(title=title, link=f"https://example.org/{link}", summary=summary * 50)))
    assert len(xml.encode()) <= MAX_PREVIEW_BYTES
    if xml:
        fromstring(xml)  # noqa: S314 - we wrote it


def test_a_link_that_is_too_long_has_no_preview() -> None:
    assert preview(delta(entry(link="https://example.org/" + "&" * 1_900))) == ""
