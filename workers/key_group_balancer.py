"""The load balancer for key groups (CLASH): splits those with too much load, and merges those with little.

A key group is a set of keys with a common prefix. A keyspace represents a server in the CLASH paper; it stores key
groups, and is balanced by the node nearest to its id. :mod:`service.clash` decides on the next step; this module
measures loads and executes the steps.

Several nodes, or none, may balance a keyspace for a while; this does no harm. The next node that balances the keyspace
reads unfinished moves (splits and merges) from the store, and continues them.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence

import structlog

from service.asyncio_tasks import BackgroundTasks
from service.clash.key_groups import KeyGroup, Keyspace
from service.clash.move_steps import Finish, SplitGroup, Step, resume_step
from service.clash.server_table import MoveKind, ServerTable, empty_table
from service.clash.split_merge_policy import HalfLives, LoadLimits, choose_merge, choose_split, sibling_pairs
from service.errors import BadKey, MoveRefused, UnknownKeyspace
from service.model import NodeId
from service.observability.metrics import GROUP_MOVES
from service.overlay.ring import RingView
from service.store import Store
from service.store.subscriptions.key_group_loads import LeafLoads
from service.store.subscriptions.keyspace_store import run_move

_INTERVALS_AT_REST = 3
"""While no load changes, loads are measured only once in this many maintenance intervals, because measuring reads all
tables."""
_REFUSALS = (BadKey, MoveRefused, UnknownKeyspace)

log = structlog.get_logger(__name__)


class KeyGroupBalancer:
    """Balances the keyspaces assigned to one node (CLASH): splits busy key groups, and merges those with little load.

    A key group is a set of keys with a common prefix. A keyspace stores key groups; it represents a server in the CLASH
    paper.
    """

    def __init__(
        self, node_id: NodeId, store: Store, limits: LoadLimits, *, interval_s: float, tasks: BackgroundTasks
    ) -> None:
        self._node_id = node_id
        self._store = store
        self._limits = limits
        self._interval_s = interval_s
        self._half_lives = HalfLives.for_interval(interval_s)
        self._tasks = tasks
        self._owned: tuple[Keyspace, ...] = ()
        self._measured_s: dict[Keyspace, float] = {}
        self._moving: set[Keyspace] = set()
        self._loads: Mapping[Keyspace, Mapping[KeyGroup, float]] | None = None
        """The loads at the last measurement."""
        self._is_at_rest = False
        """Whether no load had changed at the last measurement, and no move was due."""
        self._intervals = 0

    def on_ring_changed(self, ring: RingView) -> None:
        """Determine which keyspaces this node balances.

        A keyspace is balanced by the node in ``ring`` that is nearest to the keyspace's id.
        """
        keyspaces = self._store.keyspaces.map
        points = {keyspace: keyspaces.point(keyspace) for keyspace in range(keyspaces.count)}
        self._owned = tuple(
            keyspace for keyspace, point in points.items() if ring.is_among_nearest(point, self._node_id, 1)
        )
        self._measured_s = {keyspace: at_s for keyspace, at_s in self._measured_s.items() if keyspace in self._owned}

    async def balance(self, fleet_s: float) -> None:
        """Measure the loads since the last call, and start or continue the splits and merges that are due.

        Key groups (sets of keys with a common prefix) are split and merged. Call this once in each maintenance
        interval. ``fleet_s`` is the time of Redis's clock (Unix s), which all nodes share. Raises
        :class:`StoreUnavailable`.
        """
        # While no load changes, most calls do nothing.
        self._intervals += 1
        if self._is_at_rest and self._intervals % _INTERVALS_AT_REST:
            return
        self._is_at_rest = False
        tables = await self._load_tables(self._owned)
        await asyncio.gather(*(self._measure(keyspace, fleet_s) for keyspace in tables))
        await self._start_due(tables, fleet_s)

    async def _start_due(self, tables: Mapping[Keyspace, ServerTable], fleet_s: float) -> None:
        """Start or continue the splits and merges of key groups that are due in some keyspaces.

        - ``tables``: the server table (the list of key groups) of each of these keyspaces.
        - ``fleet_s``: the time of Redis's clock (Unix s), which all nodes share.

        A keyspace is skipped while this process executes a split or merge in it. In a keyspace that another node
        balances, only splits are started.
        """
        due, loads = await self._due_steps(tables, fleet_s)
        self._is_at_rest, self._loads = not due and not self._moving and loads == self._loads, loads
        for keyspace, step in due.items():
            if keyspace not in self._moving and (keyspace in self._owned or isinstance(step, SplitGroup)):
                self._moving.add(keyspace)
                self._tasks.start(self._move(keyspace, step, fleet_s))

    async def _load_tables(self, keyspaces: Sequence[Keyspace]) -> dict[Keyspace, ServerTable]:
        """Return the server tables (lists of key groups) of these keyspaces, except empty and unreadable tables."""
        try:
            tables = await self._store.keyspaces.tables(keyspaces)
        except _REFUSALS as error:
            log.warning("reading key group tables failed, will retry", error=str(error))
            tables = []
            for keyspace in keyspaces:
                with contextlib.suppress(*_REFUSALS):
                    tables += await self._store.keyspaces.tables([keyspace])
        return {table.keyspace: table for table in tables if table.entries}

    async def _measure(self, keyspace: Keyspace, fleet_s: float) -> None:
        elapsed_s = fleet_s - self._measured_s.get(keyspace, fleet_s - self._interval_s)
        self._measured_s[keyspace] = fleet_s
        if elapsed_s > 0:
            await self._store.key_group_loads.measure(keyspace, elapsed_s, fleet_s, self._half_lives)

    async def _due_steps(
        self, owned: Mapping[Keyspace, ServerTable], fleet_s: float
    ) -> tuple[dict[Keyspace, Step], Mapping[Keyspace, Mapping[KeyGroup, float]]]:
        """Return the next step for each keyspace that needs one, and the load of each key group in each keyspace.

        A step continues an unfinished split or merge, or begins one that the load requires.

        - ``owned``: the server table (the list of key groups) of each keyspace to examine.
        - ``fleet_s``: the time of Redis's clock (Unix s), which all nodes share.
        """
        right_children = {entry.right_child for table in owned.values() for entry in table.entries.values()}
        children = [child for child in right_children if child is not None and child not in owned]
        tables = {**owned, **await self._load_tables(children)}
        loads = await self._store.key_group_loads.weigh(list(tables.values()), fleet_s, self._half_lives)
        all_tables = {child: empty_table(child, self._store.keyspaces.bits) for child in children} | tables
        due = {keyspace: self._next_step(table, all_tables, loads) for keyspace, table in owned.items()}
        return {keyspace: step for keyspace, step in due.items() if step is not None}, loads.loads

    def _next_step(self, table: ServerTable, tables: Mapping[Keyspace, ServerTable], loads: LeafLoads) -> Step | None:
        keyspace, peak = table.keyspace, loads.peak_loads
        return (
            resume_step(table)
            or choose_split(keyspace, loads.loads[keyspace], self._limits)
            or choose_merge(keyspace, peak[keyspace], sibling_pairs(table, tables, peak), self._limits)
        )

    async def _move(self, keyspace: Keyspace, step: Step, fleet_s: float) -> None:
        """Complete a split or merge of key groups, and then further ones of the same kind if the load requires them.

        - ``keyspace``: the keyspace that contains the key groups.
        - ``step``: the step with which to begin, which is not always the first step of the split or merge.
        - ``fleet_s``: the time of Redis's clock (Unix s), which all nodes share.
        """
        # For example, one half of a key group may still be too hot after a split.
        try:
            while await self._complete(keyspace, step, fleet_s):
                due, _ = await self._due_steps(await self._load_tables([keyspace]), fleet_s)
                if type(due.get(keyspace)) is not type(step):
                    return
                step = due[keyspace]
        finally:
            self._moving.discard(keyspace)

    async def _complete(self, keyspace: Keyspace, first: Step, fleet_s: float) -> bool:
        """Execute all steps of a split or merge, beginning with ``first``; return whether it was completed.

        A merge is not completed if the other keyspace declines it. ``fleet_s`` is the time of Redis's clock (Unix s),
        which all nodes share.
        """
        kind = None
        async for step, kind in run_move(self._store.keyspaces, first):
            if isinstance(step, Finish):
                await self._store.key_group_loads.hand_over(step.move, fleet_s, self._half_lives)
                if step.move.kind is MoveKind.SPLIT:
                    # The hot part may be in the child now. The subscribers of one channel are separated only after many
                    # splits, every second one in a keyspace of another node, which would react only after its next
                    # measurement. So this node follows the hot part into other nodes' keyspaces.
                    await self._start_due(await self._load_tables([step.move.child]), fleet_s)
            if kind is not None:
                GROUP_MOVES.labels(kind).inc()
                log.info("key group move step completed", kind=kind, keyspace=keyspace, step=repr(step))
        return kind is not None
