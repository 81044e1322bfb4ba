"""Metrics of deliveries, and the warning about a server that limits the send rate."""

from pathlib import Path

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from bots.delivery import outbox_consumer
from bots.xmpp import connection, stanzas
from service.settings import Settings
from service.store import Store
from tests.support.bot_in_process import Person, moved, serving, tell
from tests.support.channels import make_channel
from tests.support.chat import ChatClient
from tests.support.prosody import LimitedProsody
from tests.support.waiting import until_so


def metric_value(name: str) -> float:
    """Return the current value of a metric without labels."""
    return REGISTRY.get_sample_value(name) or 0.0


@pytest.mark.parametrize("login", ["component"])
async def test_messages_delays_and_waiting_users_are_counted_in_metrics(
    settings: Settings, store: Store, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_consumer, "_DEPTH_INTERVAL_S", 0.05)
    alice = await person()
    channel = await make_channel(store)
    await store.subscriptions.subscribe(alice.jid, channel.id)
    await store.subscriptions.subscribe("nobody@localhost", channel.id)
    messages, delays = metric_value("coronet_messages_total"), metric_value("coronet_delivery_seconds_count")
    async with serving(settings, store):
        nobody = ChatClient("nobody@localhost", "", "127.0.0.1", 0, settings.xmpp_jid)
        await tell(store, [alice, nobody], channel, "new")
        await alice.wait_for(lambda message: "Entry new" in message.body)
        await until_so(lambda: metric_value("coronet_outbox_users") == 1, "only the message that bounced waits")
        assert metric_value("coronet_messages_total") == messages + 2
        assert metric_value("coronet_delivery_seconds_count") == delays + 2


@pytest.mark.parametrize("login", ["client"])
async def test_a_rate_limiting_server_receives_all_messages_and_one_warning_is_logged(
    tmp_path: Path, settings: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CHUNK_BYTES", 8_192)
    limited = LimitedProsody(tmp_path / "limited", "10kb/s")
    own_settings = await moved(settings, limited)
    alice = ChatClient(
        await limited.register("alice", "pw"), "pw", "127.0.0.1", limited.c2s_port, own_settings.xmpp_jid
    )
    async with limited:
        try:
            await alice.start()
            with capture_logs() as logs:
                async with serving(own_settings, store) as bot:
                    content = stanzas.body("x" * 800)
                    message_ids = [f"m{number}" for number in range(36)]
                    await bot.connection.send(
                        [
                            stanzas.message(own_settings.xmpp_jid, alice.jid, message_id, content)
                            for message_id in message_ids
                        ]
                    )
                    await alice.wait_for(lambda message: message.id == message_ids[-1])
            assert [message.id for message in alice.received] == message_ids
            assert len([entry for entry in logs if "send rate limited" in entry["event"]]) == 1
        finally:
            await alice.stop()
