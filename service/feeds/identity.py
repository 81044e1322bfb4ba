"""Which entries are new: identity decided per channel, by what that channel does. Pure.

Every entry leaves *traces* in the channel's state: hashes of its id, of where it leads, of its title
and of its content. A *token* is one trace, or a pair of them, that may identify an entry. An entry's
key is its first token, from the most to the least trustworthy, that no other entry of the document
and no two remembered entries share; it is new if nothing remembered has that token.

- An id that several entries share therefore counts only together with the link, title or content.
- If all ids of a document are new although at least half of its entries are known by everything
  else, the channel makes up its ids at every poll: they are ignored from then on.
- Dates decide only between entries that have neither id nor link and are alike in everything else.
- Remembered are the last max(4 times the largest document, 500) entries, and of the 2,000 last ones those
  seen in the last 90 days; what was seen longest ago goes first. What the document holds stays, and
  nothing goes because it is absent: a feed may shrink to nothing and return.
- A channel that has listed nothing so far, and now lists much, is rather a feed that was broken than a
  publisher that wrote it all since: what is dated before the first poll is old, and of what has no date
  the first 3 are news. (All would be a flood; none would hide the first entry of a new blog.)
"""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple, Self

import msgspec

from service.feeds.entries import CLOCK_ERROR_S, newest_first, published_s, to_entry
from service.feeds.limits import MAX_ENTRIES
from service.feeds.traces import NO_TRACE, Token, Traces, address, pack, traces_of, unpack
from service.model import Entry, ParsedEntry, ParsedFeed

MIN_REMEMBERED = 500
REMEMBERED_DOCUMENTS = 4
MAX_REMEMBERED = REMEMBERED_DOCUMENTS * MAX_ENTRIES
REMEMBERED_DAYS = 90
LATEST_COUNT = 10
UNDATED_AT_START = 3
_DAY_S = 86_400


class IdentityState(msgspec.Struct, frozen=True, array_like=True):
    """What is remembered of a channel: packed traces, those seen last at the end; at most 66 kB.

    ``days`` (since 1970) tell for each when it was seen last, ``first_poll_s`` when the channel began.
    """

    first_poll_s: float
    remembered: bytes = b""
    days: tuple[int, ...] = ()
    largest_document: int = 0
    ids_change: bool = False


class Decision(msgspec.Struct, frozen=True):
    """``new``: what to tell subscribers, oldest first. ``latest``: up to 10 entries, newest first."""

    state: IdentityState
    new: tuple[Entry, ...]
    latest: tuple[Entry, ...]


