"""The trace of a poll: short texts about its steps for the user who requested it (``poll now``).

The listener that receives the texts is a context variable. Therefore it receives the steps of polls that its own task
awaits, and no others.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

_LISTENER: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


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
