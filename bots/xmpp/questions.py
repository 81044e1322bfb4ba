"""What we asked and await: requests (``<iq/>``) by id, and whom they went to."""

import asyncio
import secrets
from typing import Any, Final

from bots.link import LinkLost

_PING: Final = "{urn:xmpp:ping}ping"

Answer = asyncio.Future[Any]
"""Becomes the answer's element, be it a result or an error. May raise :class:`LinkLost`."""


class Questions:
    """Requests under way. An answer counts only if it comes from where the question went."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[str, Answer]] = {}

    def opened(self, to: str) -> tuple[str, Answer]:
        """Return an id that nobody can guess, and what becomes of the request with it."""
        ident = secrets.token_hex(8)
        answer: Answer = asyncio.get_running_loop().create_future()
        self._open[ident] = (to, answer)
        answer.add_done_callback(lambda _: self._open.pop(ident, None))  # also when nobody waits any more
        return ident, answer

    def closed(self, iq: Any) -> bool:
        """Whether this answers a request of ours, which is then over."""
        ident = iq.get("id", "")
        if iq.get("type") not in ("result", "error") or ident not in self._open:
            return False
        to, answer = self._open[ident]
        if iq.get("from", to) != to:
            return False
        del self._open[ident]
        if not answer.done():
            answer.set_result(iq)
        return True

    def returned(self, iq: Any) -> bool:
        """Whether this is a ping of ours to ourselves: that it came back answers it, without another round trip."""
        if iq.get("type") != "get" or iq.find(_PING) is None or iq.get("id", "") not in self._open:
            return False
        _, answer = self._open.pop(iq.get("id"))
        if not answer.done():
            answer.set_result(iq)
        return True

    def lost(self) -> None:
        """The session ended: nothing of this will be answered."""
        unanswered, self._open = self._open, {}
        for _, answer in unanswered.values():
            if not answer.done():
                answer.set_exception(LinkLost("The XMPP session ended before the server answered."))
