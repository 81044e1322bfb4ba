"""``coronet doctor`` with real and with unreachable servers."""

import asyncio
import resource
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from itertools import count
from pathlib import Path

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import unused_port
from pydantic import SecretStr

from service import settings
from service.clock import SystemClock
from service.corona.optimizer.poll_explanation import BindingConstraint
from service.embedded.private_prosody import PrivateProsody
from service.errors import CoronetError
from service.feeds.canonical_urls import SHARED, protected_url
from service.feeds.credentials import Credential
from service.net.credential_vault import CredentialVault
from service.net.health_endpoints import serve_health
from service.observability.metrics import OWNED_CHANNELS, GaugeShare
from service.operations.doctor.all_checks import check_console, check_file_limit, check_parser, examine
from service.operations.doctor.bot_check import judge_bots
from service.operations.doctor.polling_checks import check_polling, judge_polling
from service.operations.doctor.public_url_check import check_public_url
from service.operations.doctor.redis_checks import check_credentials, check_store, judge_redis
from service.operations.doctor.report import EXIT_CODES, CheckResult, as_json, as_text, worst_severity
from service.operations.doctor.sasl_login import SaslLogin
from service.operations.doctor.xmpp_login_check import check_xmpp, check_xmpp_logins, connected_addresses
from service.store import Store, open_store, opened
from tests.support.bot_in_process import serving
from tests.support.channels import make_channel
from tests.support.http_server import serving_locally
from tests.support.waiting import until


class SteppingClock(SystemClock):
    """A monotonic clock that advances by ``step_s`` at each reading."""

    def __init__(self, step_s: float) -> None:
        self._times_s = count(0.0, step_s)

    def monotonic_s(self) -> float:
        return next(self._times_s)


class EpochClock(SystemClock):
    """A wall clock that is stuck at the Unix epoch."""

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


async def test_a_new_private_redis_passes_all_checks_except_for_workers(clean_redis: str) -> None:
    results = await check_store(settings.load({}, redis_url=clean_redis), SteppingClock(0.001))
    assert [result.name for result in results if not result.ok] == ["Workers"]


def test_the_results_for_programs_have_ids_and_severities() -> None:
    results = [CheckResult("Redis version", ok=True, details="7.0"), CheckResult("Clocks", ok=False, details="9 s")]
    assert worst_severity(results) == "warning"
    assert msgspec.json.decode(as_json(results))["checks"] == [
        {"id": "redis-version", "severity": "ok", "details": "7.0", "advice": ""},
        {"id": "clocks", "severity": "warning", "details": "9 s", "advice": ""},
    ]
    results.append(CheckResult("Workers", ok=False, details="0 in the ring", advice="Start one."))
    assert (worst_severity(results), worst_severity([])) == ("error", "ok")
    assert list(EXIT_CODES.values()) == [0, 1, 3]


async def test_a_redis_that_lost_its_data_is_reported(clean_redis: str, tmp_path: Path) -> None:
    file = tmp_path / "identity.json"
    file.write_text('{"fleet": "ours", "counter": 100}')
    effective = settings.load({}, redis_url=clean_redis, store_identity_file=str(file))
    (result,) = await check_store(effective)
    assert (result.name, result.ok) == ("Store", False)
    assert "The store is empty" in result.details


async def test_a_slow_redis_is_reported(clean_redis: str) -> None:
    results = await check_store(settings.load({}, redis_url=clean_redis), SteppingClock(0.02))
    (latency,) = (result for result in results if result.name == "Redis latency")
    assert (latency.ok, latency.details) == (False, "20.00 ms")


async def test_a_wrong_clock_is_reported(clean_redis: str) -> None:
    results = await check_store(settings.load({}, redis_url=clean_redis), EpochClock())
    assert "Clocks" in [result.name for result in results if not result.ok]


@pytest.mark.parametrize(
    ("key", "ok", "details"),
    [
        ("a" * 32, True, "can be decrypted"),
        (f"{'b' * 32} {'a' * 32}", True, "can be decrypted"),
        ("b" * 32, False, "1 of 1 stored logins cannot be decrypted"),
        ("", False, "no key, 1 stored"),
    ],
)
async def test_a_missing_or_wrong_key_for_logins_is_reported(store: Store, key: str, details: str, *, ok: bool) -> None:
    channel = await make_channel(store, protected_url("https://example.org/feed", SHARED))
    sealed = CredentialVault(settings.load({}, credentials_key="a" * 32)).seal(Credential("X-Key", "k"), channel.url)
    await store.credentials.put(channel.id, sealed)
    result = await check_credentials(store, settings.load({}, credentials_key=key))
    assert (result.ok, result.details) == (ok, details)
    await store.remove_channel(channel.id)
    assert (await check_credentials(store, settings.load({}, credentials_key=key))).ok


