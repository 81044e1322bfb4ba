"""What nodes say to their neighbours. A link keeps the order of what is sent along it."""

import msgspec

from service.location.bloom import Shape
from service.model import NodeId


class Hello(msgspec.Struct, frozen=True):
    """The first word on a link, and again when the sender has taken another shape: it knows nothing of you yet."""

    shape: Shape


class Update(msgspec.Struct, frozen=True, gc=False):
    """Bits of your row ``row`` about me: these are set, those are clear.

    ``source`` is the node whose documents made the wave; row 1 is about the sender's own documents.
    """

    shape: Shape
    source: NodeId
    row: int
    sets: int
    clears: int


class Ignore(msgspec.Struct, frozen=True, gc=False):
    """I hear of this source by a way that is not longer: send me no more of it for this row or a deeper one."""

    source: NodeId
    row: int


class Lost(msgspec.Struct, frozen=True):
    """I hear of these sources no more: do not wait for me, and do not ignore them for me."""

    sources: tuple[NodeId, ...]


class Want(msgspec.Struct, frozen=True):
    """Towards the source, hop by hop: tell everybody all you have once more."""

    source: NodeId


Message = Hello | Update | Ignore | Lost | Want


class Send(msgspec.Struct, frozen=True, gc=False):
    """What is to be done: this message goes to this neighbour."""

    to: NodeId
    message: Message
