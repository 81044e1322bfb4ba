"""Dialogues: what is asked of cells, round by round.

A dialogue is a generator that yields the commands of one round, all of which may be sent at once and arrive in any
order, and is sent their answers in theirs. It keeps nothing outside itself: whoever leads it may abandon it anywhere.
"""

from collections.abc import Generator, Sequence
from typing import TypeVar

from service.discovery.cell import Answer, Command

T = TypeVar("T")

Dialogue = Generator[Sequence[Command], Sequence[Answer], T]


def together(dialogues: Sequence[Dialogue[T]]) -> Dialogue[list[T]]:
    """Lead several dialogues at once, their rounds as one; return their results, in their order."""
    results: dict[int, T] = {}
    rounds: dict[int, Sequence[Command]] = {}
    answers: dict[int, Sequence[Answer]] = {}
    while True:
        for place, dialogue in enumerate(dialogues):
            if place in results:
                continue
            try:
                rounds[place] = dialogue.send(answers[place]) if place in answers else next(dialogue)
            except StopIteration as stopped:
                results[place] = stopped.value
                rounds.pop(place, None)
        if not rounds:
            return [results[place] for place in range(len(dialogues))]
        heard = iter((yield [command for commands in rounds.values() for command in commands]))
        answers = {place: [next(heard) for _ in commands] for place, commands in rounds.items()}
