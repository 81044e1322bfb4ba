"""A directory's entries: a content name with its pairs in one text, so that a name that changes is another entry."""

from collections.abc import Iterable

import msgspec


class Listed(msgspec.Struct, frozen=True):
    """A name, its version, and the keys of all its pairs."""

    name: str
    version: int
    pairs: frozenset[str]


def entry(name: str, version: int, pairs: Iterable[str]) -> str:
    """Return a name as a directory's entry; the same name, version and pairs always give the same."""
    return msgspec.json.encode((name, version, sorted(pairs))).decode()


def listed(text: str) -> Listed:
    """Return what an entry stands for."""
    name, version, pairs = msgspec.json.decode(text, type=tuple[str, int, list[str]])
    return Listed(name, version, frozenset(pairs))
