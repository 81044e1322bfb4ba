"""The doctor, on real servers and on ones that are away."""

import resource
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest

from service import settings
from service.clock import SystemClock
from service.embedded.prosody import PrivateProsody
from service.errors import CoronetError
from service.net.health import serve_health
from service.operations.doctor import (
    Finding,
    as_text,
    bots_silent_s,
    check_console,
    check_file_limit,
    check_parser,
    check_store,
    check_xmpp,
    examine,
    judged,
    server,
)
from service.store import connect
from tests.support.bot import serving
from tests.support.waiting import until


class SteppingClock(SystemClock):
    """Whatever is timed takes as long."""

    def __init__(self, step_s: float) -> None:
        self._times_s = count(0.0, step_s)

    def monotonic_s(self) -> float:
        return next(self._times_s)


class EpochClock(SystemClock):
    """A machine that believes it is 1970."""

    def wall_s(self) -> float:
        return 0.0


def component(prosody: PrivateProsody, password: str) -> settings.Settings:
    return settings.load(
        {},
        xmpp_host="127.0.0.1",
        xmpp_port=prosody.component_port,
        xmpp_jid=prosody.component_jid,
        xmpp_password=password,
    )


def client(prosody: PrivateProsody, ca_file: str) -> settings.Settings:
    return settings.load(
        {},
        xmpp_login="client",
        xmpp_host="127.0.0.1",
        xmpp_port=prosody.c2s_port,
        xmpp_jid="alice@localhost",
        xmpp_ca_file=ca_file,
    )


async def test_a_private_redis_is_fine_but_nobody_works_yet(clean_redis: str) -> None:
    findings = await check_store(settings.load({}, redis_url=clean_redis), SteppingClock(0.001))
    assert [finding.about for finding in findings if not finding.ok] == ["Workers"]


async def test_a_redis_that_lost_its_data_is_noticed(clean_redis: str, tmp_path: Path) -> None:
    file = tmp_path / "identity.json"
    file.write_text('{"fleet": "ours", "counter": 100}')
    effective = settings.load({}, redis_url=clean_redis, store_identity_file=str(file))
    (finding,) = await check_store(effective, SystemClock())
    assert (finding.about, finding.ok) == ("Store", False)
    assert "The store is empty" in finding.seen


async def test_a_slow_redis_is_noticed(clean_redis: str) -> None:
    findings = await check_store(settings.load({}, redis_url=clean_redis), SteppingClock(0.02))
    (latency,) = (finding for finding in findings if finding.about == "Redis latency")
    assert (latency.ok, latency.seen) == (False, "20.00 ms")


async def test_a_wrong_clock_is_noticed(clean_redis: str) -> None:
    findings = await check_store(settings.load({}, redis_url=clean_redis), EpochClock())
    assert "Clocks" in [finding.about for finding in findings if not finding.ok]


async def test_a_redis_that_is_away_is_one_finding_with_advice(tmp_path: Path) -> None:
    (finding,) = await check_store(settings.load({}, redis_url=f"unix://{tmp_path}/none.sock"), SystemClock())
    assert (finding.about, finding.ok) == ("Redis", False)
    assert "--state" in finding.advice


@pytest.mark.parametrize(
    ("field", "value", "about"),
    [
        ("redis_version", "5.0.7", "Redis version"),
        ("aof_enabled", "0", "Redis persistence"),
        ("aof_last_write_status", "err", "Redis persistence"),
        ("unexpected_error_replies", "40", "Redis replay"),
        ("maxmemory_policy", "allkeys-lru", "Redis memory"),
    ],
)
def test_what_could_lose_subscriptions_is_named(field: str, value: str, about: str) -> None:
    healthy = {"redis_version": "7.0.15", "aof_enabled": "1", "aof_last_write_status": "ok"}
    assert all(finding.ok for finding in server(healthy))
    assert [finding.about for finding in server(healthy | {field: value}) if not finding.ok] == [about]


async def test_the_component_s_secret_is_tried(prosody: PrivateProsody) -> None:
    (fine,) = await check_xmpp(component(prosody, prosody.component_secret), {})
    assert fine.ok
    (refused,) = await check_xmpp(component(prosody, "wrong"), {})
    assert (refused.ok, refused.seen.endswith("refuses the secret")) == (False, True)
    assert prosody.component_jid in refused.advice


async def test_each_address_is_looked_at_and_what_is_wrong_with_which_is_said(tmp_path: Path) -> None:
    async with PrivateProsody(tmp_path / "prosody", shards=1) as server:
        (shard,) = server.shards
        told = component(server, server.component_secret).model_copy(
            update={"xmpp_shards": (shard, "coronet@b9.feeds.localhost")}
        )
        one, two, none = await check_xmpp(told, {})
        assert (one.ok, two.ok, none.ok) == (True, True, False)
        assert shard in two.seen
        assert none.seen.endswith("the server has no such component")
        assert "b9.feeds.localhost" in none.advice
        one, two, _ = await check_xmpp(told, {told.xmpp_jid: 3.0, shard: 300.0})
        assert (one.ok, one.seen.endswith("a bot is connected")) == (True, True)
        assert (two.ok, two.seen.endswith("no bot is connected")) == (False, True)
        assert "logs" in two.advice


