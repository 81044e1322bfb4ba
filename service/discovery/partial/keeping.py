"""What most servers do with what they are told: keep it. Whom to tell is what strategies differ in."""

from collections.abc import Collection

from service.discovery.partial.messages import Drop, Keep, Message, Store
from service.discovery.partial.server import Sends, Server, unknown


class KeepingServer(Server):
    """Keeps every entry that it is told of, until it is told that it is gone."""

    def __init__(self, me: int, servers: int) -> None:
        super().__init__(me, servers)
        self._kept: dict[str, None] = {}

    @property
    def entries(self) -> Collection[str]:  # noqa: D102 - the base class says it
        return self._kept.keys()

    def told(self, message: Message, draw: float) -> Sends:  # noqa: ARG002, D102 - same
        match message:
            case Keep(entries):
                self._kept = dict.fromkeys(entries)
            case Store(entry):
                self._kept[entry] = None
            case Drop(entry):
                self._kept.pop(entry, None)
            case _:
                raise unknown(self, message)
        return []
