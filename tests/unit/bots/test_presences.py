"""Whose presence is remembered, and what becomes of it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import cast

import pytest
import pytest_asyncio

from bots.xmpp import presence
from bots.xmpp.events import PresenceChanged, UserAvailable, UserUnavailable
from bots.xmpp.presence import PresenceTracker
from service.errors import StoreUnavailable
from service.model import UserId
from service.store.client.keys import user_id
from service.store.people.users import Users
from tests.support.waiting import until_so


class KnownUsers:
    """A store that knows everybody but mallory; it answers only once it may."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.failures = 0

    async def are_known(self, uids: Sequence[UserId]) -> list[bool]:
        await self.may_answer.wait()
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("Redis is away.")
        return [uid != user_id("mallory@localhost") for uid in uids]


class Scene:
    """PresenceTracker, and what they say of people."""

    def __init__(self) -> None:
        self.users = KnownUsers()
        self.events: list[UserAvailable | UserUnavailable] = []
        self.presences = PresenceTracker(cast(Users, self.users), self.events.append)

    def online(self, name: str, resource: str = "x", *, is_free: bool = True) -> None:
        self.presences.on_presence_changed(
            PresenceChanged(f"{name}@localhost", resource, is_online=True, is_free=is_free)
        )

    def offline(self, name: str, resource: str = "x") -> None:
        self.presences.on_presence_changed(
            PresenceChanged(f"{name}@localhost", resource, is_online=False, is_free=False)
        )

    async def settled(self) -> None:
        await until_so(lambda: not self.presences.pending, "all are looked up")


@pytest_asyncio.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    running = asyncio.create_task(scene.presences.run())
    try:
        yield scene
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_person_is_free_at_any_client_and_absent_without_one(scene: Scene) -> None:
    alice = "alice@localhost"
    scene.online("alice", "phone", is_free=False)
    scene.online("alice", "desk")
    await scene.settled()
    scene.offline("alice", "desk")
    scene.offline("alice", "phone")
    scene.online("alice", "phone")
    scene.offline("alice", "")
    await scene.settled()
    free = [event.is_free if isinstance(event, UserAvailable) else None for event in scene.events]
    assert free == [False, True, False, None, True, None]
    assert {event.jid for event in scene.events} == {alice}
    assert scene.presences.clients == {}


async def test_of_strangers_nothing_is_remembered_or_said(scene: Scene) -> None:
    for number in range(10):
        scene.online("mallory", str(number))
    scene.online("alice")
    await scene.settled()
    assert scene.events == [UserAvailable("alice@localhost", is_free=True, is_new_client=True)]
    assert list(scene.presences.clients) == ["alice@localhost"]


async def test_people_and_clients_are_bounded(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "MAX_USERS", 3)
    monkeypatch.setattr(presence, "MAX_CLIENTS", 2)
    monkeypatch.setattr(presence, "_MAX_PENDING", 20)
    scene.users.may_answer.clear()
    for number in range(30):
        scene.online(f"p{number % 5}", str(number))
    assert len(scene.presences.pending) == 20
    scene.users.may_answer.set()
    await scene.settled()
    assert len(scene.presences.clients) == 3
    for number in range(9):
        scene.online("alice", str(number))
    await scene.settled()
    assert (len(scene.presences.clients), list(scene.presences.clients["alice@localhost"])) == (3, ["7", "8"])


async def test_what_comes_while_somebody_is_looked_up_stays_in_order(scene: Scene) -> None:
    scene.users.may_answer.clear()
    scene.users.failures = 1
    scene.online("alice")
    await asyncio.sleep(0)
    scene.offline("alice")
    scene.users.may_answer.set()
    await scene.settled()
    assert scene.events == [
        UserAvailable("alice@localhost", is_free=True, is_new_client=True),
        UserUnavailable("alice@localhost"),
    ]


async def test_a_new_session_knows_nothing_of_the_old_one(scene: Scene) -> None:
    scene.online("alice")
    await scene.settled()
    scene.users.may_answer.clear()
    scene.online("bob")
    await asyncio.sleep(0)
    scene.presences.on_session_started()
    scene.users.may_answer.set()
    scene.online("carol")
    await scene.settled()
    assert list(scene.presences.clients) == ["carol@localhost"]
