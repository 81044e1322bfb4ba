"""Values as text for people: numbers with units, times, outcomes, lengths of time, and differences of texts. Pure."""

import re
from calendar import day_name, month_abbr
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from difflib import SequenceMatcher
from typing import Final, Literal, NamedTuple
from urllib.parse import urlsplit

from service.corona.fleet_policy import ChannelBounds
from service.corona.poll_explanation import BindingConstraint, PollExplanation
from service.errors import UserError
from service.feeds.polling_hints import DAY_S
from service.feeds.urls import selector_of, without_selector
from service.model import PollingHints
from service.users.quiet_hours import local_datetime

_MINUTE_S = 60
_HOUR_S = 3600
_KIB = 1024
_LETTERS = {"http": "HTTP", "tls": "TLS", "url": "URL"}
_BEFORE_UNIT: Final = re.compile(r"(?<=\d) (?=[^\W\d])")
_UNITS_S: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_NAMES: Final = {86_400: "days", 3_600: "h", 60: "min", 1: "s"}
_SPAN: Final = re.compile(r"(\d{1,9}(?:[.,]\d{1,3})?)\s*(s|sec|m|min|h|hours?|d|days?)?", re.IGNORECASE)
_WORD: Final = re.compile(r"\s*\S+")
_MOST_WORDS: Final = 400
_MOST_PAIRS: Final = 10_000
"""Of equal words in both texts, which is what a comparison's time grows with; texts that people write have fewer."""
_WELL = {"new": "New entries", "unchanged": "Unchanged"}


def count(number: float, one: str, several: str = "") -> str:
    """Return a number with its noun: ``1 node``, ``1,204 nodes``."""
    noun = one if number == 1 else several or f"{one}s"
    return f"{number:,.0f} {noun}"


def duration(length_s: float) -> str:
    """Return a length of time in one unit, rounded: ``40 ms``, ``12 s``, ``3 min``, ``5 h``, ``2 days``."""
    if length_s < 1:
        return f"{length_s * 1000:.0f} ms"
    if length_s < _MINUTE_S:
        return f"{length_s:.0f} s"
    if length_s < _HOUR_S:
        return f"{length_s / _MINUTE_S:.0f} min"
    if length_s < 2 * DAY_S:
        return f"{length_s / _HOUR_S:.0f} h"
    return f"{length_s / DAY_S:.0f} days"


def ago(then_s: float, now_s: float) -> str:
    """Return how long before ``now_s`` something was; clocks may differ, so the near future is now."""
    past_s = now_s - then_s
    return "just now" if past_s < 1 else f"{duration(past_s)} ago"


def size(size_bytes: float) -> str:
    """Return an amount of data: ``512 B``, ``3.4 KiB``, ``1.2 MiB``."""
    if size_bytes < _KIB:
        return f"{size_bytes:.0f} B"
    if size_bytes < _KIB * _KIB:
        return f"{size_bytes / _KIB:.1f} KiB"
    return f"{size_bytes / _KIB / _KIB:.1f} MiB"


def percent(share: float, places: int = 0, sign: Literal["", "+"] = "") -> str:
    """Return a share of 1 in hundredths: ``95 %``, ``12.5 %``, with its sign ``+3 %``."""
    return f"{100 * share:{sign},.{places}f} %"


def requests(per_s: float) -> str:
    """Return how often somebody may be asked: ``1 request per s``."""
    return f"{per_s:g} {'request' if per_s == 1 else 'requests'} per s"


def instant(unix_s: float) -> str:
    """Return a moment as ISO 8601 in UTC, to the second; what cannot be a date is an em dash."""
    try:
        return datetime.fromtimestamp(unix_s, UTC).isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return "—"


def clock(unix_s: float, zone: str, until: Literal["day", "second"] = "second") -> str:
    """Return a moment by the clocks of a zone: ``3 May 2026, 14:05:09 CEST``; what cannot be a date is an em dash."""
    try:
        local = local_datetime(unix_s, zone)
    except (ValueError, OverflowError, OSError):
        return "—"
    day = f"{local.day} {month_abbr[local.month]} {local.year}"
    return day if until == "day" else f"{day}, {local:%H:%M:%S %Z}"


def short_id(identifier: str) -> str:
    """Return the first digits of a node's or channel's id, enough to tell them apart by eye."""
    return identifier[:8]


def went_well(outcome: str) -> bool:
    """Return whether a poll's outcome is one we hope for."""
    return outcome in _WELL


def outcome_words(outcome: str) -> str:
    """Return a poll's outcome as words; an error's code is made of them: ``tls-failed`` is ``TLS failed``."""
    if outcome in _WELL:
        return _WELL[outcome]
    first, *rest = (_LETTERS.get(word, word) for word in outcome.split("-"))
    return " ".join([first[:1].upper() + first[1:], *rest])


def state_words(state: str) -> str:
    """Return what becomes of a channel, as a word."""
    return {"idle": "Not polled"}.get(state, state.capitalize())


def web_address(link: str) -> str:
    """Return the link if a browser may be sent there, else ''."""
    try:
        return link if urlsplit(link).scheme in {"http", "https"} else ""
    except ValueError:
        return ""


