"""What admins see of key groups, and do to them: the tree, and where each of them is."""

from collections.abc import Mapping, Sequence

import msgspec

from service.clash.key_groups import KeyGroup, Keyspace
from service.clash.load_policy import Memory
from service.clash.move_steps import MergeGroup, SplitGroup
from service.clash.server_table import LEAVES, Kind, ServerTable, Standing
from service.clash.transitions import arrives_in
from service.errors import BadKey, MoveRefused
from service.settings import Settings
from service.store import Store
from service.store.client import keys
from service.store.subscriptions.keyspaces import LeafLoads, completed_move_kind, run_move


class Shard(msgspec.Struct, frozen=True):
    """One group in one keyspace's table. ``load`` is in deliveries per second; of a split group, nothing lies here."""

    label: str
    keyspace: Keyspace
    standing: str
    right_keyspace: Keyspace | None
    subscriptions: int
    load: float


class RedisNode(msgspec.Struct, frozen=True):
    """What one node of a Redis Cluster has of the keyspaces in use. ``load`` is in deliveries per second."""

    address: str
    keyspaces: tuple[Keyspace, ...]
    subscriptions: int
    load: float


class Shards(msgspec.Struct, frozen=True):
    """The whole tree, in the order of keys, and the moves under way, as people read them.

    ``redis_nodes`` are those of a cluster on which keyspaces in use lie; none of a single Redis.
    """

    key_bits: int
    keyspaces: int
    keyspaces_used: int
    capacity: float
    subscriptions: int
    shards: list[Shard]
    moves: list[str]
    redis_nodes: tuple[RedisNode, ...] = ()


async def show(store: Store, settings: Settings) -> Shards:
    """Look at all tables. Raises :class:`service.errors.StoreUnavailable`, and what unreadable tables raise."""
    tables = [table for table in await _tables(store) if table.entries]
    now_s, _ = await store.ring.glance()
    weighed = await store.key_group_loads.weigh(tables, now_s, Memory.measuring(settings.maintenance_interval_s))
    shards = [
        Shard(
            group.label,
            table.keyspace,
            entry.standing.value,
            entry.right_child,
            weighed.sizes[table.keyspace].get(group, 0),
            round(weighed.loads[table.keyspace].get(group, 0.0), 3),
        )
        for table in tables
        for group, entry in table.entries.items()
    ]
    moves = [_move_text(table) for table in tables if table.move is not None]
    return Shards(
        key_bits=store.keyspaces.bits,
        keyspaces=store.keyspaces.map.count,
        keyspaces_used=sum(bool(leaves) for leaves in weighed.sizes.values()),
        capacity=settings.keyspace_capacity,
        subscriptions=sum(sum(leaves.values()) for leaves in weighed.sizes.values()),
        shards=sorted(shards, key=lambda shard: (shard.label.removesuffix("*"), shard.keyspace)),
        moves=moves,
        redis_nodes=_by_node(store, weighed),
    )


async def split(store: Store, label: str) -> str:
    """Split a leaf, whatever its load, and say where its halves are."""
    group = KeyGroup.labelled(label, store.keyspaces.bits)
    table = _holder(await _tables(store), group, LEAVES)
    if table.standing(group) is Standing.RECALLED:
        # It goes to its own keyspace first, whole.
        await _carry_through(store, SplitGroup(table.keyspace, group))
        table = _holder(await _tables(store), group, LEAVES)
    await _carry_through(store, SplitGroup(table.keyspace, group))
    return await _halves(store, group, table.keyspace)


async def merge(store: Store, label: str) -> str:
    """Merge the halves of a group, whatever their loads, and say where it is."""
    group = KeyGroup.labelled(label, store.keyspaces.bits)
    table = _holder(await _tables(store), group, (Standing.SPLIT,))
    if not await _carry_through(store, MergeGroup(table.keyspace, group)):
        child = table.entries[group].right_child
        raise MoveRefused(
            f"{label} was not merged: its right half in keyspace {child} is no leaf at rest. Merge that one first."
        )
    (size,) = await store.keyspaces.sizes(table.keyspace, [group])
    return f"Merged {label}: {_subscriptions(size)} in keyspace {table.keyspace}."


