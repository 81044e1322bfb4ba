"""The trace of a poll: short texts about its steps for the user who requested it (``poll now``).

The listener that receives the texts is a context variable. Therefore it receives the steps of polls that its own task
awaits, and no others.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

from service.net.fetcher import FetchResult
from workers.polling.poll_state import DetectedUpdate

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


def trace_request(host: str, *, is_conditional: bool) -> None:
    """Trace that a document is requested from ``host``.

    ``is_conditional`` states whether the request asks for the document only if it has changed.
    """
    trace(f"Requesting {'changes' if is_conditional else 'the whole document'} from {host}.")


def trace_response(fetched: FetchResult) -> None:
    """Trace the status and size of a response, and its permanent redirect if there was one."""
    size = f"{len(fetched.body):,} bytes" if fetched.body is not None else "no body"
    trace(f"{fetched.address or fetched.url} responded with status {fetched.status}, {size}.")
    if fetched.permanent_url:
        trace(f"It has moved permanently to {fetched.permanent_url}.")


def trace_update(update: DetectedUpdate | None) -> None:
    """Trace the number of changes that were found in a document; None means that there are no changes."""
    count = len(update.candidate.delta.changes) if update is not None else 0
    changes = "nothing new" if update is None else f"{count} change{'' if count == 1 else 's'}"
    trace(f"Parsed and compared: {changes}.")
