"""The processes that hold the partitions of a set."""

from service.store import Store
from service.store.client import keys


async def read_holders(store: Store, name: str) -> dict[int, str]:
    """Return the process that holds each partition of the set ``name``, by the partition's number."""
    found = await store.redis.call("HGETALL", keys.partition_leases(name)[1])
    return {int(number): holder.decode() for number, holder in found.items()}
