"""How large a matrix is: asked of the head, or, where that has no record, of the cells that must be there (§IV.B.1)."""

from service.discovery.cell import Answer, Lead, Look, Standing
from service.discovery.dialogue import Dialogue
from service.discovery.head import Matrix, recovered
from service.discovery.load import Limits
from service.discovery.matrix import Pair, Size, head_of, probed


def sized(pair: Pair, limits: Limits) -> Dialogue[Size | None]:
    """Return a matrix's size; None if nothing has been registered in it."""
    (head,) = yield [Look(head_of(pair))]
    if head.matrix is not None:
        return head.matrix.size
    sizes = yield from _probe(pair, limits)
    return max(sizes, default=None)


def led(pair: Pair, limits: Limits) -> Dialogue[Matrix]:
    """Return a matrix's record; where there is none, make one, and recover what other cells know of it (§IV.C.5)."""
    (head,) = yield [Look(head_of(pair))]
    while head.matrix is None:
        sizes = yield from _probe(pair, limits)
        found = recovered(sizes) if sizes else Matrix()
        standing = Standing.FILLING if sizes else Standing.OPEN
        (head,) = yield [Lead(head_of(pair), None, found, standing)]
    return head.matrix


def _probe(pair: Pair, limits: Limits) -> Dialogue[list[Size]]:
    answers = yield [Look(place) for place in probed(pair, limits.partitions, limits.replicas)]
    return [answer.member.size for answer in answers if answer.member is not None]


def latest(size: Size, *answers: Answer) -> Size:
    """Return the newest size known: this one, or what cells say. What closed cells say is of no use to others."""
    told = [answer.member.size for answer in answers if answer.member and not answer.stands(Standing.CLOSED)]
    return max([size, *told])
