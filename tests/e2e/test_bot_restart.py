"""The only process of an account is killed while it answers, and started again: nothing is lost or duplicated."""

import asyncio
import contextlib
import secrets
from pathlib import Path

import pytest

from service.settings import Settings
from tests.support.bot_in_process import reach
from tests.support.bot_process import bots
from tests.support.chat import ChatClient
from tests.support.chat_load import answered, talk
from tests.support.waiting import until_so

pytestmark = pytest.mark.e2e

COMMANDS = 10
RESTART_TIMEOUT_S = 60.0


@pytest.mark.timeout(180)
@pytest.mark.parametrize("people", [3], indirect=True)
async def test_commands_before_and_after_a_kill_are_answered_once_and_in_order(
    settings: Settings, people: list[ChatClient], tmp_path: Path
) -> None:
    threads = {person.jid: [secrets.token_hex(8) for _ in range(3 * COMMANDS)] for person in people}
    async with bots(settings, tmp_path, 1) as running:
        await asyncio.gather(*(reach(person) for person in people))
        talking = [asyncio.create_task(talk(person, threads[person.jid][:COMMANDS])) for person in people]
        first = people[0]
        await until_so(lambda: len(answered(first, threads[first.jid])) > COMMANDS // 3, "some commands are answered")
        await running[0].kill()
        await asyncio.gather(*talking)
    await asyncio.gather(*(talk(person, threads[person.jid][COMMANDS : 2 * COMMANDS]) for person in people))
    async with bots(settings, tmp_path, 1):
        log = (
            tmp_path / "bot-0.log"
        )  # of both processes: new commands reach the second one at once, but wait for their turn
        await until_so(
            lambda: log.read_text().count("xmpp session") == 2,
            "the second process has a session",
            within_s=RESTART_TIMEOUT_S,
        )
        await asyncio.gather(*(talk(person, threads[person.jid][2 * COMMANDS :]) for person in people))

        def is_everything_answered() -> bool:
            return all(set(answered(person, threads[person.jid])) == set(threads[person.jid]) for person in people)

        with contextlib.suppress(AssertionError):  # the assertions below say what is missing
            await until_so(is_everything_answered, "all commands are answered", within_s=RESTART_TIMEOUT_S)
        for person in people:
            assert await person.say("status"), "the service continues"
    for person in people:
        assert answered(person, threads[person.jid]) == threads[person.jid], "each command once and in order"
        ids = [message.id for message in person.received]
        assert len(ids) == len(set(ids)), "no message id is received twice"
