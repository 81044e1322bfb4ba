"""Whatever fails in between, a node ends up with what its channel's log says, and nothing is told twice."""

import asyncio
from collections.abc import Sequence
from typing import Any, Literal
from xml.etree.ElementTree import Element, fromstring, tostring

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from bots.pubsub.node_publisher import MAX_INITIAL_ITEMS, NodePublisher
from bots.xmpp.interface import XmppSessionLost
from bots.xmpp.pubsub_client import PubsubRefused
from service.clock import SystemClock
from service.feeds.urls import channel_id
from service.model import Change, Channel, ChannelId, Delta, Entry
from service.store.channels.pubsub_nodes import PublishedPosition

URL = "https://example.org/feed"
CID = channel_id(URL)
Fails = Literal["", "before", "after"]
"""How a request ends: answered, lost on its way there, or its answer lost on its way back."""

steps = st.one_of(
    st.tuples(st.just("publish"), st.integers(0, 3)),
    st.tuples(st.just("edit"), st.integers(0, 5)),
    st.tuples(st.sampled_from(["public", "private", "lost", "renamed"]), st.just(0)),
    st.tuples(st.just("go on"), st.integers(1, 4)),
)
failures = st.lists(st.sampled_from(["", "", "", "before", "after"]), max_size=40)


class Service:
    """A pubsub service whose answers may be lost; ``told`` is what a subscriber heard since the node was made."""

    def __init__(self, fails: Sequence[Fails]) -> None:
        self.nodes: dict[str, dict[str, str]] = {}
        self.told: list[tuple[str, str]] = []
        self._fails = list(fails)

    async def request(self, _to: str, _kind: str, content: str) -> Element:
        fails = self._fails.pop(0) if self._fails else ""
        if fails == "before":
            raise XmppSessionLost("The request was lost.")
        answer = self._answer(fromstring(content)[0])  # noqa: S314 - it is what is tested
        if fails == "after":
            raise XmppSessionLost("The answer was lost.")
        return answer

    def _answer(self, asked: Element) -> Element:
        node, verb = asked.get("node", ""), asked.tag.rpartition("}")[2]
        if verb == "create":
            if node in self.nodes:
                return refusal("conflict")
            self.nodes[node], self.told = {}, []
        elif node not in self.nodes:
            return refusal("item-not-found")
        elif verb == "delete":
            del self.nodes[node]
        elif verb == "publish":
            ident, payload = asked[0].get("id", ""), tostring(asked[0][0], encoding="unicode")
            self.nodes[node][ident] = payload
            self.told.append((ident, payload))
        elif verb == "items":
            kept = self.nodes[node]
            found = "".join(
                f"<item id='{i.get('id')}'>{kept[i.get('id', '')]}</item>" for i in asked if i.get("id") in kept
            )
            return fromstring(f"<iq><pubsub xmlns='http://jabber.org/protocol/pubsub'>{found}</pubsub></iq>")  # noqa: S314 - we wrote it
        return Element("iq", {"type": "result"})


def refusal(condition: str) -> Element:
    return fromstring(  # noqa: S314 - a constant
        f"<iq type='error'><error><{condition} xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>"
    )


class Store:
    """One channel, its log, and the positions: what the real store would say."""

    def __init__(self) -> None:
        first = Delta(CID, 0, 1, 1_000.0, (Change("addition", Entry("first", "First")),), initial=True)
        self.log = [first]
        self.channel = Channel(CID, URL, title="A feed", version=1)
        self.is_public = True
        self.positions: dict[ChannelId, PublishedPosition] = {}
        self.subscriptions = self.pubsub_nodes = self.channels = self

    def version(self, *changes: Change) -> None:
        version = len(self.log) + 1
        self.log.append(Delta(CID, version - 1, version, 1_000.0 + version, changes))
        self.channel = structs.replace(self.channel, version=version)

    async def many(self, _cids: Sequence[ChannelId]) -> list[Channel]:
        return [structs.replace(self.channel, listed=self.is_public)]

    async def counts(self, _cids: Sequence[ChannelId]) -> list[int]:
        return [0]

    async def of(self, _service: str, _cids: Sequence[ChannelId]) -> dict[ChannelId, PublishedPosition]:
        return dict(self.positions)

    async def put(self, _service: str, cid: ChannelId, position: PublishedPosition) -> None:
        self.positions[cid] = position

    async def drop(self, _service: str, cid: ChannelId) -> None:
        self.positions.pop(cid, None)

    async def deltas(self, _cid: ChannelId, first: int, last: int) -> list[Delta]:
        return self.log[first - 1 : last]

    async def versions(self, _cid: ChannelId, count: int) -> list[Delta]:
        return self.log[::-1][:count]


async def go_on(publisher: NodePublisher, most: int) -> bool:
    """Bring the node up by at most so many steps; whether there is nothing left."""
    for _ in range(most):
        if not await publisher.find_outdated([CID]):
            return True
        try:
            await publisher.update_node(CID)
        except (XmppSessionLost, PubsubRefused):
            continue
    return False


async def lives(story: Sequence[tuple[str, int]], fails: Sequence[Fails]) -> tuple[Store, Service]:
    store, service, entries = Store(), Service(fails), ["first"]
    publisher = NodePublisher(
        store,  # type: ignore[arg-type] # as much as is used
        service,  # type: ignore[arg-type] # as much as is used
        SystemClock(),
        None,  # type: ignore[arg-type] # steps are taken by hand
        service="pubsub.example.org",
        min_subscribers=3,
        scan_interval_s=1e9,
    )
    for what, number in story:
        match what:
            case "publish":
                new = [f"{len(store.log)}/{place}" for place in range(number)]
                store.version(*(Change("addition", Entry(key, f"Entry {key}")) for key in new))
                entries += new
            case "edit":
                key = entries[number % len(entries)]
                store.version(Change("replacement", Entry(key, f"Edited {key} in {len(store.log)}")))
            case "public" | "private":
                store.is_public = what == "public"
            case "lost":
                service.nodes.clear()
            case "renamed":
                store.channel = structs.replace(store.channel, title=f"Renamed {len(store.log)}")
            case _:
                await go_on(publisher, number)
    assert await go_on(publisher, 200), "it comes to an end"
    return store, service


def wanted(store: Store) -> list[str]:
    """The last state of each entry, the one that changed last at the end."""
    found: dict[str, str] = {}
    for delta in store.log:
        for change in delta.changes:
            found.pop(change.entry.key, None)
            found[change.entry.key] = change.entry.title
    return list(found.values())


@pytest.fixture(autouse=True, scope="module")
def _fast() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bots.pubsub.node_publisher.MAX_ITEMS_PER_S", 1e9)
        yield


@given(st.lists(steps, max_size=15), failures)
def test_a_node_says_what_the_log_says_and_nothing_is_told_twice(story: list[Any], fails: list[Fails]) -> None:
    store, service = asyncio.run(lives(story, fails))
    if not store.is_public:
        assert service.nodes == {}
        assert store.positions == {}
        return
    title = "{http://www.w3.org/2005/Atom}title"
    if CID in service.nodes:  # else it was lost after all was told, which shows with the next version
        kept = [fromstring(payload).findtext(title, "") for payload in service.nodes[CID].values()]  # noqa: S314 - we wrote it
        assert set(kept) >= set(wanted(store)[-MAX_INITIAL_ITEMS:])
        assert len(kept) == len(set(kept)), "one item per entry"
    last: dict[str, str] = {}
    for ident, payload in service.told:
        assert last.get(ident) != payload, "told twice"
        last[ident] = payload
