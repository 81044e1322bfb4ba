"""Operations of admins on the subscription index: show the tree of key groups, and split or merge key groups."""

from collections.abc import Mapping, Sequence

import msgspec

from service.clash.key_groups import KeyGroup, Keyspace
from service.clash.move_steps import MergeGroup, SplitGroup
from service.clash.server_table import LEAF_STATES, GroupState, ServerTable
from service.clash.split_merge_policy import HalfLives
from service.errors import BadKey, MoveRefused
from service.settings import Settings
from service.store import Store
from service.store.client import keys
from service.store.subscriptions.key_group_loads import LeafLoads
from service.store.subscriptions.keyspace_store import run_move


class Shard(msgspec.Struct, frozen=True):
    """One key group (CLASH): the subscriptions whose keys begin with the same prefix.

    - ``label`` is the prefix followed by ``*``, for example ``01*``.
    - ``keyspace`` is the number of the keyspace (partition of the store) that contains the group.
    - ``standing`` is the state of the group. ``active``: it has all its subscriptions. ``arriving``: it was created
      by a split, and its subscriptions are still being moved to it. ``split``: it is divided into two halves, which
      have its subscriptions. ``returning``: its halves are being merged, and the subscriptions of the right half
      are still being moved to it. ``leaving``: it is being given up in a merge.
    - ``right_keyspace`` is the keyspace of a split group's right half; None if the group is not split. The left
      half stays in ``keyspace``.
    - ``load`` is the number of deliveries per second.
    """

    label: str
    keyspace: Keyspace
    standing: str
    right_keyspace: Keyspace | None
    subscriptions: int
    load: float


class RedisNode(msgspec.Struct, frozen=True):
    """One node of a Redis Cluster.

    - ``keyspaces`` are the numbers of the keyspaces (partitions of the store) on this node that contain key groups.
    - ``subscriptions`` is the number of subscriptions in these keyspaces.
    - ``load`` is the number of deliveries per second for these subscriptions.
    """

    address: str
    keyspaces: tuple[Keyspace, ...]
    subscriptions: int
    load: float


class Shards(msgspec.Struct, frozen=True):
    """All key groups of the subscription index, with their sizes and loads.

    - ``shards`` are the key groups in key order.
    - ``capacity`` is the maximum load of a keyspace (partition of the store), in deliveries per second.
    - ``moves`` describes the splits and merges in progress.
    - ``redis_nodes`` are the nodes of a Redis Cluster that store key groups; () for a standalone Redis.
    """

    key_bits: int
    keyspaces: int
    keyspaces_used: int
    capacity: float
    subscriptions: int
    shards: list[Shard]
    moves: list[str]
    redis_nodes: tuple[RedisNode, ...] = ()


async def read_shards(store: Store, settings: Settings) -> Shards:
    """Return all key groups with their sizes and loads.

    Each keyspace, a partition of the store, has a server table that lists its key groups (CLASH). The key groups
    are read from these tables. Raises :class:`StoreUnavailable` if Redis cannot be read, and :class:`BadKey` if a
    table is invalid.
    """
    tables = [table for table in await _tables(store) if table.entries]
    now_s, _ = await store.ring.time_and_view()
    leaf_loads = await store.key_group_loads.weigh(
        tables, now_s, HalfLives.for_interval(settings.maintenance_interval_s)
    )
    shards = [
        Shard(
            group.label,
            table.keyspace,
            entry.state.value,
            entry.right_child,
            leaf_loads.sizes[table.keyspace].get(group, 0),
            round(leaf_loads.loads[table.keyspace].get(group, 0.0), 3),
        )
        for table in tables
        for group, entry in table.entries.items()
    ]
    moves = [_move_text(table) for table in tables if table.move is not None]
    return Shards(
        key_bits=store.keyspaces.bits,
        keyspaces=store.keyspaces.map.count,
        keyspaces_used=sum(bool(leaves) for leaves in leaf_loads.sizes.values()),
        capacity=settings.keyspace_capacity,
        subscriptions=sum(sum(leaves.values()) for leaves in leaf_loads.sizes.values()),
        shards=sorted(shards, key=lambda shard: (shard.label.removesuffix("*"), shard.keyspace)),
        moves=moves,
        redis_nodes=_redis_nodes(store, leaf_loads),
    )


async def split(store: Store, label: str) -> str:
    """Split a key group, regardless of its load. A key group contains all subscriptions with a common key prefix.

    ``label`` is the prefix followed by ``*``. Return a sentence that names the keyspaces (partitions of the store)
    of the two halves. Raises :class:`BadKey` if there is no such group or it is already split, and
    :class:`MoveRefused` if the split is not possible now.
    """
    group = KeyGroup.from_label(label, store.keyspaces.bits)
    table = _find_table(await _tables(store), group, LEAF_STATES)
    await _execute(store, SplitGroup(table.keyspace, group))
    return await _halves(store, group, table.keyspace)


