"""What has not been told yet, and what never will be unless somebody steps in."""

import msgspec

from service.model import UserId
from service.store import Store
from service.store.dead_letters import DeadLetter
from service.store.people import Person

PAGE = 50
_WAITING_SHOWN = 50


class Waiting(msgspec.Struct, frozen=True):
    """How many people wait for something, and those who wait longest; how many messages were given up."""

    people: int
    longest: tuple[Person, ...]
    dead_letters: int


class Letter(msgspec.Struct, frozen=True):
    """A message that was given up: for whom, "" if they are forgotten, when (Unix s), and why.

    What is not ``readable`` can only be forgotten.
    """

    id: str
    user: UserId
    jid: str
    at_s: float
    why: str
    items: int
    readable: bool


class Letters(msgspec.Struct, frozen=True):
    """Messages that were given up, newest first; ``next`` is the cursor of those before, "" at the end."""

    items: tuple[Letter, ...]
    next: str


async def waiting(store: Store) -> Waiting:
    """Return who waits."""
    uids = await store.outbox.waiting()
    longest = await store.people.many(uids[:_WAITING_SHOWN])
    count = await store.dead_letters.count()
    return Waiting(len(uids), tuple(each for each in longest if each is not None), count)


async def letters(store: Store, before: str, count: int = PAGE) -> Letters:
    """Return what was given up before this place in the log; "" from the newest on."""
    found, following = await store.dead_letters.page(before, count)
    jids = await store.people.jids([letter.user for letter in found])
    return Letters(tuple(_letter(each, jid) for each, jid in zip(found, jids, strict=True)), following)


def _letter(letter: DeadLetter, jid: str) -> Letter:
    return Letter(letter.id, letter.user, jid, letter.at_s, letter.why, len(letter.items), letter.readable)
