"""People as pages and programs see them: listed in the order of their ids, found by a part of their address."""

import msgspec

from service.errors import NoSuchThing, UserError
from service.model import UserId
from service.store import Store
from service.store.keys import user_id
from service.store.people import Person

PAGE = 50
_LOOKED_AT_ONCE = 500
_LOOKED_AT_MOST = 20_000
_ID_CHARS = 16


class PeoplePage(msgspec.Struct, frozen=True):
    """Some people by id; ``next`` is the cursor of who follows, "" at the end."""

    items: tuple[Person, ...]
    next: str


async def people(store: Store, part: str, cursor: str, count: int = PAGE) -> PeoplePage:
    """Return the next people whose address holds ``part`` (any case; "" finds all), one's whole address first.

    Looks at no more than ``_LOOKED_AT_MOST``, so that a page can be short and still have a next one. Raises
    :class:`UserError` for a cursor that is none of ours.
    """
    if cursor and len(cursor) != _ID_CHARS:
        raise UserError("This cursor is not one the console gave out. Start again without it.")
    wanted = part.casefold().strip()
    exact = user_id(wanted)
    found = [exact] if wanted and not cursor and await store.people.get(exact) is not None else []
    ids = [uid for uid in await store.people.ids() if uid > cursor]
    last = ""
    for start in range(0, min(len(ids), _LOOKED_AT_MOST), _LOOKED_AT_ONCE):
        some = ids[start : start + _LOOKED_AT_ONCE]
        jids = await store.people.jids(some) if wanted else [""] * len(some)
        for uid, jid in zip(some, jids, strict=True):
            if len(found) == count:
                return PeoplePage(await _known(store, found), last)
            last = uid
            if wanted in jid.casefold() and uid != exact:
                found.append(uid)
    return PeoplePage(await _known(store, found), last if len(ids) > _LOOKED_AT_MOST else "")


async def person(store: Store, uid: UserId) -> Person:
    """Return one person. Raises :class:`NoSuchThing`."""
    found = await store.people.get(uid) if len(uid) == _ID_CHARS else None
    if found is None:
        raise _nobody()
    return found


async def change(store: Store, uid: UserId, *, suspended: bool, most_subscriptions: int | None) -> Person:
    """Suspend a person or not, and bound their subscriptions or not. Raises :class:`NoSuchThing`."""
    before = await person(store, uid)
    if before.most_subscriptions != most_subscriptions:
        await store.people.set_most_subscriptions(uid, most_subscriptions)
    if before.suspended != suspended:
        await store.people.suspend(uid, suspended=suspended)
    return await person(store, uid)


async def forget(store: Store, uid: UserId) -> None:
    """End all that a person has and delete what is known of them. Raises :class:`NoSuchThing`."""
    if len(uid) != _ID_CHARS or not await store.people.forget(uid):
        raise _nobody()


async def _known(store: Store, uids: list[UserId]) -> tuple[Person, ...]:
    return tuple(each for each in await store.people.many(uids) if each is not None)


def _nobody() -> NoSuchThing:
    return NoSuchThing("There is no such person. They may have been forgotten.")
