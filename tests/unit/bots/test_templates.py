"""Templates: what a publisher writes stays what it is, and nothing of it is looked at again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.i18n.translator import get_translator
from bots.replies.entry_templates import MOST_CHARS, Template, fits, strangers, tidy
from service.model import Entry
from tests.unit.bots.safety import hostile

ENGLISH = get_translator("en")
ENTRY = Entry("k", "A title", "https://example.org/1", "Some words.", ("Jane Doe", "Bob"), ("a", "b"), 1_700_000_000.0)


def filled(text: str, entry: Entry = ENTRY, zone: str = "UTC") -> str:
    return Template(tidy(text), zone).fill(entry, "The News", 300, ENGLISH)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("$title", "A title"),
        ("${title}s of $channel: $$5", "A titles of The News: $5"),
        ("$TITLE by $author\\n$link", "A title by Jane Doe, Bob\nhttps://example.org/1"),
        ("$tags | $summary", "a, b | Some words."),
        ("$date", "14 Nov 2023, 22:13:20"),
    ],
)
def test_variables_stand_for_what_the_entry_has(text: str, said: str) -> None:
    assert filled(text) == said


def test_dates_go_by_the_persons_clock() -> None:
    assert filled("$date", zone="Europe/Berlin") == "14 Nov 2023, 23:13:20"


def test_what_an_entry_does_not_have_leaves_no_empty_line() -> None:
    assert filled("$title\n$author\n$date\n$link", Entry("k", "Bare")) == "Bare"
    assert filled("$author", Entry("k", "Bare")) == ""


def test_what_a_publisher_writes_is_no_template() -> None:
    assert filled("$title", Entry("k", "$link ${date} $$ \\n %s {0}")) == "$link ${date} $$ \\n %s {0}"


def test_unknown_variables_are_named_once_each() -> None:
    assert strangers("$titel ${lnik} $title $titel $$ $5") == ("titel", "lnik", "5")
    assert strangers("$TITLE $$nothing") == ()


@given(st.text(max_size=80) | hostile, hostile)
def test_whatever_is_filled_in_stays_on_the_lines_of_its_template(text: str, title: str) -> None:
    kept = tidy(text)
    if strangers(kept) or not fits(kept):
        return
    assert filled(kept, Entry("k", title)).count("\n") <= kept.count("\n")


def test_a_template_has_its_limits() -> None:
    assert fits("x" * MOST_CHARS)
    assert not fits("x" * (MOST_CHARS + 1))
    assert not fits(tidy("$title\\n" * 20 + "end"))
