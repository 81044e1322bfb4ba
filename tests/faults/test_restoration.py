"""A backup that is made under traffic is restored after all data was deleted: the guarantees hold."""

import asyncio
import re
import shutil
import sys
import time
from pathlib import Path

import pytest

from tests.support.delivery_audit import Verdict
from tests.support.product_process import Product
from tests.support.product_traffic import Traffic, entries_coming, traffic, until_told_something_new
from tests.support.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.slow]

_TAG = re.compile(r"\[(\d+)/(\d+)\]")
_QUESTIONS = ("list", "settings", "watches")


async def _command(product: Product, *words: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "service.cli", *words, "--state", str(product.directory)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    return f"{said.decode()}(status {process.returncode})"


def _unexplained(live: Traffic, verdict: Verdict, backup_began_s: float, stopped_s: float) -> dict[str, list[str]]:
    """Return the breaches, without entries that were shown again because they were first shown after the backup."""
    again = set()
    for person in live.people:
        first: dict[tuple[str, str], float] = {}
        for message in person.received:
            for tag in _TAG.findall(message.body):
                first.setdefault(tag, message.at_s)
        again |= {
            f"{person.jid} was shown ({feed}, {number}) again"
            for (feed, number), at_s in first.items()
            if backup_began_s <= at_s <= stopped_s
        }
    left = {
        guarantee: [each for each in sentences if each.partition(" in message")[0] not in again]
        for guarantee, sentences in verdict.broken.items()
    }
    return {guarantee: sentences for guarantee, sentences in left.items() if sentences}


@pytest.mark.timeout(400)
async def test_a_restored_backup_loses_repeats_and_misdirects_nothing_from_before_it(tmp_path: Path) -> None:
    file = tmp_path / "coronet.backup"
    async with traffic(tmp_path) as live:
        product, alice = live.product, live.people[0]
        await live.publish_once()
        await live.subscribe_all()
        await alice.say("timezone Europe/Berlin")
        await alice.say("watch unheard-of words")
        async with entries_coming(live):
            await until_told_something_new(live)
            assert "is in use by another" in await _command(product, "restore", str(file))
            before = {question: await alice.say(question) for question in _QUESTIONS}
            backup_began_s = time.time()
            assert "Backed up" in (said := await _command(product, "backup", str(file))), said
            assert file.stat().st_mode & 0o077 == 0, "it contains addresses"
            await until_told_something_new(live)
            await product.stop()
            stopped_s = time.time()
            shutil.rmtree(product.directory / "redis")
            assert "A rolling restart is possible" in (said := await _command(product, "upgrade", "--check")), said
            assert "Restored the backup" in (said := await _command(product, "restore", str(file))), said
            await product.start()
            await until_told_something_new(live)
            await live.last_one_leaves_a_feed()
            await until_told_something_new(live)
        verdict = await live.settle()
        assert _unexplained(live, verdict, backup_began_s, stopped_s) == {}, str(verdict)
        assert verdict.owed > 0

        async def answers_as_before() -> bool:
            return all([await alice.say(question) == text for question, text in before.items()])

        await until(answers_as_before, "subscriptions, settings and saved searches are as before")
