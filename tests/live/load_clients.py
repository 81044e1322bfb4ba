"""Many online users in one process who record what they receive, and send receipts (XEP-0184).

``python -m tests.live.load_clients HOST PORT PASSWORD JOURNAL USER…`` logs all users in and prints ``ready``. Each
message with entries of ``tests.live.load_publisher`` becomes a line of the journal (:class:`Arrival`).
"""

import asyncio
import re
import sys
import time
from pathlib import Path

import msgspec

from tests.bench.receivers import Receivers

_BODY = re.compile(rb"<body>(.*?)</body>", re.DOTALL)
_TAG = re.compile(rb"\[(\d+)/(\d+)\]")
_ID = re.compile(rb"\bid='([^']*)'")


class Arrival(msgspec.Struct, frozen=True, array_like=True):
    """A message: its recipient, id, time of arrival (Unix s), and entries as (feed, number) in order."""

    user: str
    id: str
    at_s: float
    entries: list[tuple[int, int]]


class RecordingClients(Receivers):
    """Clients that write what they receive to a journal."""

    def __init__(self, host: str, port: int, password: str, journal: Path, users: list[str]) -> None:
        super().__init__(host, port, password, receipts=True, users=users)
        self._journal = journal.open("ab", buffering=0)

    def on_message(self, user: str, message: bytes) -> None:
        """Write a message to the journal."""
        at_s, body, ident = time.time(), _BODY.search(message), _ID.search(message)
        if body and ident and (tags := _TAG.findall(body[1])):
            entries = [(int(feed), int(number)) for feed, number in tags]
            self._journal.write(msgspec.json.encode(Arrival(user, ident[1].decode(), at_s, entries)) + b"\n")


if __name__ == "__main__":
    server, port_number, password, file, *names = sys.argv[1:]
    asyncio.run(RecordingClients(server, int(port_number), password, Path(file), names).run())
