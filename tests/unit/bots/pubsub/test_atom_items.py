"""Items of pubsub nodes: well-formed for any entries, reproducible, and one for each entry."""

from xml.etree.ElementTree import Element, fromstring

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from bots.pubsub import atom_items
from bots.pubsub.atom_items import NodeItem
from service.feeds.atom_writer import NS_ATOM
from service.feeds.canonical_urls import channel_id
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


def items_of(*deltas: Delta) -> list[NodeItem]:
    return atom_items.build_items(CHANNEL, deltas, SERVICE)


def delta(*changes: Change, version: int = 2, detected_s: float = 2_000.0) -> Delta:
    return Delta(CHANNEL.id, version - 1, version, detected_s, changes)


def text_of(item: NodeItem, name: str) -> str | None:
    return fromstring(item.payload).findtext(f"{{{NS_ATOM}}}{name}")  # noqa: S314 - we wrote it


@given(st.lists(entries, max_size=5, unique_by=lambda entry: entry.key))
def test_items_survive_a_round_trip_through_xml(given_entries: list[Entry]) -> None:
    items = items_of(delta(*(Change("addition", entry) for entry in given_entries)))
    assert len({item.id for item in items}) == len(items) == len(given_entries)
    for item in items:
        parsed = fromstring(f"<item id='{item.id}'>{item.payload}</item>")[0]  # noqa: S314 - we wrote it
        assert atom_items.is_equal(parsed, fromstring(item.payload))  # noqa: S314 - we wrote it
        assert text_of(item, "title")
        assert text_of(item, "updated")


def test_an_item_is_a_complete_atom_entry() -> None:
    (item,) = items_of(delta(Change("addition", ENTRY)))
    assert text_of(item, "id") == f"urn:uuid:{item.id}"
    assert text_of(item, "title") == "Title"
    assert text_of(item, "published") == text_of(item, "updated") == "1970-01-01T00:16:40Z"
    assert text_of(item, "author/{http://www.w3.org/2005/Atom}name") == "Ann"
    assert text_of(item, "content") == "Text."
    links = [link.get("href") for link in fromstring(item.payload).iterfind(f"{{{NS_ATOM}}}link")]  # noqa: S314 - we wrote it
    assert links == [ENTRY.link, f"xmpp:{SERVICE}?;node={CHANNEL.id};item={item.id}"]


def test_an_entry_that_changes_has_one_item_with_its_last_state() -> None:
    edited = structs.replace(ENTRY, title="Corrected")
    first = items_of(delta(Change("addition", ENTRY)))
    both = items_of(
        delta(Change("addition", ENTRY), Change("addition", Entry("b", "B"))),
        delta(Change("replacement", edited), version=3, detected_s=3_000.0),
    )
    assert [text_of(item, "title") for item in both] == ["B", "Corrected"]
    assert both[1].id == first[0].id
    assert text_of(both[1], "updated") == "1970-01-01T00:50:00Z"


def test_a_version_of_a_page_is_one_item_with_the_changed_lines() -> None:
    lines = [Change("addition", Entry(f"{n}", summary=f"line {n}"), line=n) for n in (3, 7)]
    (first,), (second,) = items_of(delta(*lines)), items_of(delta(*lines, version=3))
    assert first.id != second.id
    assert "line 7" in (text_of(first, "content") or "")


def test_items_with_different_content_are_not_equal() -> None:
    (one,) = items_of(delta(Change("addition", ENTRY)))
    (other,) = items_of(delta(Change("addition", structs.replace(ENTRY, summary="Others."))))
    assert not atom_items.is_equal(fromstring(one.payload), fromstring(other.payload))  # noqa: S314 - we wrote them
    assert not atom_items.is_equal(Element("a", {"b": "1"}), Element("a"))
