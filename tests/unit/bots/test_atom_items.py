"""Items of nodes: well-formed whatever publishers write, the same however often they are made, one per entry."""

from xml.etree.ElementTree import Element, fromstring

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from bots.pubsub import atom_items
from bots.pubsub.atom_items import NS_ATOM, NodeItem
from service.feeds.urls import channel_id
from service.model import Change, Channel, Delta, Entry

URL = "https://example.org/feed"
CHANNEL = Channel(channel_id(URL), URL, title="A <feed> & more", version=9)
SERVICE = "pubsub.example.org"
ENTRY = Entry("a", "Title", "https://example.org/a?b=1&c=2", "Text.", ("Ann",), ("tea",), 1_000.0)

entries = st.builds(
    Entry,
    key=st.text(min_size=1, max_size=10),
    title=st.text(max_size=400),
    link=st.sampled_from(["", "https://example.org/'\"<&>"]),
    summary=st.text(max_size=600),
    authors=st.lists(st.text(max_size=20), max_size=12).map(tuple),
    tags=st.lists(st.text(max_size=20), max_size=12).map(tuple),
    published=st.none() | st.floats(allow_nan=False, allow_infinity=False),
)


def made(*deltas: Delta) -> list[NodeItem]:
    return atom_items.build_items(CHANNEL, deltas, SERVICE)


def delta(*changes: Change, version: int = 2, detected_s: float = 2_000.0) -> Delta:
    return Delta(CHANNEL.id, version - 1, version, detected_s, changes)


def said(item: NodeItem, name: str) -> str | None:
    return fromstring(item.payload).findtext(f"{{{NS_ATOM}}}{name}")  # noqa: S314 - we wrote it


@given(st.lists(entries, max_size=5, unique_by=lambda entry: entry.key))
def test_any_entries_become_items_that_a_service_gives_back_as_they_are(wanted: list[Entry]) -> None:
    items = made(delta(*(Change("addition", entry) for entry in wanted)))
    assert len({item.id for item in items}) == len(items) == len(wanted)
    for item in items:
        kept = fromstring(f"<item id='{item.id}'>{item.payload}</item>")[0]  # noqa: S314 - we wrote it
        assert atom_items.is_equal(kept, fromstring(item.payload))  # noqa: S314 - we wrote it
        assert said(item, "title")
        assert said(item, "updated")


def test_an_entry_is_a_complete_atom_entry() -> None:
    (item,) = made(delta(Change("addition", ENTRY)))
    assert said(item, "id") == f"urn:uuid:{item.id}"
    assert said(item, "title") == "Title"
    assert said(item, "published") == said(item, "updated") == "1970-01-01T00:16:40Z"
    assert said(item, "author/{http://www.w3.org/2005/Atom}name") == "Ann"
    assert said(item, "content") == "Text."
    links = [link.get("href") for link in fromstring(item.payload).iterfind(f"{{{NS_ATOM}}}link")]  # noqa: S314 - we wrote it
    assert links == [ENTRY.link, f"xmpp:{SERVICE}?;node={CHANNEL.id};item={item.id}"]


def test_of_an_entry_that_changes_again_the_last_state_stands_under_its_id() -> None:
    edited = structs.replace(ENTRY, title="Corrected")
    first = made(delta(Change("addition", ENTRY)))
    both = made(
        delta(Change("addition", ENTRY), Change("addition", Entry("b", "B"))),
        delta(Change("replacement", edited), version=3, detected_s=3_000.0),
    )
    assert [said(item, "title") for item in both] == ["B", "Corrected"]
    assert both[1].id == first[0].id
    assert said(both[1], "updated") == "1970-01-01T00:50:00Z"


def test_a_version_of_a_page_is_one_item_with_its_changed_lines() -> None:
    lines = [Change("addition", Entry(f"{n}", summary=f"line {n}"), line=n) for n in (3, 7)]
    (first,), (second,) = made(delta(*lines)), made(delta(*lines, version=3))
    assert first.id != second.id
    assert "line 7" in (said(first, "content") or "")


def test_what_differs_is_not_the_same() -> None:
    (one,) = made(delta(Change("addition", ENTRY)))
    (other,) = made(delta(Change("addition", structs.replace(ENTRY, summary="Others."))))
    assert not atom_items.is_equal(fromstring(one.payload), fromstring(other.payload))  # noqa: S314 - we wrote them
    assert not atom_items.is_equal(Element("a", {"b": "1"}), Element("a"))
