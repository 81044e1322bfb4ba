"""Laws of identity: nothing is sent twice, nothing new is kept back, memory is bounded."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from service.feeds.identity import IdentityState, decide
from service.model import ParsedEntry, ParsedFeed
from tests.support.documents import item

URL = "https://example.com/feed"
NOW_S = 1_800_000_000.0

_NAMES = st.lists(st.sampled_from("abcdefghijkl"), unique=True, max_size=10)
_SHAPES = st.sampled_from(["full", "no id", "no link", "id repeated", "text only", "link repeated"])


def shaped(name: str, shape: str) -> ParsedEntry:
    """Return an entry as a publisher of this kind would list it."""
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
    """Return the titles that each poll of these documents found new."""
    state, found = None, []
    for document in documents:
        decision = decide(state, ParsedFeed(entries=tuple(document)), url=URL, now_s=NOW_S)
        state = msgspec.msgpack.decode(msgspec.msgpack.encode(decision.state), type=IdentityState)
        found.append([entry.title for entry in decision.new])
    return found


@given(_SHAPES, st.lists(_NAMES, min_size=1, max_size=8))
def test_every_added_entry_is_new_exactly_once(shape: str, documents: list[list[str]]) -> None:
    """Whatever comes, goes and returns in whatever order: once seen is never new again."""
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
def test_ids_that_change_at_every_poll_send_nothing_again(names: list[str], more: list[str]) -> None:
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


@given(_SHAPES, st.lists(st.sampled_from("abc"), max_size=9))
def test_an_entry_listed_twice_is_sent_once(shape: str, names: list[str]) -> None:
    new = polls([item("x")], [shaped(name, shape) for name in names])[1]
    assert sorted(new) == sorted(f"Title {name}" for name in set(names))
