"""Messages between nodes: from worker to worker over real sockets, or through the inboxes in Redis."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest
import pytest_asyncio
from aiohttp import web
from pydantic import SecretStr

from service.errors import PeerProtocolError
from service.settings import Settings
from service.store import Store
from service.store.client import keys
from service.store.coordination.worker_inboxes import InboxMessage
from tests.support.peer_workers import SETTINGS, Worker, counted, introduce, worker
from tests.support.waiting import until, until_so
from workers.peers import node_message_transport

HERE, THERE = "0" * 40, "8" + "0" * 39
OTHER_SECRET = SETTINGS.model_copy(update={"cluster_secret": SecretStr("another fleet's")})
NO_SECRET = SETTINGS.model_copy(update={"cluster_secret": SecretStr("")})


class Recipient:
    """A node that only records its messages."""

    def __init__(self) -> None:
        self.received: list[InboxMessage] = []

    async def process(self, messages: Sequence[InboxMessage]) -> None:
        self.received += messages


def _numbered(count: int) -> list[InboxMessage]:
    return [InboxMessage("peer" if number % 2 else "share", HERE, b"%d" % number) for number in range(count)]


async def _post(
    store: Store, sender: Worker, messages: list[InboxMessage], *, is_urgent: bool = False, can_wait: bool = False
) -> None:
    addressed = [(THERE, message) for message in messages]
    await store.node_inboxes.send(sender.peers.messages.post(addressed, is_urgent=is_urgent, can_wait=can_wait))


def _is_idle(sender: Worker, receiver: Worker) -> bool:
    """Return whether the sender has sent all its messages to the receiver, and got the response."""
    link = sender.peers.messages._links[receiver.me.id]
    return not link.queue and not link.is_sending


async def _inbox(store: Store) -> list[InboxMessage]:
    """Return the messages in the inbox of the node ``THERE``."""
    if not await store.redis.call("EXISTS", keys.inbox(THERE)):
        return []
    return (await store.node_inboxes.read(THERE, "0"))[0]


@pytest_asyncio.fixture
async def two(store: Store) -> AsyncIterator[tuple[Worker, Worker]]:
    async with worker(store, HERE) as sender, worker(store, THERE) as receiver:
        introduce([sender, receiver])
        yield sender, receiver


async def test_soft_state_reaches_a_node_of_another_worker_in_order_and_not_through_redis(
    store: Store, two: tuple[Worker, Worker]
) -> None:
    sender, receiver = two
    node = Recipient()
    with receiver.peers.messages.receive(THERE, node.process):
        for _ in range(3):
            await _post(store, sender, _numbered(10))
        await until_so(lambda: len(node.received) == 30, "all have arrived")
    assert node.received == 3 * _numbered(10)
    assert await _inbox(store) == []


async def test_many_messages_are_sent_in_several_requests(
    store: Store, two: tuple[Worker, Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    sender, receiver = two
    node = Recipient()
    monkeypatch.setattr(node_message_transport, "MAX_BATCH_BYTES", 1_000)
    with receiver.peers.messages.receive(THERE, node.process):
        await _post(store, sender, _numbered(200))
        await until_so(lambda: len(node.received) == 200, "all have arrived")
    assert node.received == _numbered(200)


async def test_messages_that_are_too_large_or_too_many_go_through_the_inbox(
    store: Store, two: tuple[Worker, Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_message_transport, "MAX_QUEUED_BYTES", 0)
    await _post(store, two[0], _numbered(2))
    assert await _inbox(store) == _numbered(2)


async def test_urgent_messages_go_through_the_inbox(store: Store, two: tuple[Worker, Worker]) -> None:
    await _post(store, two[0], _numbered(2), is_urgent=True)
    assert await _inbox(store) == _numbered(2)


async def test_a_node_that_the_worker_does_not_run_gets_its_messages_through_the_inbox(
    store: Store, two: tuple[Worker, Worker]
) -> None:
    await _post(store, two[0], _numbered(3))
    await until_so(lambda: _is_idle(*two), "the request has ended")
    assert await _inbox(store) == _numbered(3)


async def test_messages_within_a_process_use_neither_sockets_nor_redis(two: tuple[Worker, Worker]) -> None:
    sender, _ = two
    node, before = Recipient(), counted("coronet_node_messages_total", way="process")
    with sender.peers.messages.receive(THERE, node.process):
        assert sender.peers.messages.post([(THERE, each) for each in _numbered(3)]) == []
        await until_so(lambda: len(node.received) == 3, "all have arrived")
    assert counted("coronet_node_messages_total", way="process") == before + 3


async def test_a_node_receives_on_when_an_earlier_node_with_its_id_ends(two: tuple[Worker, Worker]) -> None:
    """A node can join under the id of another node of its process that has not noticed yet that it lost its lease."""
    transport = two[0].peers.messages
    former, present = Recipient(), Recipient()
    earlier = contextlib.ExitStack()
    earlier.enter_context(transport.receive(THERE, former.process))
    with transport.receive(THERE, present.process):
        earlier.close()
        assert transport.post([(THERE, each) for each in _numbered(3)]) == []
        await until_so(lambda: len(present.received) == 3, "all have arrived")
    assert former.received == []


@pytest.mark.parametrize("theirs", [OTHER_SECRET, NO_SECRET], ids=["another secret", "no secret"])
async def test_a_worker_that_refuses_gets_messages_through_inboxes(store: Store, theirs: Settings) -> None:
    async with worker(store, HERE) as sender, worker(store, THERE, theirs) as receiver:
        introduce([sender, receiver])
        node = Recipient()
        with receiver.peers.messages.receive(THERE, node.process):
            await _post(store, sender, _numbered(2))
            await until_so(lambda: _is_idle(sender, receiver), "the request has ended")
            assert sender.peers.messages.post([(THERE, _numbered(1)[0])]) != [], "the worker is not tried again"
        assert (await _inbox(store), node.received) == (_numbered(2), [])


async def test_without_a_secret_all_messages_go_through_inboxes(store: Store) -> None:
    async with worker(store, HERE, NO_SECRET) as sender, worker(store, THERE, NO_SECRET) as receiver:
        introduce([sender, receiver])
        await _post(store, sender, _numbered(2))
    assert await _inbox(store) == _numbered(2)


async def test_a_worker_that_hangs_gets_messages_through_inboxes_until_it_answers_again(
    store: Store, two: tuple[Worker, Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(request: web.Request, verb: str) -> web.Response:
        if verb == node_message_transport.NODE_MESSAGES_VERB:
            await asyncio.sleep(60)
        return await answer(request, verb)

    monkeypatch.setattr(node_message_transport, "REQUEST_TIMEOUT_S", 0.2)
    monkeypatch.setattr(node_message_transport, "RETRY_S", 0.5)
    sender, receiver = two
    node, answer = Recipient(), receiver.peers._handle
    with receiver.peers.messages.receive(THERE, node.process):
        monkeypatch.setattr(receiver.peers, "_handle", hang)
        await _post(store, sender, _numbered(5))
        await until_so(lambda: _is_idle(sender, receiver), "the request has ended")
        await _post(store, sender, _numbered(2))
        assert await _inbox(store) == _numbered(5) + _numbered(2)
        monkeypatch.setattr(receiver.peers, "_handle", answer)

        async def repeat() -> bool:
            await _post(store, sender, _numbered(1))
            return bool(node.received)

        await until(repeat, "a message arrives directly")


@pytest.mark.parametrize("sent", [None, [1], [["f" * 41, "peer", "", b""]], [["f" * 40, "peer", ""]]])
async def test_malformed_messages_are_refused(two: tuple[Worker, Worker], sent: object) -> None:
    with pytest.raises(PeerProtocolError):
        two[0].peers.messages.on_request(THERE, msgspec.msgpack.encode(sent))


async def test_a_request_starts_one_task_for_each_node(two: tuple[Worker, Worker]) -> None:
    _, receiver = two
    calls: list[Sequence[InboxMessage]] = []

    async def process(messages: Sequence[InboxMessage]) -> None:
        calls.append(messages)

    sent = [(node, "share", HERE, b"%d" % number) for number in range(1_000) for node in (THERE, HERE)]
    with receiver.peers.messages.receive(THERE, process):
        response = receiver.peers.messages.on_request(HERE, msgspec.msgpack.encode(sent))
        await until_so(lambda: bool(calls), "the messages are processed")
    assert [[int(each.payload) for each in call] for call in calls] == [[*range(1_000)]]
    assert msgspec.msgpack.decode(response) == [[HERE], []]


async def test_the_response_to_a_request_contains_the_messages_that_wait_for_its_sender(
    store: Store, two: tuple[Worker, Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    sender, receiver = two
    for each in two:
        monkeypatch.setattr(each.peers.messages, "_longest_wait_s", 60.0)
    here, there = Recipient(), Recipient()
    with sender.peers.messages.receive(HERE, here.process), receiver.peers.messages.receive(THERE, there.process):
        assert receiver.peers.messages.post([(HERE, each) for each in _numbered(4)], can_wait=True) == []
        await _post(store, sender, _numbered(2), can_wait=True)
        await _post(store, sender, _numbered(3))
        await until_so(lambda: len(here.received) == 4, "the messages that waited have arrived")
    assert (here.received, there.received) == (_numbered(4), _numbered(2) + _numbered(3))
    assert (_is_idle(sender, receiver), _is_idle(receiver, sender)) == (True, True)


async def test_messages_that_can_wait_are_sent_after_a_while_even_without_others(
    store: Store, two: tuple[Worker, Worker]
) -> None:
    sender, receiver = two
    node = Recipient()
    with receiver.peers.messages.receive(THERE, node.process):
        await _post(store, sender, _numbered(3), can_wait=True)
        await until_so(lambda: len(node.received) == 3, "all have arrived")


async def test_messages_that_wait_for_a_worker_that_refuses_go_through_inboxes(store: Store) -> None:
    async with worker(store, HERE) as sender, worker(store, THERE, OTHER_SECRET) as receiver:
        introduce([sender, receiver])
        await _post(store, sender, _numbered(2), can_wait=True)
        await until_so(lambda: _is_idle(sender, receiver), "the request has ended")
        assert await _inbox(store) == _numbered(2)
