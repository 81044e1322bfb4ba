"""A table as the fields of a Redis hash, as people can read it and scripts can change it, one field for each entry.

::

    bits           N
    moves          how many moves this keyspace has begun
    move           the one under way: NUMBER KIND CHILD GROUP STAGE
    seen:7         the greatest number of keyspace 7's moves that was seen here
    011*           a group: STANDING parent=… right=…; what there is not is left out
"""

from collections.abc import Mapping
from re import fullmatch

from service.clash.groups import KeyGroup
from service.clash.mapping import Keyspace, Keyspaces
from service.clash.table import Entry, Kind, Move, ServerTable, Stage, Standing
from service.errors import BadKey

_ENTRY = r"(active|arriving|returning|split|leaving|recalled)(?: parent=(\d+))?(?: right=(\d+))?"
_MOVE = r"(\d+) (split|merge) (\d+) ([01]*\*?) (giving|emptied|planned|taking)"


def to_fields(table: ServerTable) -> dict[str, str]:
    """Return the fields that :func:`from_fields` reads."""
    fields = {"bits": str(table.bits), "moves": str(table.moves)}
    if table.move is not None:
        move = table.move
        fields["move"] = f"{move.number} {move.kind} {move.child} {move.group.label} {table.stage}"
    fields |= {f"seen:{keyspace}": str(number) for keyspace, number in table.seen.items()}
    return fields | {group.label: _entry_text(entry) for group, entry in table.entries.items()}


def from_fields(keyspace: Keyspace, fields: Mapping[str, str], keyspaces: Keyspaces, bits: int) -> ServerTable:
    """Read a keyspace's table of keys of so many bits.

    Raises :class:`UnknownKeyspace` if it names a keyspace that there is not, or is itself one, and :class:`BadKey` if
    its groups are not of such keys or it is not a table.
    """
    keyspaces.check(keyspace)
    if _number(fields.get("bits", "")) != bits:
        raise BadKey(f"Keyspace {keyspace} has keys of {fields.get('bits')} bits, not {bits}: it has another layout.")
    own = {name: text for name, text in fields.items() if name not in ("bits", "moves", "move")}
    seen = {_number(name[5:]): _number(text) for name, text in own.items() if name.startswith("seen:")}
    entries = {
        KeyGroup.labelled(name, bits): _entry(text) for name, text in own.items() if not name.startswith("seen:")
    }
    move, stage = _move(keyspace, fields["move"], bits) if "move" in fields else (None, None)
    named = {place for entry in entries.values() for place in (entry.parent, entry.right_child)}
    for place in {*seen, *named, move.child if move else None} - {None}:
        keyspaces.check(place or 0)
    return ServerTable(keyspace, bits, entries, _number(fields.get("moves", "")), move, stage, seen)


def _entry_text(entry: Entry) -> str:
    named = (("parent", entry.parent), ("right", entry.right_child))
    return " ".join([entry.standing.value, *(f"{name}={place}" for name, place in named if place is not None)])


def _entry(text: str) -> Entry:
    found = fullmatch(_ENTRY, text)
    if found is None:
        raise BadKey(f"{text!r} describes no group of a keyspace's table.")
    standing, *places = found.groups()
    return Entry(Standing(standing), *(None if place is None else int(place) for place in places))


def _move(keyspace: Keyspace, text: str, bits: int) -> tuple[Move, Stage]:
    found = fullmatch(_MOVE, text)
    if found is None:
        raise BadKey(f"{text!r} describes no move of a keyspace's table.")
    number, kind, child, label, stage = found.groups()
    return Move(int(number), Kind(kind), keyspace, int(child), KeyGroup.labelled(label, bits)), Stage(stage)


def _number(text: str) -> int:
    if not text.isdecimal():
        raise BadKey(f"{text!r} is no number of a keyspace's table.")
    return int(text)
