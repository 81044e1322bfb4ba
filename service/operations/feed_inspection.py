"""``coronet inspect``: fetches and parses one feed or page with the same address guard and parser as a worker."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

import msgspec

from service.corona.fleet_policy import SECONDS_PER_HOUR
from service.feeds.canonical_urls import canonical_url, page_url, selector_of
from service.feeds.publisher_polling_hints import find_earliest_poll
from service.feeds.sandbox.parser_client import ParserClient
from service.feeds.sandbox.protocol import Document, ParsedDocument
from service.model import FeedLink, ParsedFeed, ParsedPage, Validators
from service.net.fetcher import FetchResult, create_fetcher
from service.settings import Settings

_MAX_SHOWN = 20


class NextPoll(msgspec.Struct, frozen=True):
    """When a channel could be polled next, and why not earlier.

    ``in_s`` is the number of seconds from now until the earliest next poll.
    """

    in_s: float
    why: str


class Item(msgspec.Struct, frozen=True):
    """An entry as it appears in its feed.

    ``published`` is the Unix time of publication; None if the date is absent or invalid.
    """

    id: str
    title: str
    link: str
    published: float | None


class Inspection(msgspec.Struct, frozen=True, rename={"kind": "type", "polling_hints": "wishes"}):
    """The result of inspecting a feed or page.

    - ``url`` is the final URL after redirects.
    - ``entries`` are the entries of a feed.
    - ``lines`` are the lines of text of a page, and ``feeds`` the feeds to which the page links.
    - ``polling_hints`` are sentences that say when the publisher wants to be polled.
    """

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
    polling_hints: tuple[str, ...]


async def inspect(url: str, settings: Settings, selector: str = "") -> Inspection:
    """Fetch and parse the feed or page at ``url`` once.

    If it is a page and ``selector`` is not empty, only what matches this selector is read. Raises
    :class:`CoronetError` if the URL cannot be fetched or parsed; a subscription to it would then fail too.
    """
    async with create_fetcher(settings) as fetcher, ParserClient() as parser:
        fetched = await fetcher.fetch(canonical_url(url))
        document = Document(fetched.body or b"", fetched.url, dict(fetched.headers))
        reading = await parser.parse_document(document, selector_of(page_url(url, selector)))
    return _inspection(fetched, reading, settings)


def next_poll(settings: Settings, *, private: bool, retry_after_s: float | None, hint_s: float = 0.0) -> NextPoll:
    """Return when a channel with one subscriber could be polled next, assuming that only one node polls it.

    - ``private`` is true if the publisher's address is not public. Polling hints and limits per hour do not apply to
      such publishers.
    - ``retry_after_s`` is the delay in seconds that the response's ``Retry-After`` header requests; None if there is
      none.
    - ``hint_s`` is the interval between polls, in seconds, that the publisher's polling hints (such as ``ttl`` in RSS)
      request; 0 if they request none.
    """
    policy = settings.policy()
    interval_s, per_hour = policy.poll_interval_s / policy.most_polls_per_node, policy.most_polls_per_hour(1)
    polite_s = interval_s if private else max(interval_s, SECONDS_PER_HOUR / per_hour)
    if retry_after_s is not None and retry_after_s > polite_s:
        return NextPoll(retry_after_s, "the publisher requires it (Retry-After)")
    if not private and hint_s > polite_s:
        return NextPoll(hint_s, "the publisher asks for it")
    if polite_s > interval_s:
        return NextPoll(polite_s, f"a channel with one subscriber is polled at most {per_hour:g} times per hour")
    return NextPoll(interval_s, f"a node polls a channel at most once in {interval_s:g} s")


def as_text(inspection: Inspection) -> str:
    """Format the result of an inspection as text.

    Unprintable characters are replaced, so that the inspected content cannot control a terminal.
    """
    media_type = inspection.content_type or "no type"
    response = f"{inspection.status}, {media_type}, {inspection.size_bytes:,} bytes in {inspection.took_s:.2f} s"
    rows = {
        "URL": inspection.url,
        "Response": response,
        "ETag": inspection.validators.etag or "none",
        "Last-Modified": inspection.validators.last_modified or "none",
        "Type": inspection.kind,
        "Next poll": f"in {inspection.next_poll.in_s:,.0f} s at the earliest: {inspection.next_poll.why}",
    }
    if inspection.polling_hints:
        rows["Publisher"] = " ".join(inspection.polling_hints)
    if inspection.kind == "feed":
        rows |= {
            "Title": inspection.title,
            "Link": inspection.link or "none",
            "Language": inspection.language or "none",
        }
    lines = [f"{name:<14}{value}" for name, value in rows.items()]
    lines += ["", *(_entries(inspection.entries) if inspection.kind == "feed" else _page(inspection))]
    return "\n".join("".join(letter if letter.isprintable() else "\ufffd" for letter in line) for line in lines)


def _entries(entries: Sequence[Item]) -> list[str]:
    count = "1 entry" if len(entries) == 1 else f"{len(entries)} entries"
    lines = [f"{count}; the first {_MAX_SHOWN}:" if len(entries) > _MAX_SHOWN else f"{count}:"]
    for entry in entries[:_MAX_SHOWN]:
        at = entry.published
        date = "no date" if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}Z"
        lines += [f"  {entry.title or '(no title)'}  [{date}]", f"    id    {entry.id or 'none'}"]
        lines += [f"    link  {entry.link or 'none'}"]
    return lines


def _page(inspection: Inspection) -> list[str]:
    count = f"{len(inspection.lines):,} lines" + (
        f"; the first {_MAX_SHOWN}:" if len(inspection.lines) > _MAX_SHOWN else ":"
    )
    lines = [f"A page, {inspection.title or 'without a title'}. Monitored content, {count}"]
    lines += [f"  {number:>5}  {line}" for number, line in enumerate(inspection.lines[:_MAX_SHOWN], 1)]
    feeds = [f"  {each.url}  {each.title}" for each in inspection.feeds]
    return [
        *lines,
        "",
        "It links to these feeds; subscribe to one of them:" if feeds else "It links to no feed.",
        *feeds,
    ]


def _inspection(fetched: FetchResult, reading: ParsedDocument, settings: Settings) -> Inspection:
    feed, page = reading.feed or ParsedFeed(), reading.page or ParsedPage()
    now_s = time.time()
    earliest = find_earliest_poll(fetched.headers, feed.polling_hints, now_s)
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
            hint_s=earliest.not_before_s - now_s,
        ),
        polling_hints=earliest.reasons,
    )
