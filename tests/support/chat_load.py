"""People who talk without waiting for answers, each thing in a thread of its own."""

import asyncio
from collections.abc import Sequence

from tests.support.chat import ChatClient


async def talk(person: ChatClient, threads: Sequence[str]) -> None:
    """Say one thing after another, and wait for no answer."""
    for number, thread in enumerate(threads):
        person.send("list" if number % 2 else "status", thread=thread)
        await asyncio.sleep(0.05)


def answered(person: ChatClient, threads: Sequence[str]) -> list[str]:
    """The threads that were answered, in the order of the answers; what was answered twice is there twice."""
    return [message.thread for message in person.received if message.thread in threads]
