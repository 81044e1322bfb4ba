"""Users who send commands, each with its own thread id (RFC 6121 §5.2.5), without waiting for replies."""

import asyncio
from collections.abc import Sequence

from tests.support.chat import ChatClient


async def talk(person: ChatClient, threads: Sequence[str]) -> None:
    """Send one command for each of the thread ids ``threads``, without waiting for replies."""
    for number, thread in enumerate(threads):
        person.send("list" if number % 2 else "status", thread=thread)
        await asyncio.sleep(0.05)


def answered(person: ChatClient, threads: Sequence[str]) -> list[str]:
    """Return the thread ids of all received replies in order of arrival; a repeated reply repeats its thread id."""
    return [message.thread for message in person.received if message.thread in threads]