def wishes_in_words(wishes: PollingHints) -> str:
    """Return how often a publisher wants to be asked, as its documents say; "" if they say nothing."""
    words = []
    named_s = [wait_s for wait_s in (wishes.ttl_s, wishes.update_period_s) if wait_s is not None]
    heeded_s = [wait_s for wait_s in named_s if wait_s <= DAY_S]
    if heeded_s:
        words.append(f"{duration(max(heeded_s))} between two polls")
    elif named_s:
        words.append(f"{duration(max(named_s))} between two polls (ignored: more than a day)")
    if wishes.skip_hours:
        words.append(f"none from {' and '.join(_spans(wishes.skip_hours))} UTC")
    if wishes.skip_days:
        words.append(f"none on {', '.join(day_name[day] for day in wishes.skip_days)}")
    return "; ".join(words)


_BINDING: Final = {
    BindingConstraint.NONE: "its share of all polls",
    BindingConstraint.LONGEST_WAIT: "nobody is to wait longer",
    BindingConstraint.CHANNEL_WAIT: "nobody is to wait longer for this channel, by its own bounds",
    BindingConstraint.CHANNEL_INTERVAL: "no two polls are to be nearer, by its own bounds",
    BindingConstraint.NODES: "every node takes part",
    BindingConstraint.CHANNEL_BUDGET: "politeness to the publisher allows no more",
    BindingConstraint.HOST_BUDGET: "politeness to the site allows no more",
    BindingConstraint.FLEET_BUDGET: "the budget of the fleet is less than all longest waits take",
}


def binding(bound: BindingConstraint) -> str:
    """Return what a bound is about."""
    return _BINDING[bound]


def bounds_in_words(bounds: ChannelBounds) -> str:
    """Return a channel's own bounds in one line."""
    said = []
    if bounds.longest_wait_s is not None:
        said.append(f"a mean wait of at most {span(bounds.longest_wait_s)}")
    if bounds.shortest_interval_s is not None:
        said.append(f"at least {span(bounds.shortest_interval_s)} between two polls")
    return " and ".join(said) or "as the policy has it"


def tied(text: str) -> str:
    """Return a text in which no line ends between a number and its unit."""
    return _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", text)


def reason_in_words(reason: PollExplanation) -> str:
    """Return how often a channel is polled, and what makes it so."""
    nodes = count(len(reason.turns), "node")
    return f"Every {duration(reason.interval_s / len(reason.turns))}, by {nodes} in turn: {_BINDING[reason.bound]}"


def _spans(hours: Sequence[int]) -> Iterator[str]:
    """Yield the times that hours of a day, in order, cover: 0, 1 and 2 are ``0:00 to 3:00``."""
    starts = [hour for hour in hours if hour - 1 not in hours]
    ends = [hour + 1 for hour in hours if hour + 1 not in hours]
    return (f"{start}:00 to {end}:00" for start, end in zip(starts, ends, strict=True))


def seconds_in(text: str) -> float:
    """Return how many seconds a span has; without a unit, it is in seconds. Raises :class:`UserError`."""
    read = _SPAN.fullmatch(text.strip())
    if read is None:
        raise UserError(f"“{text[:50]}” is no length of time. Write it like “90 s”, “15 min”, “12 h” or “2 days”.")
    return float(read[1].replace(",", ".")) * _UNITS_S[(read[2] or "s")[0].lower()]


def span(length_s: float) -> str:
    """Return a length of time so that :func:`seconds_in` reads it back: in the largest unit that makes it whole."""
    unit_s = next((unit_s for unit_s in _NAMES if length_s >= unit_s and length_s % unit_s == 0), 1)
    name = "day" if unit_s == length_s == _UNITS_S["d"] else _NAMES[unit_s]
    return f"{length_s / unit_s:.3f}".rstrip("0").rstrip(".") + f" {name}"


class Piece(NamedTuple):
    """Some text that stayed, was taken away, or was added."""

    kind: Literal["same", "gone", "new"]
    text: str


def differences(before: str, after: str) -> list[Piece]:
    """Return both texts as one; of long ones, only their beginnings are compared.

    Texts that repeat the same words all the time are not compared, but stand one after the other.
    """
    old, new = _words(before), _words(after)
    in_old, in_new = Counter(old), Counter(new)
    if old != new and sum(count * in_new[word] for word, count in in_old.items()) > _MOST_PAIRS:
        return [Piece("gone", "".join(old)), Piece("new", "".join(new))]
    return list(_pieces(old, new))


def _words(text: str) -> list[str]:
    return _WORD.findall(text.rstrip())[:_MOST_WORDS]


def _pieces(old: list[str], new: list[str]) -> Iterator[Piece]:
    for what, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if what == "equal":
            yield Piece("same", "".join(new[k:m]))
            continue
        if j > i:
            yield Piece("gone", "".join(old[i:j]))
        if m > k:
            yield Piece("new", "".join(new[k:m]))


FILTERS: Final[Mapping[str, Callable[..., object]]] = {
    function.__name__: function
    for function in (
        *(count, duration, ago, size, percent, requests, instant, clock, short_id, went_well, outcome_words),
        *(state_words, web_address, differences, wishes_in_words, reason_in_words, binding),
        *(selector_of, without_selector, bounds_in_words, tied),
    )
}
