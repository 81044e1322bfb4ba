"""``AcceptObject``: what a keyspace answers to a client that guessed a key's depth (CLASH §V.B, Figure 4).

Writes and reads ask alike. In the store, answering and the write itself are one script, so that what is accepted is
accepted by the leaf. A client that was sent here by the keyspace that gave the group away brings that :class:`Move`
as proof: where the keeper has not been here yet, the proof itself makes this keyspace the taker.
"""

import msgspec

from service.clash.groups import KeyGroup
from service.clash.keys import check_key
from service.clash.merging import take_back
from service.clash.moving import gives
from service.clash.splitting import accept_key_group
from service.clash.table import Kind, Move, ServerTable, Standing

NO_ENTRY = -1
"""The prefix match of a table without entries: nothing is known, the true depth may be 0."""


class Accepted(msgspec.Struct, frozen=True):
    """OK, whether or not the guess was right: ``group`` is the key's leaf, and has its depth.

    ``move`` is set while some of the leaf's subscriptions may still be at its donor: who reads looks there as well.
    """

    group: KeyGroup
    move: Move | None = None


class IncorrectDepth(msgspec.Struct, frozen=True):
    """The key is not accepted here. The true depth is at least ``min_depth + 1`` (Theorem 1).

    ``moved`` is set while the key's group is moving from here: its taker has it.
    """

    min_depth: int
    moved: Move | None = None


Answer = Accepted | IncorrectDepth


def admit(table: ServerTable, proof: Move | None) -> ServerTable:
    """Return the table with what a client's proof says; an outdated or foreign proof says nothing."""
    if proof is None or proof.taker != table.keyspace:
        return table
    return accept_key_group(table, proof) if proof.kind is Kind.SPLIT else take_back(table, proof)


def answer(table: ServerTable, key: int) -> Answer:
    """Return the answer for a key; raises :class:`BadKey` for one of another length.

    We deviate from Figure 4 in not being told the client's guess: the answer does not depend on it.
    """
    check_key(key, table.bits)
    leaf = table.leaf(key)
    if leaf is not None:
        return Accepted(leaf, arriving(table, leaf))
    known = [group for group, entry in table.entries.items() if entry.standing is not Standing.LEAVING]
    min_depth = max((group.common_bits(key) for group in known), default=NO_ENTRY)
    return IncorrectDepth(min_depth, _given_away(table, key))


def arriving(table: ServerTable, leaf: KeyGroup) -> Move | None:
    """Return the move that still fills a leaf, if one does."""
    entry = table.entries[leaf]
    if entry.standing is Standing.RETURNING:
        return table.move
    if entry.standing is Standing.ARRIVING and entry.parent is not None:
        return Move(table.seen[entry.parent], Kind.SPLIT, entry.parent, table.keyspace, leaf)
    return None


def _given_away(table: ServerTable, key: int) -> Move | None:
    """Return the move that is taking the key's group from here.

    Its taker has the whole group as a leaf, or will when it sees the proof: it cannot split it before all has arrived.
    """
    if table.move is not None and key in table.move.group and gives(table, table.move):
        return table.move
    for group, entry in table.entries.items():
        if entry.standing is Standing.LEAVING and key in group and entry.parent is not None:
            return Move(table.seen[entry.parent], Kind.MERGE, entry.parent, table.keyspace, group)
    return None
