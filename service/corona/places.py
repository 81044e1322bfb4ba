"""Places of a rota: who keeps theirs when the ring changes."""

from collections.abc import Sequence

from service.model import NodeId


def refilled(places: tuple[NodeId, ...], nearest: Sequence[NodeId]) -> tuple[NodeId, ...]:
    """Return who has which place once the polling set is ``nearest``: whoever had one keeps it, if there are as many.

    The gaps go to the others, nearest first. The very same places if nobody is new.
    """
    if len(nearest) != len(places):
        return tuple(nearest)
    had, stay = frozenset(places), frozenset(nearest)
    if had == stay:
        return places
    others = (node for node in nearest if node not in had)
    return tuple(node if node in stay else next(others) for node in places)
