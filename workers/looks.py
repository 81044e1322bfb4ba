"""What probes saw and were not to keep, for a while: whoever then wants it kept needs not ask the publisher again."""

from collections import OrderedDict
from typing import Final

import msgspec

from service.feeds.wire import Findings
from service.model import Channel
from service.net.fetch import Fetched
from service.store.requests import Probe

_MOST: Final = 16
"""What is remembered of a large page may be as large as that."""
_GOOD_FOR_S: Final = 600.0


class Look(msgspec.Struct, frozen=True):
    """A channel that is not there yet, what it was ``fetched`` from (without the body), and what that says."""

    channel: Channel
    fetched: Fetched
    findings: Findings
    discovered: bool


class Looks:
    """The latest looks, by what was asked. Times are of any one clock (s)."""

    def __init__(self) -> None:
        """Hold nothing yet."""
        self._seen: OrderedDict[tuple[str, bool], tuple[Look, float]] = OrderedDict()

    def put(self, asked: Probe, look: Look, now_s: float) -> None:
        """Hold a look, in the place of the oldest if there are too many."""
        self._seen.pop(_key(asked), None)
        self._seen[_key(asked)] = look, now_s
        while len(self._seen) > _MOST:
            self._seen.popitem(last=False)

    def take(self, asked: Probe, now_s: float) -> Look | None:
        """Return what was seen when the same was asked, and hold it no longer; None if that was too long ago."""
        look, at_s = self._seen.pop(_key(asked), (None, now_s))
        return look if now_s - at_s <= _GOOD_FOR_S else None


def _key(asked: Probe) -> tuple[str, bool]:
    return asked.url, asked.as_page
