"""What all servers do: hand out entries, and say who is to be told what."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from hashlib import blake2b
from struct import pack

from service.discovery.partial.messages import Message, Request, Send
from service.errors import BadStrategy

Sends = list[Send]


class Server(ABC):
    """One server's share of one directory. It starts empty."""

    def __init__(self, me: int, servers: int) -> None:
        """Be the server number ``me`` of so many, counted from 0."""
        self.me = me
        self.servers = servers

    @property
    @abstractmethod
    def entries(self) -> Collection[str]:
        """What it keeps, each once."""

    @abstractmethod
    def requested(self, request: Request) -> Sends:
        """Coordinate what a client asks for. Send it where :func:`lookup.coordinator` says."""

    @abstractmethod
    def told(self, message: Message, draw: float) -> Sends:
        """Take in what a server sends. Only RandomServer-x uses ``draw``."""

    def answer(self, target: int, known: Collection[str], draw: float) -> list[str]:
        """Return so many entries that the client does not know, or all there are; each is as likely as any other."""
        fresh = [entry for entry in self.entries if entry not in known] if known else list(self.entries)
        begin = int(draw * len(fresh))
        return (fresh[begin:] + fresh[:begin])[: max(target, 0)]

    def all(self, message: Message) -> Sends:
        """Return a broadcast."""
        return [Send(to, message) for to in range(self.servers)]


def to_each(servers: Iterable[int], message: Message) -> Sends:
    """Return the same message to several servers."""
    return [Send(to, message) for to in servers]


def unknown(server: Server, message: Message) -> BadStrategy:
    """Return the error for a message of another strategy; nothing has changed."""
    what, whose = type(message).__name__, type(server).__name__
    return BadStrategy(f"A {whose} was told {what}, which is another strategy's. Place the entries anew.")


def rank(entry: str, salt: float) -> bytes:
    """Return where an entry stands in the random order that a number in [0, 1) stands for."""
    return blake2b(entry.encode(), digest_size=8, salt=pack("<d", salt)).digest()