async def test_an_unreachable_redis_gives_one_result_with_advice(tmp_path: Path) -> None:
    (result,) = await check_store(settings.load({}, redis_url=f"unix://{tmp_path}/none.sock"))
    assert (result.name, result.ok) == ("Redis", False)
    assert "redis_url" in result.advice


@pytest.mark.parametrize(
    ("field", "value", "name"),
    [
        ("redis_version", "5.0.7", "Redis version"),
        ("aof_enabled", "0", "Redis persistence"),
        ("aof_last_write_status", "err", "Redis persistence"),
        ("unexpected_error_replies", "40", "Redis replay"),
        ("maxmemory_policy", "allkeys-lru", "Redis memory"),
    ],
)
def test_a_redis_configuration_that_can_lose_subscriptions_is_reported(field: str, value: str, name: str) -> None:
    healthy = {"redis_version": "7.0.15", "aof_enabled": "1", "aof_last_write_status": "ok"}
    assert all(result.ok for result in judge_redis(healthy))
    assert [result.name for result in judge_redis(healthy | {field: value}) if not result.ok] == [name]


async def test_the_secret_of_a_component_is_checked(prosody: PrivateProsody) -> None:
    (fine,) = await check_xmpp(component(prosody, prosody.component_secret), set())
    assert fine.ok
    (refused,) = await check_xmpp(component(prosody, "wrong"), set())
    assert (refused.ok, refused.details.endswith("rejects the secret")) == (False, True)
    assert prosody.component_jid in refused.advice


async def test_each_xmpp_address_is_checked(tmp_path: Path) -> None:
    async with PrivateProsody(tmp_path / "prosody", shards=1) as server:
        (shard,) = server.shards
        configured = component(server, server.component_secret).model_copy(
            update={"xmpp_shards": (shard, "coronet@b9.feeds.localhost")}
        )
        one, two, none = await check_xmpp(configured, set())
        assert (one.ok, two.ok, none.ok) == (True, True, False)
        assert shard in two.details
        assert none.details.endswith("the server has no such component")
        assert "b9.feeds.localhost" in none.advice
        one, two, _ = await check_xmpp(configured, {configured.xmpp_jid})
        assert (one.ok, one.details.endswith("a bot is connected")) == (True, True)
        assert (two.ok, two.details.endswith("no bot is connected")) == (False, True)
        assert "logs" in two.advice


async def test_two_addresses_of_one_component_are_reported(prosody: PrivateProsody) -> None:
    configured = component(prosody, prosody.component_secret).model_copy(update={"xmpp_shards": (prosody.bot_jid,)})
    *_, shared = await check_xmpp(configured, None)
    assert (shared.ok, shared.details) == (False, f"several at {prosody.component_jid}")


