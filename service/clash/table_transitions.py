"""The effects of splits and merges on the tables of keyspaces, and a keyspace's replies to clients.

A *keyspace* is a partition of the store, and its table lists its groups of keys. A split moves the right half of a
group to another keyspace, and a merge moves it back (CLASH §V.A and §IV.A, bottom-up). Each function carries out one
step, in the keyspace of the undivided group or in the keyspace of the right half.

- The commit of a split is :func:`split`: from then on, the right half belongs to its own keyspace.
- The commit of a merge is :func:`give_key_group`, in the right half's keyspace. Before the commit, the planned merge
  has one effect: the undivided group's keyspace begins no other move, so that the left half does not change.
- All steps except the first may be repeated or arrive late. They then change nothing.
- A step that is impossible raises :class:`MoveRefused` and changes nothing.

:func:`accept_object` is the reply to a client that has guessed the depth of a key's group (AcceptObject, §V.B, Figure
4), both for reads and for writes. In the store, one script makes the reply and carries out the write, so that the group
that accepts a record also stores it. A redirected client presents the :class:`Move` as a proof. If the balancer has not
informed this keyspace yet, the proof makes the keyspace accept the group.
"""

import msgspec
from msgspec.structs import replace

from service.clash.key_groups import KeyGroup, Keyspace, KeyspaceMap, check_key
from service.clash.server_table import GroupState, Move, MoveKind, MoveStage, ServerTable, TableEntry
from service.errors import MoveRefused


def split(table: ServerTable, group: KeyGroup, keyspaces: KeyspaceMap) -> ServerTable:
    """Split ``group``: the left half stays in this keyspace, the right half moves to another. Return the new table.

    - ``table``: the table of this keyspace.
    - ``keyspaces``: maps groups to keyspaces.

    If the right half is mapped to this same keyspace, the right half is split in turn, until a right half is mapped to
    another keyspace (§V.A, last sentence). Raises :class:`MoveRefused` if the group is already split or lacks records,
    or if this keyspace is busy with another move.
    """
    _check_idle(table, group)
    if table.state(group) is not GroupState.ACTIVE:
        raise MoveRefused(f"{group.label} cannot be split: it is {table.state(group) or 'not here'}.")
    changed: dict[KeyGroup, TableEntry | None] = {}
    parent = table.entries[group].parent
    child = table.keyspace
    while child == table.keyspace:
        if group.depth == table.bits:
            raise MoveRefused(f"{group.label} cannot be split: that needs a key of more than {table.bits} bits.")
        child = keyspaces.keyspace_of(group.right)
        changed[group] = TableEntry(GroupState.SPLIT, parent, child)
        changed[group.left] = TableEntry(GroupState.ACTIVE, table.keyspace)
        parent, group = table.keyspace, group.right
    return _begin_move(table.with_entries(changed), MoveKind.SPLIT, child, group, MoveStage.GIVING)


def accept_key_group(table: ServerTable, move: Move) -> ServerTable:
    """Begin to accept the right half of the group that is split by ``move``; return the new table.

    ``table`` is the current table of the keyspace that receives the right half. A keyspace never declines a group
    (ACCEPT_KEYGROUP, §V.A). The table does not change if the step is repeated or arrives late.
    """
    if move.number <= table.seen.get(move.keyspace, 0):
        return table
    arrived = TableEntry(GroupState.ARRIVING, parent=move.keyspace)
    seen = {**table.seen, move.keyspace: move.number}
    return replace(table.with_entries({move.group: arrived}), seen=seen)


def mark_emptied(table: ServerTable, move: Move) -> ServerTable:
    """Mark the split ``move`` as emptied, because all records of the right half have left; return the new table.

    ``table`` is the current table of the undivided group's keyspace. This step must precede :func:`settle` in the right
    half's keyspace.
    """
    # After settle, the right child may be split again, and a part of it may be moved to this keyspace. This part must
    # not be transferred back.
    return replace(table, stage=MoveStage.EMPTIED) if _is_at(table, move, MoveStage.GIVING) else table


def settle(table: ServerTable, move: Move) -> ServerTable:
    """Mark the right half as complete, because all records of the split ``move`` have arrived; return the new table.

    ``table`` is the current table of the right half's keyspace. From now on, the right half may be split or merged.
    """
    if not is_taking(table, move):
        return table
    return table.with_entries({move.group: TableEntry(GroupState.ACTIVE, parent=move.keyspace)})


