"""Messages on their way out are fewer, and say the same in the same order."""

from service.corona.events import Send
from service.corona.messages import Assign, Assignment, Message, Unassign
from service.corona.protocol import MOST_ASSIGNMENTS, gathered
from service.corona.schedule import Rota
from service.model import NodeId

ONE, OTHER = "1" * 40, "2" * 40


def _assign(*numbers: int, ring_version: int = 1) -> Assign:
    rota = Rota(0.0, 1.0, 1)
    return Assign(ring_version, tuple(Assignment(f"{number:040x}", 0, rota, 1) for number in numbers))


def _to(node: NodeId, *messages: Message) -> list[Send]:
    return [Send(node, message) for message in messages]


def test_assignments_to_one_node_travel_together() -> None:
    sends = [Send(node, _assign(number)) for number in (1, 2, 3) for node in (ONE, OTHER)]
    assert gathered(sends) == [Send(ONE, _assign(1, 2, 3)), Send(OTHER, _assign(1, 2, 3))]


def test_what_is_said_in_between_stays_in_between() -> None:
    said = _to(ONE, _assign(1), Unassign(1, f"{1:040x}"), _assign(1), _assign(2))
    assert gathered(said) == _to(ONE, _assign(1), Unassign(1, f"{1:040x}"), _assign(1, 2))


def test_assignments_of_different_rings_stay_apart() -> None:
    said = _to(ONE, _assign(1), _assign(2, ring_version=2), _assign(3, ring_version=2))
    assert gathered(said) == _to(ONE, _assign(1), _assign(2, 3, ring_version=2))


def test_messages_do_not_grow_for_ever() -> None:
    sizes = [len(send.message.assignments) for send in gathered(_to(ONE, *map(_assign, range(2_500))))]  # type: ignore[union-attr]  # all are Assign
    assert sizes == [MOST_ASSIGNMENTS, MOST_ASSIGNMENTS, 500]