async def test_the_check_does_not_end_the_session_of_a_connected_bot(
    clean_redis: str, prosody: PrivateProsody, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The XMPP servers under test close the older one of two connections of a component."""
    monkeypatch.setattr("bots.inbound.catch_up.CHECKPOINT_INTERVAL_S", 0.05)
    configured = component(prosody, prosody.component_secret).model_copy(update={"redis_url": clean_redis})
    store = open_store(configured)
    async with serving(configured, store) as bot:
        await until(lambda: store.inbound_log.caught_up_until_s(configured.xmpp_jid), "it is noted")
        session = bot.connection._session_number
        async with announced_bot(configured, ""):
            known = await connected_addresses(configured)
            (connected,) = await check_xmpp(configured, known)
        unresponsive = await connected_addresses(configured)
        (unsure,) = await check_xmpp(configured, unresponsive)
        await bot.connection._ping()
        assert bot.connection._session_number == session
    await store.close()
    assert (known, unresponsive) == ({configured.xmpp_jid}, None)
    assert connected.details.endswith("a bot is connected")
    assert (unsure.ok, "not tried" in unsure.details) == (True, True)


async def test_a_bot_that_has_stopped_is_not_reported_as_connected(clean_redis: str, prosody: PrivateProsody) -> None:
    configured = component(prosody, prosody.component_secret).model_copy(update={"redis_url": clean_redis})
    async with opened(configured) as store:
        await store.inbound_log.record_caught_up(configured.xmpp_jid, time.time())
        await store.bot_endpoints.announce("http://127.0.0.1:1/metrics")
        assert await connected_addresses(configured) is None
        await store.bot_endpoints.withdraw("http://127.0.0.1:1/metrics")
    assert await connected_addresses(configured) == set()


async def test_without_redis_it_is_unknown_whether_bots_are_connected(tmp_path: Path) -> None:
    assert await connected_addresses(settings.load({}, redis_url=f"unix://{tmp_path}/none.sock")) is None


async def test_shards_with_a_client_account_are_reported(prosody: PrivateProsody) -> None:
    configured = client(prosody, str(prosody.ca_file)).model_copy(update={"xmpp_shards": ("bob@localhost",)})
    login, shards = await check_xmpp(configured, set())
    assert (login.name, shards.ok, "components" in shards.advice) == ("XMPP login", False, True)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-1", "PLAIN"])
async def test_the_password_of_an_account_is_checked(
    prosody: PrivateProsody, mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "service.operations.doctor.xmpp_login_check.SaslLogin", lambda _, *rest: SaslLogin({mechanism}, *rest)
    )
    await prosody.register("doctor", "pä,=ss")
    configured = client(prosody, str(prosody.ca_file)).model_copy(update={"xmpp_jid": "doctor@localhost"})
    fine, refused = [
        (await check_xmpp(configured.model_copy(update={"xmpp_password": SecretStr(each)}), set()))[0]
        for each in ("pä,=ss", "wrong")
    ]
    assert (fine.ok, fine.details.endswith("the password is correct")) == (True, True)
    assert (refused.ok, refused.details.endswith("the password is refused")) == (False, True)
    assert "prosodyctl passwd doctor@localhost" in refused.advice


async def test_the_check_of_a_password_does_not_disturb_a_connected_bot(
    clean_redis: str, prosody: PrivateProsody
) -> None:
    await prosody.register("doctor", "pw")
    update = {"xmpp_jid": "doctor@localhost", "xmpp_password": SecretStr("pw"), "redis_url": clean_redis}
    configured = client(prosody, str(prosody.ca_file)).model_copy(update=update)
    store = open_store(configured)
    async with serving(configured, store) as bot:
        session = bot.connection._session_number
        (checked,) = await check_xmpp_logins(configured)
        await bot.connection._ping()
        assert bot.connection._session_number == session
    await store.close()
    assert checked.details.endswith("the password is correct")


async def test_the_text_with_which_a_server_closes_the_stream_is_quoted() -> None:
    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(
            b"<?xml version='1.0'?><stream:stream id='1' xmlns:stream='http://etherx.jabber.org/streams'>"
            b"<stream:error><policy-violation xmlns='urn:ietf:params:xml:ns:xmpp-streams'/><text xml:lang='en'>"
            b"Too many (20) failed authentications</text></stream:error></stream:stream>"
        )
        writer.close()

    async with await asyncio.start_server(close, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        for login in ("client", "component"):
            configured = settings.load({}, xmpp_host="127.0.0.1", xmpp_port=port, xmpp_login=login)
            (result,) = await check_xmpp(configured, set())
            assert not result.ok
            assert result.details.endswith("the server closed the stream: Too many (20) failed authentications")
            assert "wait until the ban ends" in result.advice


async def test_an_untrusted_certificate_is_reported(prosody: PrivateProsody) -> None:
    (distrusted,) = await check_xmpp(client(prosody, ""), set())
    assert (distrusted.ok, "the certificate is not trusted: " in distrusted.details) == (False, True)
    assert "certificate for localhost, or set xmpp_ca_file" in distrusted.advice


async def test_a_ca_file_that_cannot_be_read_is_named(prosody: PrivateProsody, tmp_path: Path) -> None:
    (tmp_path / "empty.pem").touch()
    for name in ("missing.pem", "empty.pem"):
        (result,) = await check_xmpp(client(prosody, str(tmp_path / name)), set())
        assert (result.ok, f"xmpp_ca_file {tmp_path / name} cannot be read: " in result.details) == (False, True)


async def test_a_port_without_an_xmpp_server_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.operations.doctor.xmpp_login_check._XMPP_TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        (result,) = await check_xmpp(settings.load({}, xmpp_host="127.0.0.1", xmpp_port=port), set())
    assert (result.ok, "no response" in result.details) == (False, True)


async def test_an_unreachable_console_is_reported() -> None:
    (result,) = await check_console(settings.load({}, console_port=0))
    assert not result.ok


async def test_a_public_url_that_does_not_lead_to_the_console_is_a_warning() -> None:
    statuses = iter((200, 404, 502, 502))

    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=next(statuses))

    async with serving_locally(answer) as url, serve_health("127.0.0.1", 0, _do_nothing) as console:
        running = settings.load({}, console_public_url=url, console_port=int(console.url.rpartition(":")[2]))
        stopped = running.model_copy(update={"console_port": unused_port()})
        found = [*await check_public_url(running), *await check_public_url(running), *await check_public_url(running)]
        (early,) = await check_public_url(stopped)
    (unreachable,) = await check_public_url(running)
    assert [each.severity for each in (*found, unreachable)] == ["ok", "warning", "warning", "warning"]
    assert f"127.0.0.1:{running.console_port}" in found[2].advice
    assert (early.ok, "does not run yet" in early.details) == (True, True)
    assert await check_public_url(settings.load({})) == []


async def test_the_public_url_is_checked_with_the_console(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{unused_port()}"
    for program, is_checked in (("", True), ("console", True), ("worker", False)):
        given = {"redis_url": f"unix://{tmp_path}/none.sock", "xmpp_port": 1, "program": program}
        results = await examine(settings.load({}, console_public_url=url, **given))
        assert ("Public URL" in [result.name for result in results]) == is_checked


def test_a_low_limit_of_open_files_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (128, 4096))
    assert not check_file_limit().ok
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert check_file_limit().ok


async def test_the_confinement_of_the_parser_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    (result,) = await check_parser()
    assert result.ok
    assert "seccomp" in result.details
    monkeypatch.setattr(sys, "executable", "/nonexistent")
    (result,) = await check_parser()
    assert not result.ok


def test_only_failed_checks_show_advice() -> None:
    good, bad = (
        CheckResult("A", ok=True, details="fine", advice="nothing"),
        CheckResult("B", ok=False, details="ill", advice="rest"),
    )
    assert [line.split() for line in as_text([good, bad]).splitlines()] == [
        ["ok", "A", "fine"],
        ["BAD", "B", "ill"],
        ["→", "rest"],
    ]


@asynccontextmanager
async def announced_bot(configured: settings.Settings, why_not: str) -> AsyncIterator[None]:
    """Announce a bot whose readiness check fails with the text ``why_not``; "" for ready."""

    async def ready() -> None:
        if why_not:
            raise CoronetError(why_not)

    store = open_store(configured)
    try:
        async with serve_health("127.0.0.1", 0, ready) as health:
            await store.bot_endpoints.announce(f"{health.url}/metrics")
            yield
    finally:
        await store.close()


async def test_a_bot_that_cannot_log_in_is_reported_with_its_reason_and_its_secret_is_checked(
    prosody: PrivateProsody, clean_redis: str
) -> None:
    wrong = component(prosody, "wrong").model_copy(update={"redis_url": clean_redis})
    async with announced_bot(wrong, "There is no session."):
        by_name = {result.name: result for result in await examine(wrong)}
    assert by_name["Bots"].details == "0 ready, 1 not: There is no session."
    assert by_name["XMPP login"].details.endswith("rejects the secret")


async def test_a_bot_that_does_not_respond_is_reported(prosody: PrivateProsody, clean_redis: str) -> None:
    configured = component(prosody, prosody.component_secret).model_copy(update={"redis_url": clean_redis})
    async with announced_bot(configured, ""):
        pass
    by_name = {result.name: result for result in await examine(configured)}
    assert by_name["Version"].details.startswith(version("coronet"))
    assert (by_name["Bots"].ok, by_name["Bots"].details) == (False, "0 ready, 1 not: one does not respond")


def test_channels_that_nearly_all_have_one_limit_are_reported_with_advice() -> None:
    result = judge_polling({BindingConstraint.CHANNEL_BUDGET: 95, BindingConstraint.NONE: 5})
    assert (result.ok, "demand factor" in result.advice) == (False, True)
    assert result.details == "channels: 95 % at the request limit per channel, 5 % regular share of all polls"
    assert judge_polling({BindingConstraint.CHANNEL_BUDGET: 90, BindingConstraint.NONE: 10}).ok
    assert judge_polling({}).ok


async def test_polling_levels_are_summed_over_all_workers(clean_redis: str, tmp_path: Path) -> None:
    effective = settings.load({}, redis_url=clean_redis, levels="4")
    assert await check_polling(effective) == []
    levels = GaugeShare(OWNED_CHANNELS)
    levels.set({"0": 2, "10": 1, "1": 10})
    try:
        async with serve_health("127.0.0.1", 0, _do_nothing) as health, opened(effective) as store:
            await store.ring.join("w1", f"{health.url}/metrics", 600.0, lambda _: "0" * 40)
            whole, _ = await check_polling(effective)
            await store.ring.join("w2", "http://127.0.0.1:1/metrics", 600.0, lambda _: "8" * 40)
            partial, _ = await check_polling(effective)
    finally:
        levels.set({})
    assert whole.ok
    assert whole.details == "base 4; channels: 2 at level 0, 10 at level 1, 1 at level 10"
    assert partial.ok
    assert "the metrics of 1 of the workers cannot be read" in partial.details
    assert await check_polling(settings.load({}, redis_url=f"unix://{tmp_path}/none.sock")) == []


async def _do_nothing() -> None:
    """Be always ready."""


async def test_no_bots_are_reported_with_advice() -> None:
    result = judge_bots([])
    assert (result.ok, "coronet bot" in result.advice) == (False, True)