def merge(table: ServerTable, group: KeyGroup) -> ServerTable:
    """Merge the halves of a group if both are in this keyspace; otherwise plan the merge. Return the new table.

    ``table`` is the table of the group's keyspace. A planned merge is carried out only if the right half's keyspace
    gives up the right half (:func:`give_key_group`). Raises :class:`MoveRefused` if the group is not split, if a
    half in this keyspace is itself split or lacks records, or if this keyspace is busy with another move.
    """
    _check_idle(table, group)
    entry = table.entries.get(group)
    if entry is None or entry.right_child is None or table.state(group.left) is not GroupState.ACTIVE:
        raise MoveRefused(f"{group.label} cannot be merged: its two halves are not leaves at rest.")
    if entry.right_child == table.keyspace:
        if table.state(group.right) is not GroupState.ACTIVE:
            raise MoveRefused(f"{group.label} cannot be merged: its right half is not a leaf at rest.")
        whole = TableEntry(GroupState.ACTIVE, entry.parent)
        return table.with_entries({group: whole, group.left: None, group.right: None})
    return _begin_move(table, MoveKind.MERGE, entry.right_child, group.right, MoveStage.PLANNED)


def give_key_group(table: ServerTable, move: Move) -> ServerTable:
    """Give up the right half of a group for the merge ``move``, or decline to do so; return the new table.

    ``table`` is the current table of the right half's keyspace. The keyspace declines if the right half is split, or
    if some of its records have not arrived yet. It decides on each move only once; :func:`is_giving` returns the
    decision.
    """
    if move.number <= table.seen.get(move.keyspace, 0):
        return table
    table = replace(table, seen={**table.seen, move.keyspace: move.number})
    if table.state(move.group) is not GroupState.ACTIVE:
        return table
    return table.with_entries({move.group: TableEntry(GroupState.LEAVING, parent=move.keyspace)})


def abandon(table: ServerTable, move: Move) -> ServerTable:
    """Drop the planned merge ``move``, which the right half's keyspace has declined; return the new table."""
    return replace(table, move=None, stage=None) if _is_at(table, move, MoveStage.PLANNED) else table


def take_back(table: ServerTable, move: Move) -> ServerTable:
    """Begin to accept the keys of the whole group again, as a step of the merge ``move``; return the new table.

    ``table`` is the current table of the keyspace that planned the merge. The records of the right half arrive later.
    """
    if not _is_at(table, move, MoveStage.PLANNED):
        return table
    whole = move.leaf
    changed = {whole: TableEntry(GroupState.RETURNING, table.entries[whole].parent), whole.left: None}
    return replace(table.with_entries(changed), stage=MoveStage.TAKING)


def forget(table: ServerTable, move: Move) -> ServerTable:
    """Remove the right half from its keyspace's table after the merge ``move``; return the new table.

    All records of the right half must have been fetched.
    """
    return table.with_entries({move.group: None}) if is_giving(table, move) else table


def finish(table: ServerTable, move: Move) -> ServerTable:
    """End ``move`` in the keyspace that began it; return the new table of this keyspace.

    ``table`` is this keyspace's current table. All records must have arrived. After a merge, the right half's keyspace
    must also have removed the right half.
    """
    if table.move != move or table.stage is MoveStage.PLANNED:
        return table
    table = replace(table, move=None, stage=None)
    if move.kind is MoveKind.SPLIT:
        return table
    return table.with_entries({move.leaf: TableEntry(GroupState.ACTIVE, table.entries[move.leaf].parent)})


def is_giving(table: ServerTable, move: Move) -> bool:
    """Return whether the keyspace with this table is currently giving away the records of ``move``."""
    if move.kind is MoveKind.SPLIT:
        return _is_at(table, move, MoveStage.GIVING)
    return table.state(move.group) is GroupState.LEAVING and _is_latest(table, move)


def is_taking(table: ServerTable, move: Move) -> bool:
    """Return whether the keyspace with this table is currently receiving the records of ``move``."""
    if move.kind is MoveKind.MERGE:
        return _is_at(table, move, MoveStage.TAKING)
    return table.state(move.group) is GroupState.ARRIVING and _is_latest(table, move)


