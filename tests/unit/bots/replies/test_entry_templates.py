"""Entry templates: values from publishers are not expanded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.i18n.translator import get_translator
from bots.replies.entry_templates import MAX_CHARS, EntryTemplate, is_short_enough, normalize, unknown_variables
from service.model import Enclosure, Entry
from tests.unit.bots.text_safety import hostile

ENGLISH = get_translator("en")
ENTRY = Entry(
    "k", "A title", "https://example.org/1", "Some words.", ("Jane Doe", "Bob"), ("a", "open source", "#a", "?!"),
    1_700_000_000.0, "https://example.org/a.png",
    (Enclosure("https://example.org/a.pdf"), Enclosure("https://example.org/a.mp3", "audio/mpeg")),
)  # fmt: skip


def filled(text: str, entry: Entry = ENTRY, zone: str = "UTC") -> str:
    return EntryTemplate(normalize(text), zone).fill(entry, "The News", 300, ENGLISH)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("$title", "A title"),
        ("${title}s of $channel: $$5", "A titles of The News: $5"),
        ("$TITLE by $author\\n$link", "A title by Jane Doe, Bob\nhttps://example.org/1"),
        ("$tags | $summary", "#a #open_source | Some words."),
        ("$image\\n$enclosure", "https://example.org/a.png\nhttps://example.org/a.mp3"),
        ("$date", "14 Nov 2023, 22:13:20"),
    ],
)
def test_variables_are_replaced_by_fields_of_the_entry(text: str, said: str) -> None:
    assert filled(text) == said


def test_dates_are_shown_in_the_users_time_zone() -> None:
    assert filled("$date", zone="Europe/Berlin") == "14 Nov 2023, 23:13:20"


def test_missing_entry_fields_leave_no_empty_lines() -> None:
    assert filled("$title\n$author\n$date\n$link", Entry("k", "Bare")) == "Bare"
    assert filled("$author$tags$image$enclosure", Entry("k", "Bare")) == ""


def test_template_syntax_in_entry_fields_is_not_expanded() -> None:
    assert filled("$title", Entry("k", "$link ${date} $$ \\n %s {0}")) == "$link ${date} $$ \\n %s {0}"


def test_unknown_variables_are_named_once_each() -> None:
    assert unknown_variables("$titel ${lnik} $title $titel $$ $5") == ("titel", "lnik", "5")
    assert unknown_variables("$TITLE $$nothing") == ()


@given(st.text(max_size=80) | hostile, hostile)
def test_entry_fields_add_no_lines_to_the_template(text: str, title: str) -> None:
    kept = normalize(text)
    if unknown_variables(kept) or not is_short_enough(kept):
        return
    assert filled(kept, Entry("k", title)).count("\n") <= kept.count("\n")


def test_the_length_and_the_lines_of_a_template_are_limited() -> None:
    assert is_short_enough("x" * MAX_CHARS)
    assert not is_short_enough("x" * (MAX_CHARS + 1))
    assert not is_short_enough(normalize("$title\\n" * 20 + "end"))
