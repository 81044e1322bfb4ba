"""Invitation codes: limited uses and validity; what Redis stores admits nobody."""

import asyncio

from service.store import Store
from service.store.client import keys


async def test_a_code_admits_the_stated_number_of_users(store: Store) -> None:
    code = await store.invitations.create(2, 60.0)
    people = [f"p{number}@localhost" for number in range(5)]
    let_in = await asyncio.gather(*(store.invitations.accept(jid, code) for jid in people))
    assert sum(let_in) == 2
    assert [await store.invitations.is_guest(jid) for jid in people] == let_in
    assert not await store.redis.call("EXISTS", keys.INVITATION_CODES), "what is used up is gone"


async def test_a_guest_does_not_use_up_a_code(store: Store) -> None:
    code = await store.invitations.create(2, 60.0)
    for _ in range(5):
        assert await store.invitations.accept("alice@localhost", code)
    assert await store.invitations.accept("bob@localhost", code)
    assert await store.invitations.accept("bob@localhost", "whatever")


async def test_expired_and_unknown_codes_are_refused(store: Store) -> None:
    old = await store.invitations.create(9, -10.0)
    kept = await store.redis.call("HKEYS", keys.INVITATION_CODES)
    for code in (old, "", "x" * 5000, "\ud800", *(code.decode() for code in kept)):
        assert not await store.invitations.accept("alice@localhost", code)
    assert not await store.invitations.is_guest("alice@localhost")


async def test_an_erased_user_is_no_longer_a_guest(store: Store) -> None:
    await store.invitations.accept("alice@localhost", await store.invitations.create(1, 60.0))
    await store.erasure.erase("alice@localhost")
    assert not await store.invitations.is_guest("alice@localhost")
