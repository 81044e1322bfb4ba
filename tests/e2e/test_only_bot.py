"""An account's only bot is killed while it answers, and comes back: nothing is lost or comes twice."""

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
BACK_WITHIN_S = 60.0


@pytest.mark.timeout(180)
@pytest.mark.parametrize("people", [3], indirect=True)
async def test_what_is_said_to_the_only_bot_before_and_after_it_is_killed_is_answered_once_and_in_order(
    settings: Settings, people: list[ChatClient], tmp_path: Path
) -> None:
    said = {person.jid: [secrets.token_hex(8) for _ in range(3 * COMMANDS)] for person in people}
    async with bots(settings, tmp_path, 1) as running:
        await asyncio.gather(*(reach(person) for person in people))
        talking = [asyncio.create_task(talk(person, said[person.jid][:COMMANDS])) for person in people]
        first = people[0]
        await until_so(lambda: len(answered(first, said[first.jid])) > COMMANDS // 3, "in the middle of it")
        await running[0].kill()
        await asyncio.gather(*talking)
    await asyncio.gather(*(talk(person, said[person.jid][COMMANDS : 2 * COMMANDS]) for person in people))
    async with bots(settings, tmp_path, 1):
        log = tmp_path / "bot-0.log"  # of both: what is said now comes to the new one at once, but has to wait its turn
        await until_so(lambda: log.read_text().count("xmpp session") == 2, "it is back", within_s=BACK_WITHIN_S)
        await asyncio.gather(*(talk(person, said[person.jid][2 * COMMANDS :]) for person in people))

        def all_is_answered() -> bool:
            return all(set(answered(person, said[person.jid])) == set(said[person.jid]) for person in people)

        with contextlib.suppress(AssertionError):  # what is missing is said below
            await until_so(all_is_answered, "all is answered", within_s=BACK_WITHIN_S)
        for person in people:
            assert await person.say("status"), "and goes on"
    for person in people:
        assert answered(person, said[person.jid]) == said[person.jid], "each command, once, in order"
        ids = [message.id for message in person.received]
        assert len(ids) == len(set(ids)), "no message id came twice"