def decide(state: IdentityState | None, feed: ParsedFeed, *, url: str, now_s: float) -> Decision:
    """Return what is new in ``feed``, the present document of the channel ``url``, and what to remember.

    ``state`` is None at the first poll: everything is recorded and nothing is new. ``now_s`` (Unix
    time) tells possible dates from impossible ones.
    """
    before = state or IdentityState(now_s)
    remembered = unpack(before.remembered)
    homes = {address(url), address(feed.link)}
    traces = {entry: traces_of(entry, homes=homes) for entry in feed.entries}
    listed = [each for each in traces.values() if not each.is_empty]
    memory = _Memory.of(remembered, listed)
    ids_change = before.ids_change or _all_ids_changed(listed, memory.entries)
    found = _identified(listed, memory, with_ids=not ids_change)

    shown = {found[each].key: entry for entry, each in reversed(traces.items()) if each in found}
    ordered = newest_first([shown[key] for key in reversed(shown)], now_s=now_s)
    unknown = [entry for entry in ordered if found[traces[entry]].match is None]
    news = unknown if remembered else _since(before.first_poll_s, unknown, now_s=now_s)
    new = reversed(news) if state is not None else ()
    return Decision(
        state=_state_after(before, remembered, found.values(), ids_change=ids_change, today=int(now_s // _DAY_S)),
        new=tuple(to_entry(entry, found[traces[entry]].key, now_s=now_s) for entry in new),
        latest=tuple(to_entry(entry, found[traces[entry]].key, now_s=now_s) for entry in ordered[:LATEST_COUNT]),
    )


class _Memory(NamedTuple):
    """The remembered entries that can matter, and for each token how many have it and the last that has."""

    entries: list[Traces]
    counts: Counter[Token]
    last: dict[Token, Traces]

    @classmethod
    def of(cls, remembered: Sequence[Traces], listed: Sequence[Traces]) -> Self:
        seen = {trace for each in listed for trace in (each.id, each.place, each.body, each.dated)} - {NO_TRACE}
        entries = [each for each in remembered if each.may_be_one_of(seen)]
        pairs = [(token, each) for each in entries for token in each.every_token()]
        return cls(entries, Counter(token for token, _ in pairs), dict(pairs))


class _Identity(NamedTuple):
    """What stands for one entry of the document, and the remembered entry it is, if any."""

    traces: Traces
    key: str
    match: Traces | None


def _identified(listed: Sequence[Traces], memory: _Memory, *, with_ids: bool) -> dict[Traces, _Identity]:
    """Return the identity of each entry of the document; of entries with one key only the first."""
    present = Counter(token for each in listed for token in each.tokens(with_ids=with_ids))
    found: dict[str, _Identity] = {}
    for each in listed:
        tokens = each.tokens(with_ids=with_ids)
        usable = [token for token in tokens if present[token] == 1 and _is_reliable(token, each, memory)]
        deciding = (usable or [tokens[-1]])[: None if tokens == each.text_tokens() else 1]
        match = next((memory.last[token] for token in deciding if token in memory.last), None)
        key = b"".join(deciding[0]).hex()
        found.setdefault(key, _Identity(each, key, match))
    return {identity.traces: identity for identity in found.values()}


def _is_reliable(token: Token, traces: Traces, memory: _Memory) -> bool:
    """Say whether the token has meant one entry so far, and can mean this one."""
    return memory.counts[token] == 0 or (memory.counts[token] == 1 and not traces.contradicts(memory.last[token]))


def _all_ids_changed(listed: Sequence[Traces], remembered: Sequence[Traces]) -> bool:
    """Say whether every id is new though at least half of the entries that have one are old friends."""
    with_ids = [each for each in listed if each.id != NO_TRACE]
    if not with_ids or {each.id for each in with_ids} & {each.id for each in remembered}:
        return False
    places, bodies = Counter(each.place for each in with_ids), Counter(each.body for each in with_ids)
    old_bodies = {(each.place, each.body) for each in remembered}
    old_titles = {(each.place, each.title) for each in remembered}
    old_dates = {(each.body, each.dated) for each in remembered if each.dated != NO_TRACE}

    def is_old(each: Traces) -> bool:
        if each.place == NO_TRACE:
            alone = len(with_ids) == 1
            return (
                (each.body, each.dated) in old_dates
                if alone
                else (bodies[each.body] == 1 and (each.place, each.body) in old_bodies)
            )
        listed_once = len(with_ids) > 1 and places[each.place] == 1
        return (each.place, each.body) in old_bodies or (listed_once and (each.place, each.title) in old_titles)

    return 2 * sum(map(is_old, with_ids)) >= len(with_ids)


def _since(first_poll_s: float, entries: Sequence[ParsedEntry], *, now_s: float) -> list[ParsedEntry]:
    """Return the entries that are not clearly older than the first poll, and of those without a date 3."""
    dates = [published_s(entry, now_s=now_s) for entry in entries]
    undated = [place for place, date in enumerate(dates) if date is None][:UNDATED_AT_START]
    dated = [place for place, date in enumerate(dates) if date is not None and date >= first_poll_s - CLOCK_ERROR_S]
    return [entries[place] for place in sorted(undated + dated)]


def _state_after(
    before: IdentityState, remembered: Sequence[Traces], found: Collection[_Identity], *, ids_change: bool, today: int
) -> IdentityState:
    largest = max(before.largest_document, len(found))
    present = [identity.traces for identity in found]
    outdated = {identity.match for identity in found} | set(present)
    lasting = [
        *((each, day) for each, day in zip(remembered, before.days, strict=True) if each not in outdated),
        *((each, today) for each in reversed(present)),
    ]
    surely = len(lasting) - max(MIN_REMEMBERED, REMEMBERED_DOCUMENTS * largest)
    kept = [
        (each, day) for place, (each, day) in enumerate(lasting) if place >= surely or day >= today - REMEMBERED_DAYS
    ][-MAX_REMEMBERED:]
    return IdentityState(
        first_poll_s=before.first_poll_s,
        remembered=pack([each for each, _ in kept]),
        days=tuple(day for _, day in kept),
        largest_document=largest,
        ids_change=ids_change,
    )
