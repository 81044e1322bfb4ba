"""Whichever requests fail, a node ends up with the entries of its channel's log, and subscribers get no duplicates."""

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
from service.feeds.canonical_urls import channel_id
from service.model import Change, Channel, ChannelId, Delta, Entry
from service.settings import Settings
from service.store.channels.pubsub_nodes import PublishedPosition

URL = "https://example.org/feed"
CID = channel_id(URL)
Failure = Literal["", "before", "after"]
"""Where a request fails: nowhere, on the way to the service, or on the way back."""

events = st.one_of(
    st.tuples(st.just("publish"), st.integers(0, 3)),
    st.tuples(st.just("edit"), st.integers(0, 5)),
    st.tuples(st.sampled_from(["public", "private", "node lost", "renamed"]), st.just(0)),
    st.tuples(st.just("update"), st.integers(1, 4)),
)
failures = st.lists(st.sampled_from(["", "", "", "before", "after"]), max_size=40)


class Service:
    """A pubsub service with failing requests; ``notifications`` are what subscribers got since the node's creation."""

    def __init__(self, failures: Sequence[Failure]) -> None:
        self.nodes: dict[str, dict[str, str]] = {}
        self.notifications: list[tuple[str, str]] = []
        self._failures = list(failures)

    async def request(self, _to: str, _kind: str, content: str) -> Element:
        failure = self._failures.pop(0) if self._failures else ""
        if failure == "before":
            raise XmppSessionLost("The request was lost.")
        response = self._respond(fromstring(content)[0])  # noqa: S314 - it is what is tested
        if failure == "after":
            raise XmppSessionLost("The response was lost.")
        return response

    def _respond(self, request: Element) -> Element:
        node, verb = request.get("node", ""), request.tag.rpartition("}")[2]
        if verb == "create":
            if node in self.nodes:
                return error("conflict")
            self.nodes[node], self.notifications = {}, []
        elif node not in self.nodes:
            return error("item-not-found")
        elif verb == "delete":
            del self.nodes[node]
        elif verb == "publish":
            item_id, payload = request[0].get("id", ""), tostring(request[0][0], encoding="unicode")
            self.nodes[node][item_id] = payload
            self.notifications.append((item_id, payload))
        elif verb == "items":
            items = self.nodes[node]
            found = "".join(
                f"<item id='{i.get('id')}'>{items[i.get('id', '')]}</item>" for i in request if i.get("id") in items
            )
            return fromstring(f"<iq><pubsub xmlns='http://jabber.org/protocol/pubsub'>{found}</pubsub></iq>")  # noqa: S314 - we wrote it
        return Element("iq", {"type": "result"})


def error(condition: str) -> Element:
    return fromstring(  # noqa: S314 - a constant
        f"<iq type='error'><error><{condition} xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>"
    )


class Store:
    """A store with one channel, its log, and the positions of nodes."""

    def __init__(self) -> None:
        first = Delta(CID, 0, 1, 1_000.0, (Change("addition", Entry("first", "First")),), initial=True)
        self.log = [first]
        self.channel = Channel(CID, URL, title="A feed", version=1)
        self.is_public = True
        self.stored_positions: dict[ChannelId, PublishedPosition] = {}
        self.subscriptions = self.channel_index = self.pubsub_nodes = self.channels = self

    def add_version(self, *changes: Change) -> None:
        version = len(self.log) + 1
        self.log.append(Delta(CID, version - 1, version, 1_000.0 + version, changes))
        self.channel = structs.replace(self.channel, version=version)

    async def get_many(self, _cids: Sequence[ChannelId]) -> list[Channel]:
        return [structs.replace(self.channel, listed=self.is_public)]

    async def count(self, _cids: Sequence[ChannelId]) -> list[int]:
        return [0]

    async def positions(self, _service: str, _cids: Sequence[ChannelId]) -> dict[ChannelId, PublishedPosition]:
        return dict(self.stored_positions)

    async def put(self, _service: str, cid: ChannelId, position: PublishedPosition) -> None:
        self.stored_positions[cid] = position

    async def drop(self, _service: str, cid: ChannelId) -> None:
        self.stored_positions.pop(cid, None)

    async def deltas(self, _cid: ChannelId, first: int, last: int) -> list[Delta]:
        return self.log[first - 1 : last]

    async def versions(self, _cid: ChannelId, count: int) -> list[Delta]:
        return self.log[::-1][:count]


async def update(publisher: NodePublisher, max_steps: int) -> bool:
    """Update the node by at most ``max_steps`` steps; return whether it is up to date."""
    for _ in range(max_steps):
        if not await publisher.find_outdated([CID]):
            return True
        try:
            await publisher.update_node(CID)
        except (XmppSessionLost, PubsubRefused):
            continue
    return False


async def play(history: Sequence[tuple[str, int]], failures: Sequence[Failure]) -> tuple[Store, Service]:
    """Play a history of events and then update the node until it is up to date."""
    store, service, entries = Store(), Service(failures), ["first"]
    publisher = NodePublisher(
        store,  # type: ignore[arg-type] # as much as is used
        service,  # type: ignore[arg-type] # as much as is used
        SystemClock(),
        None,  # type: ignore[arg-type] # the steps are taken by the test
        Settings(pubsub_service="pubsub.example.org", public_from_subscribers=3),
    )
    for event, number in history:
        match event:
            case "publish":
                keys = [f"{len(store.log)}/{index}" for index in range(number)]
                store.add_version(*(Change("addition", Entry(key, f"Entry {key}")) for key in keys))
                entries += keys
            case "edit":
                key = entries[number % len(entries)]
                store.add_version(Change("replacement", Entry(key, f"Edited {key} in {len(store.log)}")))
            case "public" | "private":
                store.is_public = event == "public"
            case "node lost":
                service.nodes.clear()
            case "renamed":
                store.channel = structs.replace(store.channel, title=f"Renamed {len(store.log)}")
            case _:
                await update(publisher, number)
    assert await update(publisher, 200), "the updates come to an end"
    return store, service


def latest_titles(store: Store) -> list[str]:
    """Return the latest title of each entry, the one that changed last at the end."""
    titles: dict[str, str] = {}
    for delta in store.log:
        for change in delta.changes:
            titles.pop(change.entry.key, None)
            titles[change.entry.key] = change.entry.title
    return list(titles.values())


@pytest.fixture(autouse=True, scope="module")
def _no_rate_limit() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bots.pubsub.node_publisher.MAX_ITEMS_PER_S", 1e9)
        yield


@given(st.lists(events, max_size=15), failures)
def test_a_node_has_the_entries_of_the_log_and_no_item_is_published_twice(
    history: list[Any], failures: list[Failure]
) -> None:
    store, service = asyncio.run(play(history, failures))
    if not store.is_public:
        assert service.nodes == {}
        assert store.stored_positions == {}
        return
    title = "{http://www.w3.org/2005/Atom}title"
    if CID in service.nodes:  # otherwise the service lost the node after the last version, noticed with the next one
        titles = [fromstring(payload).findtext(title, "") for payload in service.nodes[CID].values()]  # noqa: S314 - we wrote it
        assert set(titles) >= set(latest_titles(store)[-MAX_INITIAL_ITEMS:])
        assert len(titles) == len(set(titles)), "one item per entry"
    last: dict[str, str] = {}
    for item_id, payload in service.notifications:
        assert last.get(item_id) != payload, "published twice"
        last[item_id] = payload
