"""The same done to many channels, as many as one request has the time for."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import Final, Literal, get_args

import msgspec

from service.errors import CoronetError, StoreUnavailable, UserError
from service.model import ChannelId
from service.store import Store

Action = Literal["pause", "resume", "poll", "list", "unlist", "tag", "untag", "remove"]
ACTIONS: Final[tuple[Action, ...]] = get_args(Action)

MOST_TAGS: Final = 20
LONGEST_TAG: Final = 40
UNTIL_RESUMED_S: Final = 10 * 365 * 86_400.0

_WITHIN_S: Final = 20.0
_AT_ONCE: Final = 16
_PROBLEMS_TOLD: Final = 20


class Done(msgspec.Struct, frozen=True):
    """How many channels it was done to, and how many are left for lack of time; ``problems`` are of single channels."""

    done: int
    left: int
    problems: tuple[str, ...]


def tag_of(text: str) -> str:
    """Return a word to file channels under, as it is kept. Raises :class:`UserError`."""
    tag = text.strip().casefold()
    if not tag or len(tag) > LONGEST_TAG or len(tag.split()) > 1 or not tag.isprintable():
        raise UserError(f"A tag is one word of at most {LONGEST_TAG} characters, without spaces.")
    return tag


def tags_of(text: str) -> list[str]:
    """Return all tags in a text, in order. Raises :class:`UserError`."""
    tags = sorted({tag_of(word) for word in text.split()})
    if len(tags) > MOST_TAGS:
        raise UserError(f"A channel has at most {MOST_TAGS} tags.")
    return tags


async def act(store: Store, action: Action, ids: Sequence[ChannelId], *, tag: str = "", for_s: float = 0.0) -> Done:
    """Do it to these channels. ``for_s`` is how long to pause them, 0 until somebody resumes them.

    Raises :class:`UserError` for a ``tag`` that is none, and our own errors when nothing can be done.
    """
    if action in {"tag", "untag"}:
        tag = tag_of(tag)
    waiting, work = iter(ids), _Work(store, action, tag, for_s or UNTIL_RESUMED_S)
    until_s = time.monotonic() + _WITHIN_S
    await asyncio.gather(*(work.through(waiting, until_s) for _ in range(_AT_ONCE)))
    left = len(ids) - work.done - work.failed
    return Done(work.done, left, tuple(work.problems))


class _Work:
    """One action, and how it went so far."""

    def __init__(self, store: Store, action: Action, tag: str, for_s: float) -> None:
        self.done = self.failed = 0
        self.problems: list[str] = []
        self._store = store
        self._action = action
        self._tag = tag
        self._for_s = for_s

    async def through(self, waiting: Iterator[ChannelId], until_s: float) -> None:
        """Do it to one channel after the other, as long as there is time."""
        while time.monotonic() < until_s and (cid := next(waiting, None)) is not None:
            try:
                await self._do(cid)
            except StoreUnavailable:
                raise
            except CoronetError as error:
                self.failed += 1
                if len(self.problems) < _PROBLEMS_TOLD:
                    self.problems.append(f"{cid[:8]}: {error}")
            else:
                self.done += 1

    async def _do(self, cid: ChannelId) -> None:
        store = self._store
        match self._action:
            case "pause":
                await store.remarks.pause([cid], self._for_s)
            case "resume":
                await store.remarks.pause([cid], 0)
            case "poll":
                await store.requests.poll_now(cid)
            case "list" | "unlist":
                await store.channels.set_listed(cid, listed=self._action == "list")
            case "tag" | "untag":
                await self._retag(cid)
            case "remove":
                await store.remove_channel(cid)

    async def _retag(self, cid: ChannelId) -> None:
        (found,) = await self._store.remarks.read([cid])
        if found is None:
            return
        others = [tag for tag in found.tags if tag != self._tag]
        tags = [*others, self._tag] if self._action == "tag" else others
        if len(tags) > MOST_TAGS:
            raise UserError(f"It has {MOST_TAGS} tags already. Take one away first.")
        await self._store.remarks.set_tags([(cid, sorted(tags))])
