"""Commands on every Redis node of a store: the single one, or all masters of a cluster."""

from typing import Any

from service.store import Store
from service.store.client.cluster_routing import Address


async def on_every_node(store: Store, *command: str) -> list[Any]:
    """Execute a command on every node; return the replies."""
    lane = store.redis._prompt
    nodes: list[Address | None] = [*store.redis.primaries()]
    return [await lane._pool(node).execute_command(*command) for node in nodes or [None]]  # type: ignore[no-untyped-call]  # redis-py leaves it untyped
