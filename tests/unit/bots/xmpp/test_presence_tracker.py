"""The presence tracker: presences of clients become events about known users."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import cast

import pytest
import pytest_asyncio

from bots.xmpp import presence_tracker
from bots.xmpp.events import PresenceChanged, UserPresence
from bots.xmpp.presence_tracker import PresenceTracker
from service.errors import StoreUnavailable
from service.model import UserId
from service.store.client.keys import user_id
from service.store.people.users import Users
from tests.support.waiting import until_so


class KnownUsers:
    """A store that knows all users except mallory; it responds once ``may_respond`` is set."""

    def __init__(self) -> None:
        self.may_respond = asyncio.Event()
        self.may_respond.set()
        self.failures = 0

    async def are_known(self, uids: Sequence[UserId]) -> list[bool]:
        await self.may_respond.wait()
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("Redis is unavailable.")
        return [uid != user_id("mallory@localhost") for uid in uids]


class Harness:
    """A presence tracker and the events that it reports."""

    def __init__(self) -> None:
        self.users = KnownUsers()
        self.events: list[UserPresence] = []
        self.tracker = PresenceTracker(cast(Users, self.users), self.events.append)

    def online(self, name: str, resource: str = "x", *, is_free: bool = True) -> None:
        self.tracker.on_presence_changed(
            PresenceChanged(f"{name}@localhost", resource, is_online=True, is_free=is_free)
        )

    def offline(self, name: str, resource: str = "x") -> None:
        self.tracker.on_presence_changed(PresenceChanged(f"{name}@localhost", resource, is_online=False, is_free=False))

    async def lookups_done(self) -> None:
        await until_so(lambda: not self.tracker.pending, "all senders are looked up")


@pytest_asyncio.fixture
async def harness() -> AsyncIterator[Harness]:
    harness = Harness()
    running = asyncio.create_task(harness.tracker.run())
    try:
        yield harness
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_user_is_free_if_any_client_is_and_unavailable_without_clients(harness: Harness) -> None:
    alice = "alice@localhost"
    harness.online("alice", "phone", is_free=False)
    harness.online("alice", "desk")
    await harness.lookups_done()
    harness.offline("alice", "desk")
    harness.offline("alice", "phone")
    harness.online("alice", "phone")
    harness.offline("alice", "")
    await harness.lookups_done()
    free = [event.is_free for event in harness.events]
    assert free == [False, True, False, None, True, None]
    assert {event.jid for event in harness.events} == {alice}
    assert harness.tracker.clients == {}


async def test_presences_of_unknown_senders_are_dropped(harness: Harness) -> None:
    for number in range(10):
        harness.online("mallory", str(number))
    harness.online("alice")
    await harness.lookups_done()
    assert harness.events == [UserPresence("alice@localhost", is_free=True, is_new_client=True)]
    assert list(harness.tracker.clients) == ["alice@localhost"]


async def test_users_clients_and_pending_presences_are_limited(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence_tracker, "MAX_USERS", 3)
    monkeypatch.setattr(presence_tracker, "MAX_CLIENTS", 2)
    monkeypatch.setattr(presence_tracker, "_MAX_PENDING", 20)
    harness.users.may_respond.clear()
    for number in range(30):
        harness.online(f"p{number % 5}", str(number))
    assert len(harness.tracker.pending) == 20
    harness.users.may_respond.set()
    await harness.lookups_done()
    assert len(harness.tracker.clients) == 3
    for number in range(9):
        harness.online("alice", str(number))
    await harness.lookups_done()
    assert (len(harness.tracker.clients), list(harness.tracker.clients["alice@localhost"])) == (3, ["7", "8"])


async def test_presences_stay_in_order_during_a_lookup(harness: Harness) -> None:
    harness.users.may_respond.clear()
    harness.users.failures = 1
    harness.online("alice")
    await asyncio.sleep(0)
    harness.offline("alice")
    harness.users.may_respond.set()
    await harness.lookups_done()
    assert harness.events == [
        UserPresence("alice@localhost", is_free=True, is_new_client=True),
        UserPresence("alice@localhost", is_online=False),
    ]


async def test_a_new_session_forgets_all_presences(harness: Harness) -> None:
    harness.online("alice")
    await harness.lookups_done()
    harness.users.may_respond.clear()
    harness.online("bob")
    await asyncio.sleep(0)
    harness.tracker.on_session_started()
    harness.users.may_respond.set()
    harness.online("carol")
    await harness.lookups_done()
    assert list(harness.tracker.clients) == ["carol@localhost"]
