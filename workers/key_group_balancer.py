"""The keeper of keyspaces: measures what its keyspaces have to do, splits what is hot and merges what is cold.

Each keyspace's keeper is the node nearest to its id, as a channel's owner is. Nothing depends on there being one at
a time, or on one living on: a successor finds in the tables which moves are under way, and goes on with them.
What to do is decided in ``service.clash``; this is the shell around it.
"""

import asyncio
from collections.abc import Mapping, Sequence

import structlog

from service.clash.key_groups import Keyspace
from service.clash.load_policy import (
    HalfLives,
    LoadLimits,
    choose_merge,
    choose_recall,
    choose_split,
    lone_right_children,
    sibling_pairs,
)
from service.clash.move_steps import Finish, SplitGroup, Step, resume_step
from service.clash.server_table import MoveKind, ServerTable, empty_table
from service.errors import BadKey, MoveRefused, StoreUnavailable, UnknownKeyspace
from service.model import NodeId
from service.observability.metrics import GROUP_MOVES
from service.overlay.ring import RingView
from service.store import Store
from service.store.subscriptions.keyspaces import LeafLoads, completed_move_kind, run_move
from workers.tasks import BackgroundTasks

_REFUSED = (BadKey, MoveRefused, UnknownKeyspace)

log = structlog.get_logger(__name__)


class KeyGroupBalancer:
    """A node's own keyspaces."""

    def __init__(
        self, me: NodeId, store: Store, limits: LoadLimits, *, interval_s: float, tasks: BackgroundTasks
    ) -> None:
        self._me = me
        self._store = store
        self._limits = limits
        self._interval_s = interval_s
        self._memory = HalfLives.for_interval(interval_s)
        self._tasks = tasks
        self._mine: tuple[Keyspace, ...] = ()
        self._looked_s: dict[Keyspace, float] = {}
        self._busy: set[Keyspace] = set()

    def ring_changed(self, view: RingView) -> None:
        """Keep what is nearest to us now."""
        keyspaces = self._store.keyspaces.map
        points = {keyspace: keyspaces.point(keyspace) for keyspace in range(keyspaces.count)}
        self._mine = tuple(keyspace for keyspace, point in points.items() if view.is_among_nearest(point, self._me, 1))
        self._looked_s = {keyspace: at_s for keyspace, at_s in self._looked_s.items() if keyspace in self._mine}

    async def keep(self, fleet_s: float) -> None:
        """Measure for one interval, and begin or go on with what is due. ``fleet_s`` is the fleet's time (Unix s)."""
        try:
            mine = await self._tables(self._mine)
            await asyncio.gather(*(self._measure(keyspace, fleet_s) for keyspace in mine))
            await self._begin(mine, fleet_s)
        except StoreUnavailable as error:
            log.warning("keyspaces not looked after", keyspaces=len(self._mine), error=str(error))

    async def _begin(self, tables: Mapping[Keyspace, ServerTable], fleet_s: float) -> None:
        """Begin or go on with what is due in these keyspaces, unless that is under way here.

        In another keeper's only splits are begun.
        """
        for keyspace, step in (await self._due(tables, fleet_s)).items():
            if keyspace not in self._busy and (keyspace in self._mine or isinstance(step, SplitGroup)):
                self._busy.add(keyspace)
                self._tasks.start(self._move(keyspace, step, fleet_s))

    async def _tables(self, keyspaces: Sequence[Keyspace]) -> dict[Keyspace, ServerTable]:
        """Return the tables that have entries and can be read."""
        try:
            found = await self._store.keyspaces.tables(keyspaces)
        except _REFUSED as error:
            log.warning("a keyspace's table cannot be read", error=str(error))
            found = [table for some in await asyncio.gather(*map(self._alone, keyspaces)) for table in some]
        return {table.keyspace: table for table in found if table.entries}

    async def _alone(self, keyspace: Keyspace) -> list[ServerTable]:
        try:
            return await self._store.keyspaces.tables([keyspace])
        except _REFUSED:
            return []

    async def _measure(self, keyspace: Keyspace, fleet_s: float) -> None:
        elapsed_s = fleet_s - self._looked_s.get(keyspace, fleet_s - self._interval_s)
        self._looked_s[keyspace] = fleet_s
        if elapsed_s > 0:
            await self._store.key_group_loads.measure(keyspace, elapsed_s, fleet_s, self._memory)

    async def _due(self, mine: Mapping[Keyspace, ServerTable], fleet_s: float) -> dict[Keyspace, Step]:
        """Return the next step of each keyspace: of the move under way, or of one that its load wants."""
        named = {entry.right_child for table in mine.values() for entry in table.entries.values()}
        children = [child for child in named if child is not None and child not in mine]
        tables = {**mine, **await self._tables(children)}
        weighed = await self._store.key_group_loads.weigh(list(tables.values()), fleet_s, self._memory)
        known = {child: empty_table(child, self._store.keyspaces.bits) for child in children} | tables
        due = {keyspace: self._next(table, known, weighed) for keyspace, table in mine.items()}
        return {keyspace: step for keyspace, step in due.items() if step is not None}

    def _next(self, table: ServerTable, tables: Mapping[Keyspace, ServerTable], weighed: LeafLoads) -> Step | None:
        keyspace, lasting = table.keyspace, weighed.peak_loads
        return (
            resume_step(table)
            or choose_split(keyspace, weighed.loads[keyspace], self._limits)
            or choose_merge(keyspace, lasting[keyspace], sibling_pairs(table, tables, lasting), self._limits)
            or choose_recall(keyspace, lasting[keyspace], lone_right_children(table, tables, lasting), self._limits)
        )

    async def _move(self, keyspace: Keyspace, step: Step, fleet_s: float) -> None:
        """Carry a move through, and others of its kind at once: a split may leave too much where it was."""
        try:
            while await self._carried_through(keyspace, step, fleet_s):
                due = await self._due(await self._tables([keyspace]), fleet_s)
                if type(due.get(keyspace)) is not type(step):
                    return
                step = due[keyspace]
        except _REFUSED as error:
            log.info("key group stays as it is", keyspace=keyspace, why=str(error))
        except StoreUnavailable as error:
            log.warning("move interrupted", keyspace=keyspace, error=str(error))
        finally:
            self._busy.discard(keyspace)

    async def _carried_through(self, keyspace: Keyspace, first: Step, fleet_s: float) -> bool:
        """Say whether it came to its end; a merge can be declined."""
        kind = None
        async for step, outcome in run_move(self._store.keyspaces, first):
            kind = completed_move_kind(step, outcome)
            if isinstance(step, Finish):
                await self._store.key_group_loads.hand_over(step.move, fleet_s, self._memory)
                if step.move.kind is MoveKind.SPLIT:
                    # What is hot may be there now. A channel's own subscribers part only after many splits, and its
                    # heat would wait for another keeper at every second: so it is followed wherever it goes.
                    await self._begin(await self._tables([step.move.child]), fleet_s)
            if kind is not None:
                GROUP_MOVES.labels(kind).inc()
                log.info("key groups moved", kind=kind, keyspace=keyspace, step=repr(step))
        return kind is not None
