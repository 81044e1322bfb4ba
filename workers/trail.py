"""What a poll does, told step by step while it does it, to whoever asked for that poll."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_LISTENER: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


def tell(words: str) -> None:
    """Tell the next step, a few words for people, if anybody listens in this task."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(words)


@contextmanager
def listening(listener: Callable[[str], None]) -> Iterator[None]:
    """Hear the steps that this task tells."""
    before = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(before)
