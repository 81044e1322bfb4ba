"""The audit log of the console."""

from service.store import Store
from service.store.client import keys
from service.store.console.audit_log import KEPT_S, AuditedAction


async def test_actions_are_kept_for_a_year(store: Store) -> None:
    deed = AuditedAction(0.0, "ada", "", "192.0.2.1", "Drain a node.", "/nodes")
    now_s = int((await store.redis.call("TIME"))[0])
    for age_s in (KEPT_S + 60, KEPT_S - 60):
        await store.redis.call("XADD", keys.AUDIT_LOG, f"{(now_s - age_s) * 1000}-0", "d", b"\x88")
    await store.audit_log.begin("note", deed)
    await store.audit_log.end("note", deed)
    assert await store.redis.call("XLEN", keys.AUDIT_LOG) == 2