async def merge(store: Store, label: str) -> str:
    """Merge the two halves of a split key group, regardless of their loads.

    A key group contains all subscriptions with a common key prefix. ``label`` is the prefix followed by ``*``.
    Return a sentence that names the keyspace (partition of the store) of the merged group. Raises :class:`BadKey`
    if there is no such group or it is not split, and :class:`MoveRefused` if the merge is not possible now.
    """
    group = KeyGroup.from_label(label, store.keyspaces.bits)
    table = _find_table(await _tables(store), group, (GroupState.SPLIT,))
    if not await _execute(store, MergeGroup(table.keyspace, group)):
        child = table.entries[group].right_child
        raise MoveRefused(
            f"{label} was not merged: its right half in keyspace {child} is split or moving. Merge that one first."
        )
    (size,) = await store.keyspaces.sizes(table.keyspace, [group])
    return f"Merged {label}: {_subscriptions(size)} in keyspace {table.keyspace}."


def _redis_nodes(store: Store, leaf_loads: LeafLoads) -> tuple[RedisNode, ...]:
    by_node: dict[str, list[Keyspace]] = {}
    for keyspace, leaves in sorted(leaf_loads.sizes.items()):
        node = store.redis.node_of(("HLEN", keys.keyspace(keyspace)[0]))
        if leaves and node is not None:
            by_node.setdefault(f"{node[0]}:{node[1]}", []).append(keyspace)
    return tuple(
        RedisNode(
            address,
            tuple(keyspaces),
            sum(sum(leaf_loads.sizes[each].values()) for each in keyspaces),
            round(sum(sum(leaf_loads.loads[each].values()) for each in keyspaces), 3),
        )
        for address, keyspaces in sorted(by_node.items())
    )


def as_text(shards: Shards) -> str:
    """Format the tree of key groups as a text table in key order. A split group is listed above its two halves."""
    places = f"{shards.keyspaces_used} of {shards.keyspaces} keyspaces"
    lines = [
        f"{_subscriptions(shards.subscriptions)} in {places}; capacity of each: {shards.capacity:g} deliveries per s.",
        "",
        f"{'key group':{shards.key_bits + 6}} {'keyspace':>8} {'subscriptions':>13} {'load per s':>10}",
    ]
    for shard in shards.shards:
        start = f"{shard.label:{shards.key_bits + 6}} {shard.keyspace:>8}"
        if shard.standing == GroupState.SPLIT:
            lines.append(f"{start} {'':>13} {'':>10}  split, its right half is in {shard.right_keyspace}")
        else:
            standing = "" if shard.standing == GroupState.ACTIVE else f"  {shard.standing}"
            lines.append(f"{start} {shard.subscriptions:>13,} {shard.load:>10.1f}{standing}")
    nodes = [
        f"{each.address}: {len(each.keyspaces)} in use, {_subscriptions(each.subscriptions)}, {each.load:.1f} per s"
        for each in shards.redis_nodes
    ]
    lines += ["", "Keyspaces on nodes of the Redis Cluster:", *nodes] if nodes else []
    return "\n".join([*lines, *(["", "In progress:", *shards.moves] if shards.moves else [])])


def _subscriptions(count: int) -> str:
    return f"{count:,} subscription{'' if count == 1 else 's'}"


def _move_text(table: ServerTable) -> str:
    move = table.move
    if move is None:
        return ""
    route = f"{move.group.label} goes from {move.donor} to {move.taker}"
    return f"{move.kind} of {move.leaf.label}: {route} ({table.stage})"


async def _tables(store: Store) -> list[ServerTable]:
    return await store.keyspaces.tables(range(store.keyspaces.map.count))


def _find_table(tables: Sequence[ServerTable], group: KeyGroup, standings: Sequence[GroupState]) -> ServerTable:
    """Return the server table that lists ``group`` in one of the states ``standings``.

    ``tables`` contains one server table for each keyspace (partition of the store). A server table lists the
    keyspace's key groups and their states. Raises :class:`BadKey` if no table lists the group in one of these
    states. The error names existing key groups with similar labels.
    """
    for table in tables:
        if table.state(group) in standings:
            return table
    labels = {leaf.label for table in tables for leaf, entry in table.entries.items() if entry.state in standings}
    what = "leaf" if standings is LEAF_STATES else "split group"
    similar = sorted(labels, key=lambda label: (-_shared_prefix_length(label, group.label), label))[:3]
    raise BadKey(
        f"{group.label} is no {what}. Similar: {', '.join(similar) or 'none'}; coronet admin shards shows all."
    )


def _shared_prefix_length(one: str, other: str) -> int:
    pairs = zip(one, other, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


async def _execute(store: Store, first: SplitGroup | MergeGroup) -> bool:
    """Execute a split or merge in the same way as a worker; return whether it was completed.

    ``first`` is the first step of the split or merge. If this process crashes, a worker executes the remaining steps.
    """
    kinds = [kind async for _, kind in run_move(store.keyspaces, first)]
    return kinds[-1] is not None


async def _halves(store: Store, group: KeyGroup, keyspace: Keyspace) -> str:
    (table,) = await store.keyspaces.tables([keyspace])
    places: Mapping[KeyGroup, Keyspace | None] = {group.left: keyspace, group.right: table.entries[group].right_child}
    descriptions = []
    for half, place in places.items():
        (size,) = await store.keyspaces.sizes(place if place is not None else keyspace, [half])
        descriptions.append(f"{half.label} with {_subscriptions(size)} in keyspace {place}")
    return f"Split {group.label}: {' and '.join(descriptions)}."