async def test_two_addresses_of_one_component_are_named(prosody: PrivateProsody) -> None:
    told = component(prosody, prosody.component_secret).model_copy(update={"xmpp_shards": (prosody.bot_jid,)})
    *_, shared = await check_xmpp(told, None)
    assert (shared.ok, shared.seen) == (False, f"several at {prosody.component_jid}")


async def test_no_bot_that_is_connected_loses_its_connection(
    clean_redis: str, prosody: PrivateProsody, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our servers end the older one of two connections of a component."""
    monkeypatch.setattr("bots.inbound.intake.NOTE_EVERY_S", 0.05)
    told = component(prosody, prosody.component_secret).model_copy(update={"redis_url": clean_redis})
    store = await connect(told)
    async with serving(told, store) as bot:
        await until(lambda: store.inbound_log.listened(told.xmpp_jid), "it is noted")
        session = bot.connection._session
        silent_s = await bots_silent_s(told, SystemClock())
        (connected,) = await check_xmpp(told, silent_s)
        (unsure,) = await check_xmpp(told, None)
        await bot.connection._ping()
        assert bot.connection._session == session
    await store.close()
    assert silent_s is not None
    assert silent_s[told.xmpp_jid] < 30.0
    assert connected.seen.endswith("a bot is connected")
    assert (unsure.ok, "not tried" in unsure.seen) == (True, True)


async def test_whom_nobody_can_ask_has_no_silence(tmp_path: Path) -> None:
    assert await bots_silent_s(settings.load({}, redis_url=f"unix://{tmp_path}/none.sock"), SystemClock()) is None


async def test_more_addresses_than_an_account_has_are_no_use(prosody: PrivateProsody) -> None:
    told = client(prosody, str(prosody.ca_file)).model_copy(update={"xmpp_shards": ("bob@localhost",)})
    login, shards = await check_xmpp(told, {})
    assert (login.ok, shards.ok, "components" in shards.advice) == (True, False, True)


async def test_a_client_s_server_must_have_a_trusted_certificate(prosody: PrivateProsody) -> None:
    (fine,) = await check_xmpp(client(prosody, str(prosody.ca_file)), {})
    assert fine.ok
    (distrusted,) = await check_xmpp(client(prosody, ""), {})
    assert (distrusted.ok, "CERTIFICATE_VERIFY_FAILED" in distrusted.seen) == (False, True)


async def test_a_port_that_speaks_no_xmpp_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.operations.doctor._XMPP_WITHIN_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        (finding,) = await check_xmpp(settings.load({}, xmpp_host="127.0.0.1", xmpp_port=port), {})
    assert (finding.ok, "no answer" in finding.seen) == (False, True)


async def test_a_console_that_is_away_is_noticed() -> None:
    (finding,) = await check_console(settings.load({}, console_port=0))
    assert not finding.ok


def test_few_files_are_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (128, 4096))
    assert not check_file_limit().ok
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert check_file_limit().ok


async def test_what_keeps_the_parser_from_files_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    (finding,) = await check_parser()
    assert finding.ok
    assert "seccomp" in finding.seen
    monkeypatch.setattr(sys, "executable", "/nonexistent")
    (finding,) = await check_parser()
    assert not finding.ok


def test_advice_stands_only_below_what_is_bad() -> None:
    good, bad = Finding("A", ok=True, seen="fine", advice="nothing"), Finding("B", ok=False, seen="ill", advice="rest")
    assert [line.split() for line in as_text([good, bad]).splitlines()] == [
        ["ok", "A", "fine"],
        ["BAD", "B", "ill"],
        ["→", "rest"],
    ]


@asynccontextmanager
async def announced(ours: settings.Settings, why_not: str) -> AsyncIterator[None]:
    """The health of a bot: it is ready, or says why not."""

    async def ready() -> None:
        if why_not:
            raise CoronetError(why_not)

    store = await connect(ours)
    health = await serve_health("127.0.0.1", 0, ready)
    try:
        await store.bot_endpoints.announce(f"{health.url}/metrics")
        yield
    finally:
        await health.close()
        await store.close()


async def test_a_bot_that_cannot_log_in_says_why_and_has_its_secret_tried(
    prosody: PrivateProsody, clean_redis: str
) -> None:
    wrong = component(prosody, "wrong").model_copy(update={"redis_url": clean_redis})
    async with announced(wrong, "There is no session."):
        found = {finding.about: finding for finding in await examine(wrong)}
    assert found["Bots"].seen == "0 ready, 1 not: There is no session."
    assert found["XMPP login"].seen.endswith("refuses the secret")


async def test_a_bot_that_does_not_answer_is_named(prosody: PrivateProsody, clean_redis: str) -> None:
    ours = component(prosody, prosody.component_secret).model_copy(update={"redis_url": clean_redis})
    async with announced(ours, ""):
        pass
    found = {finding.about: finding for finding in await examine(ours)}
    assert (found["Bots"].ok, found["Bots"].seen) == (False, "0 ready, 1 not: one does not answer")


async def test_without_a_bot_nobody_is_told() -> None:
    finding = judged([])
    assert (finding.ok, "coronet bot" in finding.advice) == (False, True)
