"""What clients ask of a server, and what servers tell each other."""

from typing import TypeAlias

import msgspec


class Place(msgspec.Struct, frozen=True, tag=True):
    """From now on the directory has these entries, and no others."""

    entries: tuple[str, ...]


class Add(msgspec.Struct, frozen=True, tag=True):
    """The directory has one entry more."""

    entry: str


class Delete(msgspec.Struct, frozen=True, tag=True):
    """The directory has this entry no more."""

    entry: str


Request: TypeAlias = Place | Add | Delete


class Keep(msgspec.Struct, frozen=True, tag=True):
    """Forget all there was; of these entries keep those that are yours."""

    entries: tuple[str, ...]


class Store(msgspec.Struct, frozen=True, tag=True):
    """There is a new entry: keep it, if it is one of yours."""

    entry: str


class Drop(msgspec.Struct, frozen=True, tag=True):
    """An entry is gone."""

    entry: str


class KeepAt(msgspec.Struct, frozen=True, tag=True):
    """Round-Robin: forget all there was; keep these, at these positions of the sequence."""

    entries: tuple[tuple[int, str], ...]


class StoreAt(msgspec.Struct, frozen=True, tag=True):
    """Round-Robin: keep this entry at this position."""

    position: int
    entry: str


class Hole(msgspec.Struct, frozen=True, tag=True):
    """Round-Robin, to the coordinator: nothing is at this position any more."""

    position: int


class Fetch(msgspec.Struct, frozen=True, tag=True):
    """Round-Robin: what you have at the first position goes to ``hole``."""

    first: int
    hole: int


Message: TypeAlias = Keep | Store | Drop | KeepAt | StoreAt | Hole | Fetch


class Send(msgspec.Struct, frozen=True):
    """What a server wants told to another, or to itself."""

    to: int
    message: Message