def _check_idle(table: ServerTable, group: KeyGroup) -> None:
    if table.move is not None:
        raise MoveRefused(f"{group.label} has to wait: keyspace {table.keyspace} is busy with another move.")


def _begin_move(
    table: ServerTable, kind: MoveKind, child: Keyspace, right_child: KeyGroup, stage: MoveStage
) -> ServerTable:
    number = table.moves + 1
    move = Move(number, kind, table.keyspace, child, right_child)
    return replace(table, moves=number, move=move, stage=stage)


def _is_at(table: ServerTable, move: Move, stage: MoveStage) -> bool:
    """Return whether ``move`` is the current move in ``table`` and is at exactly this stage.

    ``table`` is the table of the keyspace that began the move.
    """
    return table.move == move and table.stage is stage


def _is_latest(table: ServerTable, move: Move) -> bool:
    """Return whether ``move`` is the last move from ``move.keyspace`` that this table has seen.

    ``table`` is the table of the right half's keyspace.
    """
    return table.seen.get(move.keyspace) == move.number


NO_PREFIX_MATCH = -1
"""The prefix match that a keyspace without groups reports. It implies that the true depth is at least -1 + 1 = 0."""


class Accepted(msgspec.Struct, frozen=True):
    """The reply OK to a client: this keyspace accepts the key, whether or not the client guessed the right depth.

    - ``group``: the key's group.
    - ``move``: the move that is still bringing records of the group from another keyspace; None if the group has all
      its records. During the move, readers must read the other keyspace too.
    """

    group: KeyGroup
    move: Move | None = None


class IncorrectDepth(msgspec.Struct, frozen=True):
    """The reply INCORRECT_DEPTH to a client: this keyspace does not accept the key.

    - ``min_depth``: the true depth of the key's group is at least ``min_depth + 1`` (Theorem 1).
    - ``moved``: the split or merge that is moving the key's group to another keyspace. The client can send the key to
      that keyspace. None if the group is not being moved.
    """

    min_depth: int
    moved: Move | None = None


AcceptObjectReply = Accepted | IncorrectDepth


def apply_proof(table: ServerTable, proof: Move | None) -> ServerTable:
    """Accept the group that a client's proof assigns to this keyspace; return the new table.

    The proof is the move by which another keyspace has given a group to this keyspace. The table does not change if the
    proof is None, outdated, or names another keyspace as the receiver.
    """
    if proof is None or proof.taker != table.keyspace:
        return table
    return accept_key_group(table, proof) if proof.kind is MoveKind.SPLIT else take_back(table, proof)


def accept_object(table: ServerTable, key: int) -> AcceptObjectReply:
    """Return a keyspace's reply to a client's request to accept ``key``; ``table`` is the keyspace's table.

    Raises :class:`BadKey` if the key is not as long as the keys in the table.
    """
    # Deviation from Figure 4: the client's guess is not an argument, because the reply does not depend on it.
    check_key(key, table.bits)
    leaf = table.leaf(key)
    if leaf is not None:
        return Accepted(leaf, pending_move(table, leaf))
    known = [group for group, entry in table.entries.items() if entry.state is not GroupState.LEAVING]
    min_depth = max((group.common_bits(key) for group in known), default=NO_PREFIX_MATCH)
    return IncorrectDepth(min_depth, _departing_move(table, key))


def pending_move(table: ServerTable, leaf: KeyGroup) -> Move | None:
    """Return the move that is still bringing records into the group ``leaf``; None if all its records have arrived."""
    entry = table.entries[leaf]
    if entry.state is GroupState.RETURNING:
        return table.move
    if entry.state is GroupState.ARRIVING and entry.parent is not None:
        return Move(table.seen[entry.parent], MoveKind.SPLIT, entry.parent, table.keyspace, leaf)
    return None


def _departing_move(table: ServerTable, key: int) -> Move | None:
    """Return the move that is taking the key's group to another keyspace; None if there is none.

    During the move, a client can always be redirected to that other keyspace.
    """
    # The whole group is a leaf there, or becomes one when a client presents the move as a proof. The group cannot be
    # split there before all its records have arrived.
    if table.move is not None and key in table.move.group and is_giving(table, table.move):
        return table.move
    for group, entry in table.entries.items():
        if entry.state is GroupState.LEAVING and key in group and entry.parent is not None:
            return Move(table.seen[entry.parent], MoveKind.MERGE, entry.parent, table.keyspace, group)
    return None
