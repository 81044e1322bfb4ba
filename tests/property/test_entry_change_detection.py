"""Properties of entry identity: nothing is reported twice, nothing new is missed, the state is limited."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from service.feeds.entries.edit_suppression import MAX_EDITS_PER_POLL
from service.feeds.entries.entry_change_detection import FeedState, detect_entry_changes
from service.model import Enclosure, ParsedEntry, ParsedFeed
from tests.support.feed_documents import item

URL = "https://example.com/feed"
NOW_S = 1_800_000_000.0

_NAMES = st.lists(st.sampled_from("abcdefghijkl"), unique=True, max_size=10)
_SHAPES = st.sampled_from(["full", "no id", "no link", "id repeated", "text only", "link repeated"])


_BLURRED = st.lists(
    st.builds(
        ParsedEntry,
        id=st.sampled_from(("", "1", "2", "3")),
        link=st.sampled_from(("", "https://example.com/", "https://example.com/1", "https://example.com/2")),
        title=st.sampled_from(("", "One", "Two")),
        summary=st.sampled_from(("", "one", "two", "two…")),
        published=st.sampled_from((None, 1.7e9, 1.71e9)),
    ),
    max_size=6,
)
"""Documents whose entries share ids, links, titles and dates, or lack them."""


def shaped(name: str, shape: str) -> ParsedEntry:
    """Return an entry in the form of this kind of publisher."""
    changes: dict[str, dict[str, str]] = {
        "full": {},
        "no id": {"id": ""},
        "no link": {"link": ""},
        "id repeated": {"id": "same"},
        "text only": {"id": "", "link": ""},
        "link repeated": {"id": "", "link": "https://example.com/all"},
    }
    return msgspec.structs.replace(item(name), **changes[shape])


def polls(*documents: list[ParsedEntry]) -> list[list[str]]:
    """Return the titles of the new entries of each poll of these documents."""
    state, found = None, []
    for document in documents:
        detected = detect_entry_changes(state, ParsedFeed(entries=tuple(document)), url=URL, now_s=NOW_S)
        state = msgspec.msgpack.decode(msgspec.msgpack.encode(detected.state), type=FeedState)
        found.append([entry.title for entry in detected.new])
    return found


@given(_SHAPES, st.lists(_NAMES, min_size=1, max_size=8))
def test_each_added_entry_is_new_exactly_once(shape: str, documents: list[list[str]]) -> None:
    """An entry is new once, however entries appear, disappear and return."""
    # One entry alone cannot show that its id or link means nothing: the first document holds two.
    documents = [["x", "y"], *documents]
    seen = set(documents[0])
    found = polls(*[[shaped(name, shape) for name in names] for names in documents])
    assert found[0] == []
    for names, new in zip(documents[1:], found[1:], strict=True):
        assert sorted(new) == sorted(f"Title {name}" for name in names if name not in seen)
        seen |= set(names)


@given(_SHAPES, _NAMES, st.data())
def test_reordered_and_redated_entries_are_not_new(shape: str, names: list[str], data: st.DataObject) -> None:
    before = [shaped(name, shape) for name in names]
    dates = data.draw(st.lists(st.none() | st.floats(8e8, 4e9), min_size=len(names), max_size=len(names)))
    after = [
        msgspec.structs.replace(entry, published=date)
        for entry, date in zip(data.draw(st.permutations(before)), dates, strict=True)
    ]
    assert polls(before, after) == [[], []]


@given(_NAMES, _NAMES)
def test_entries_with_ids_that_change_at_each_poll_are_new_once(names: list[str], more: list[str]) -> None:
    first = [item(name, id=f"session-1-{name}") for name in names]
    second = [item(name, id=f"session-2-{name}") for name in names]
    third = [item(name, id=f"session-3-{name}") for name in [*names, *(n for n in more if n not in names)]]
    added = [f"Title {name}" for name in more if name not in names] if names else []
    assert polls(first, second)[1] == []
    if names:
        assert sorted(polls(first, second, third)[2]) == sorted(added)


@given(_NAMES, st.sampled_from(["title", "summary", "link", "enclosure"]))
def test_an_edited_entry_is_not_new(names: list[str], field: str) -> None:
    before = [item(name) for name in names]
    after = [msgspec.structs.replace(entry, **{field: f"https://example.com/edited-{entry.id}"}) for entry in before]
    assert polls(before, after) == [[], []]


@given(_NAMES)
def test_a_change_of_files_and_images_is_no_edit(names: list[str]) -> None:
    before = ParsedFeed(entries=tuple(item(name, enclosure="https://example.com/a") for name in names))
    changed = {"image": "https://example.com/b.png", "enclosures": (Enclosure("https://example.com/b", "audio/mpeg"),)}
    after = ParsedFeed(entries=tuple(
        msgspec.structs.replace(entry, enclosure="https://example.com/b", **changed) for entry in before.entries
    ))  # fmt: skip
    state = detect_entry_changes(None, before, url=URL, now_s=NOW_S).state
    detected = detect_entry_changes(state, after, url=URL, now_s=NOW_S)
    assert (detected.new, detected.edited) == ((), ())


@given(_SHAPES, st.lists(st.sampled_from("abc"), max_size=9))
def test_an_entry_listed_twice_is_new_once(shape: str, names: list[str]) -> None:
    new = polls([item("x")], [shaped(name, shape) for name in names])[1]
    assert sorted(new) == sorted(f"Title {name}" for name in set(names))


@given(_SHAPES, st.lists(st.dictionaries(st.sampled_from("abcdefghijklmnop"), st.sampled_from("tuvw")), max_size=8))
def test_edits_are_limited_and_reported_once(shape: str, documents: list[dict[str, str]]) -> None:
    """No entry is both new and edited, and a repeated document has no changes."""
    state = None
    for document in documents:
        entries = [
            msgspec.structs.replace(shaped(name, shape), title=f"{name} {version}", content=f"{version} of {name}")
            for name, version in document.items()
        ]
        feed = ParsedFeed(entries=tuple(entries))
        detected = detect_entry_changes(state, feed, url=URL, now_s=NOW_S)
        keys = [entry.key for entry in (*detected.new, *detected.edited)]
        assert len(keys) == len(set(keys))
        assert len(detected.edited) <= MAX_EDITS_PER_POLL
        again = detect_entry_changes(detected.state, feed, url=URL, now_s=NOW_S)
        assert (again.new, again.edited, again.gap) == ((), (), False)
        state = detected.state


@given(st.lists(_BLURRED, max_size=5))
def test_a_repeated_document_has_no_changes(documents: list[list[ParsedEntry]]) -> None:
    state = None
    for document in documents:
        feed = ParsedFeed(link="https://example.com/", entries=tuple(document))
        state = detect_entry_changes(state, feed, url=URL, now_s=NOW_S).state
        again = detect_entry_changes(state, feed, url=URL, now_s=NOW_S)
        assert (again.new, again.edited, again.gap) == ((), (), False)
