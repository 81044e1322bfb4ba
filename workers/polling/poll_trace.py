"""The trace of a poll: descriptions of its steps, for a user who requested the poll and waits for the result."""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

_LISTENER: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)
"""The function that receives descriptions of the steps of polls in the current task, for a user who waits."""


def trace(text: str) -> None:
    """Pass the description of a step to this task's listener; without a listener nothing happens."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(text)


@contextlib.contextmanager
def trace_listener(listener: Callable[[str], None]) -> Iterator[None]:
    """Call ``listener`` with each step that is traced inside this context."""
    before = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(before)