def _by_node(store: Store, weighed: LeafLoads) -> tuple[RedisNode, ...]:
    held: dict[str, list[Keyspace]] = {}
    for keyspace, leaves in sorted(weighed.sizes.items()):
        at = store.redis.node_of(("HLEN", keys.keyspace(keyspace)[0]))
        if leaves and at is not None:
            held.setdefault(f"{at[0]}:{at[1]}", []).append(keyspace)
    return tuple(
        RedisNode(
            address,
            tuple(keyspaces),
            sum(sum(weighed.sizes[each].values()) for each in keyspaces),
            round(sum(sum(weighed.loads[each].values()) for each in keyspaces), 3),
        )
        for address, keyspaces in sorted(held.items())
    )


def as_text(found: Shards) -> str:
    """Return the tree for people to read, in the order of keys: each group stands above its halves."""
    places = f"{found.keyspaces_used} of {found.keyspaces} keyspaces"
    lines = [
        f"{_subscriptions(found.subscriptions)} in {places}; each may deliver {found.capacity:g} a second.",
        "",
        f"{'key group':{found.key_bits + 6}} {'keyspace':>8} {'subscriptions':>13} {'load per s':>10}",
    ]
    for shard in found.shards:
        start = f"{shard.label:{found.key_bits + 6}} {shard.keyspace:>8}"
        if shard.standing == Standing.SPLIT:
            lines.append(f"{start} {'':>13} {'':>10}  split, its right half is in {shard.right_keyspace}")
        else:
            standing = "" if shard.standing == Standing.ACTIVE else f"  {shard.standing}"
            lines.append(f"{start} {shard.subscriptions:>13,} {shard.load:>10.1f}{standing}")
    nodes = [
        f"{each.address}: {len(each.keyspaces)} in use, {_subscriptions(each.subscriptions)}, {each.load:.1f} a second"
        for each in found.redis_nodes
    ]
    lines += ["", "Keyspaces on nodes of the Redis Cluster:", *nodes] if nodes else []
    return "\n".join([*lines, *(["", "Under way:", *found.moves] if found.moves else [])])


def _subscriptions(count: int) -> str:
    return f"{count:,} subscription{'' if count == 1 else 's'}"


def _move_text(table: ServerTable) -> str:
    move = table.move
    if move is None:
        return ""
    leaf = arrives_in(table, move)
    kind = "recall" if move.kind is Kind.MERGE and leaf == move.group else move.kind
    return f"{kind} of {leaf.label}: {move.group.label} goes from {move.donor} to {move.taker} ({table.stage})"


async def _tables(store: Store) -> list[ServerTable]:
    return await store.keyspaces.tables(range(store.keyspaces.map.count))


def _holder(tables: Sequence[ServerTable], group: KeyGroup, standings: Sequence[Standing]) -> ServerTable:
    """Return the table in which a group stands like this."""
    for table in tables:
        if table.standing(group) in standings:
            return table
    held = {leaf.label for table in tables for leaf, entry in table.entries.items() if entry.standing in standings}
    what = "leaf" if standings is LEAVES else "split group"
    near = sorted(held, key=lambda label: (_unlike(label, group.label), label))[:3]
    raise BadKey(f"{group.label} is no {what}. Near it: {', '.join(near) or 'none'}; coronet admin shards shows all.")


def _unlike(one: str, other: str) -> int:
    pairs = zip(one, other, strict=False)
    return -next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


async def _carry_through(store: Store, first: SplitGroup | MergeGroup) -> bool:
    """Do what a keeper would, and say whether it came to its end; if we die in between, the keeper goes on."""
    kind = None
    async for step, outcome in run_move(store.keyspaces, first):
        kind = completed_move_kind(step, outcome)
    return kind is not None


async def _halves(store: Store, group: KeyGroup, keyspace: Keyspace) -> str:
    (table,) = await store.keyspaces.tables([keyspace])
    places: Mapping[KeyGroup, Keyspace | None] = {group.left: keyspace, group.right: table.entries[group].right_child}
    told = []
    for half, place in places.items():
        (size,) = await store.keyspaces.sizes(place if place is not None else keyspace, [half])
        told.append(f"{half.label} with {_subscriptions(size)} in keyspace {place}")
    return f"Split {group.label}: {' and '.join(told)}."
