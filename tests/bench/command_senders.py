"""Many users in one process who send commands to a bot at the same time.

``python -m tests.bench.command_senders HOST PORT PASSWORD BOT ROUNDS USER…`` logs all users in. In each round all of
them send a different command at the same time and wait for the answers; at the end it prints all response times in
seconds as JSON. The first round, in which users get a welcome message, is not counted.
"""

import asyncio
import json
import re
import sys
import time
from typing import Final

from tests.bench.receivers import Receivers

COMMANDS: Final = (
    *("list", "help", "status", "show #1", "quiet 22:00-07:00", "watch", "digest daily 08:00", "list news"),
    *("language de", "subscribe https://example.org/feed", "help find", "unsubscribe #7", "language en", "quite 22-7"),
)
_ANSWER = re.compile(rb"<message\b[^>]*>(?:(?!</message>).)*<body>.*?</message>", re.DOTALL)


class CommandSenders(Receivers):
    """All the clients."""

    async def talk(self, bot: str, rounds: int) -> list[float]:
        """Return the response times in seconds."""
        streams = await asyncio.gather(*map(self._login, self._users))
        took: list[float] = []
        for number in range(-1, rounds):
            asking = (
                _asked(*stream, bot, COMMANDS[(number + place) % len(COMMANDS)]) for place, stream in enumerate(streams)
            )
            answers = await asyncio.gather(*asking)
            took += answers if number >= 0 else []
        return took


async def _asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, bot: str, command: str) -> float:
    began_s = time.monotonic()
    writer.write(f"<message type='chat' to='{bot}' id='q'><body>{command}</body></message>".encode())
    pending = b""
    while not _ANSWER.search(pending):
        pending += await reader.read(65_536)
    return time.monotonic() - began_s


def main() -> None:
    """Run as described in the module's docstring."""
    host, port, password, bot, rounds, *users = sys.argv[1:]
    senders = CommandSenders(host, int(port), password, receipts=False, users=users)
    sys.stdout.write(json.dumps(asyncio.run(senders.talk(bot, int(rounds)))) + "\n")


if __name__ == "__main__":
    main()
