"""What nodes send each other for their directories: shares, and what was asked for. One letter takes all of a turn."""

import msgspec

from service.discovery.partial.messages import Keep, KeepAt, Message
from service.discovery.partial.strategies import Strategy


class Term(msgspec.Struct, frozen=True, order=True):
    """Since when a directory's servers are what they are: the ring's version, and how often it was placed on it."""

    ring: int
    placed: int


class Told(msgspec.Struct, frozen=True, tag=True):
    """Of one directory, for one server; without messages a sign of life."""

    pair: str
    term: Term
    strategy: Strategy
    messages: tuple[Message, ...] = ()

    @property
    def begins(self) -> bool:
        """Whether a server can begin with this, because it says all that it has to keep."""
        return bool(self.messages) and isinstance(self.messages[0], Keep | KeepAt)


class Asked(msgspec.Struct, frozen=True, tag=True):
    """To a directory's coordinator: how often this node was asked for it since the last time, and for how many."""

    pair: str
    lookups: int
    target: int


Letter = list[Told | Asked]


def encode(letter: Letter) -> bytes:
    """Return a letter as bytes."""
    return msgspec.msgpack.encode(letter)


def decode(payload: bytes) -> Letter:
    """Return a letter; one of another version is empty: its sender repeats itself."""
    try:
        return msgspec.msgpack.decode(payload, type=Letter)
    except msgspec.MsgspecError:
        return []
