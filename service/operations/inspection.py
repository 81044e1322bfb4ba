"""``coronet inspect``: one feed or page, as Coronet sees it, fetched through the same guard and parser."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

import msgspec

from service.corona.fleet_policy import SECONDS_PER_HOUR
from service.feeds.polling_hints import find_earliest_poll
from service.feeds.sandbox.parser_pool import ParserPool
from service.feeds.sandbox.protocol import Document, ParsedDocument
from service.feeds.urls import canonical_url
from service.model import FeedLink, ParsedFeed, ParsedPage, Validators
from service.net.fetcher import Fetcher, FetchResult, user_agent
from service.settings import Settings

_SHOWN = 20


class NextPoll(msgspec.Struct, frozen=True):
    """When the fleet would ask again at the earliest, and what decides that."""

    in_s: float
    why: str


class Item(msgspec.Struct, frozen=True):
    """An entry as its document states it; ``published`` is Unix time, if it is given and possible."""

    id: str
    title: str
    link: str
    published: float | None


class Inspection(msgspec.Struct, frozen=True, rename={"kind": "type"}):
    """What was found. ``url`` answered; a ``page`` has ``lines`` and may lead to ``feeds``."""

    url: str
    status: int
    content_type: str
    size_bytes: int
    took_s: float
    validators: Validators
    kind: Literal["feed", "page"]
    title: str
    link: str
    language: str
    entries: tuple[Item, ...]
    lines: tuple[str, ...]
    feeds: tuple[FeedLink, ...]
    next_poll: NextPoll
    wishes: tuple[str, ...]


async def inspect(url: str, settings: Settings, selector: str = "") -> Inspection:
    """Fetch and read a URL once, of a page only what ``selector`` (CSS) matches.

    Raises the :class:`CoronetError` that a subscriber would be told of.
    """
    fetcher = Fetcher(
        user_agent=user_agent(settings.console_public_url),
        allow_private=settings.allow_private,
        extra_ports=settings.extra_ports,
    )
    async with fetcher, ParserPool(1) as parsers:
        fetched = await fetcher.fetch(canonical_url(url))
        reading = await parsers.parse_document(
            Document(fetched.body or b"", fetched.url, dict(fetched.headers)), selector
        )
    return _inspection(fetched, reading, settings)


def next_poll(settings: Settings, *, private: bool, retry_after_s: float | None, wished_s: float = 0.0) -> NextPoll:
    """Return when the fleet would ask a healthy channel again: after τ/n, where its n is what any channel may count on.

    ``wished_s`` is how long its publisher wants to be left alone in general.
    """
    usual_s = settings.poll_interval_s / settings.polls_per_channel
    polite_s = usual_s if private else max(usual_s, SECONDS_PER_HOUR / settings.max_polls_per_hour)
    if retry_after_s is not None and retry_after_s > polite_s:
        return NextPoll(retry_after_s, "the publisher asked for that (Retry-After)")
    if not private and wished_s > polite_s:
        return NextPoll(wished_s, "the publisher asks for that")
    if polite_s > usual_s:
        why = f"the whole fleet polls a channel at most {settings.max_polls_per_hour:g} times per hour"
        return NextPoll(polite_s, why)
    why = f"{settings.polls_per_channel:g} nodes take turns, each every {settings.poll_interval_s:g} s"
    return NextPoll(usual_s, why)


def as_text(found: Inspection) -> str:
    """Return it for people; nothing a publisher wrote can control the terminal."""
    answer = f"{found.status}, {found.content_type or 'no type'}, {found.size_bytes:,} bytes in {found.took_s:.2f} s"
    rows = {
        "URL": found.url,
        "Answer": answer,
        "ETag": found.validators.etag or "none",
        "Last-Modified": found.validators.last_modified or "none",
        "Type": found.kind,
        "Next poll": f"in {found.next_poll.in_s:,.0f} s at the earliest: {found.next_poll.why}",
    }
    if found.wishes:
        rows["Publisher"] = " ".join(found.wishes)
    if found.kind == "feed":
        rows |= {"Title": found.title, "Link": found.link or "none", "Language": found.language or "not said"}
    lines = [f"{name:<14}{value}" for name, value in rows.items()]
    lines += ["", *(_entries(found.entries) if found.kind == "feed" else _page(found))]
    return "\n".join("".join(letter if letter.isprintable() else "\ufffd" for letter in line) for line in lines)


def _entries(entries: Sequence[Item]) -> list[str]:
    count = "1 entry" if len(entries) == 1 else f"{len(entries)} entries"
    lines = [f"{count}; the first {_SHOWN}:" if len(entries) > _SHOWN else f"{count}:"]
    for entry in entries[:_SHOWN]:
        at = entry.published
        date = "no date" if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}Z"
        lines += [f"  {entry.title or '(no title)'}  [{date}]", f"    id    {entry.id or 'none'}"]
        lines += [f"    link  {entry.link or 'none'}"]
    return lines


def _page(found: Inspection) -> list[str]:
    count = f"{len(found.lines):,} lines" + (f"; the first {_SHOWN}:" if len(found.lines) > _SHOWN else ":")
    lines = [f"A page, {found.title or 'without a title'}. What would be watched of it, {count}"]
    lines += [f"  {number:>5}  {line}" for number, line in enumerate(found.lines[:_SHOWN], 1)]
    feeds = [f"  {each.url}  {each.title}" for each in found.feeds]
    return [*lines, "", "It names these feeds; subscribe to one of them:" if feeds else "It names no feed.", *feeds]


def _inspection(fetched: FetchResult, reading: ParsedDocument, settings: Settings) -> Inspection:
    feed, page = reading.feed or ParsedFeed(), reading.page or ParsedPage()
    now_s = time.time()
    said = find_earliest_poll(fetched.headers, feed.polling_hints, now_s)
    return Inspection(
        url=fetched.url,
        status=fetched.status,
        content_type={name.lower(): value for name, value in fetched.headers.items()}.get("content-type", ""),
        size_bytes=len(fetched.body or b""),
        took_s=fetched.took_s,
        validators=fetched.validators,
        kind="feed" if reading.feed else "page",
        title=feed.title or page.title,
        link=feed.link,
        language=feed.language,
        entries=tuple(Item(entry.id, entry.title, entry.link, entry.published) for entry in feed.entries),
        lines=page.lines,
        feeds=reading.links,
        next_poll=next_poll(
            settings,
            private=fetched.private,
            retry_after_s=fetched.retry_after_s,
            wished_s=said.not_before_s - now_s,
        ),
        wishes=said.reasons,
    )
