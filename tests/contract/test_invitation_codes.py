"""Invitation codes: limited uses and validity; what Redis stores admits nobody."""

import asyncio

from service.store import Store
from service.store.client import keys


async def test_an_invitation_is_good_for_as_many_people_as_it_says(store: Store) -> None:
    code = await store.invitations.create(2, 60.0)
    people = [f"p{number}@localhost" for number in range(5)]
    let_in = await asyncio.gather(*(store.invitations.accept(jid, code) for jid in people))
    assert sum(let_in) == 2
    assert [await store.invitations.is_guest(jid) for jid in people] == let_in
    assert not await store.redis.call("EXISTS", keys.INVITATION_CODES), "what is used up is gone"


async def test_a_guest_uses_nothing_up_and_stays_one(store: Store) -> None:
    code = await store.invitations.create(2, 60.0)
    for _ in range(5):
        assert await store.invitations.accept("alice@localhost", code)
    assert await store.invitations.accept("bob@localhost", code)
    assert await store.invitations.accept("bob@localhost", "whatever")


async def test_neither_an_old_nor_a_made_up_code_lets_anybody_in(store: Store) -> None:
    old = await store.invitations.create(9, -10.0)
    kept = await store.redis.call("HKEYS", keys.INVITATION_CODES)
    for code in (old, "", "x" * 5000, "\ud800", *(code.decode() for code in kept)):
        assert not await store.invitations.accept("alice@localhost", code)
    assert not await store.invitations.is_guest("alice@localhost")


async def test_who_is_forgotten_is_no_guest_any_more(store: Store) -> None:
    await store.invitations.accept("alice@localhost", await store.invitations.create(1, 60.0))
    await store.erasure.erase("alice@localhost")
    assert not await store.invitations.is_guest("alice@localhost")
