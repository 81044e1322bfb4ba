"""Users who send commands without waiting for answers, each in its own thread."""

import asyncio
from collections.abc import Sequence

from tests.support.chat import ChatClient


async def talk(person: ChatClient, threads: Sequence[str]) -> None:
    """Send commands in sequence without waiting for answers."""
    for number, thread in enumerate(threads):
        person.send("list" if number % 2 else "status", thread=thread)
        await asyncio.sleep(0.05)


def answered(person: ChatClient, threads: Sequence[str]) -> list[str]:
    """Return the threads of all answers in order, with duplicates."""
    return [message.thread for message in person.received if message.thread in threads]
