"""Commands for every node of the Redis that a store uses: one, or the masters of a cluster."""

from typing import Any

from service.store import Store


async def everywhere(store: Store, *command: str) -> list[Any]:
    """Return the replies of all nodes."""
    lane = store.redis._prompt
    known = lane._slots.map
    nodes = [None] if known is None else list(dict.fromkeys(known.masters))
    return [await lane._pool(node).execute_command(*command) for node in nodes]  # type: ignore[no-untyped-call]  # redis-py leaves it untyped
