"""Rules and guesses for the feed URLs of a page. Links to feeds are found by ``feed_autodiscovery``.

A rule derives the feeds of a well-known site from the URL of a page, or from a pattern in the page. Rules are data:
another site needs another row in ``_RULES``.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from service.feeds.canonical_urls import canonical_url, host_of
from service.model import FeedLink


class _Rule(NamedTuple):
    """The feeds of pages whose host, path and query match ``pages``, and whose HTML contains ``content``.

    ``feeds`` maps titles to templates of URLs, whose fields are the groups of both patterns. Without ``content``, the
    URL suffices. A URL has the feeds of the first matching rule.
    """

    pages: str
    feeds: Mapping[str, str]
    content: str = ""


_YOUTUBE: Final = r"(?:www\.|m\.)?youtube\.com"
_VIDEOS: Final = "https://www.youtube.com/feeds/videos.xml"
_CHANNEL_VIDEOS: Final = {
    "All videos": f"{_VIDEOS}?channel_id=UC{{channel}}",
    "Videos without Shorts": f"{_VIDEOS}?playlist_id=UULF{{channel}}",
}
_GITHUB: Final = r"github\.com/(?P<repository>[\w-]{1,39}/[\w.-]{1,100}?)(?:\.git)?"
_REPOSITORY: Final = "https://github.com/{repository}"
_REST: Final = r"(?:[/?].*)?"

_RULES: Final = (
    _Rule(rf"{_YOUTUBE}/channel/UC(?P<channel>[\w-]{{22}}){_REST}", _CHANNEL_VIDEOS),
    _Rule(
        rf"{_YOUTUBE}/(?:playlist|watch)\?(?:.*&)?list=(?P<list>[\w-]{{10,64}})(?:&.*)?",
        {"": f"{_VIDEOS}?playlist_id={{list}}"},
    ),
    _Rule(
        rf"{_YOUTUBE}/(?:@|c/|user/|watch\?|shorts/|live/).+|youtu\.be/.+",
        _CHANNEL_VIDEOS,
        r"(?:<(?:link|meta)\s[^<>]{0,200}(?:/channel/|channel_id=|content=.)|\"(?:externalId|channelId)\"\s?:\s?\")"
        r"UC(?P<channel>[\w-]{22})(?![\w-])",
    ),
    _Rule(
        rf"(?:www\.|old\.|new\.|m\.)?reddit\.com/(?P<place>(?:r|u|user)/[\w+-]{{2,200}}){_REST}",
        {"": "https://www.reddit.com/{place}/.rss"},
    ),
    _Rule(rf"{_GITHUB}/(?P<list>releases|tags|wiki){_REST}", {"": f"{_REPOSITORY}/{{list}}.atom"}),
    _Rule(rf"{_GITHUB}/(?P<commits>commits(?:/[^?]+?)?)/?(?:\?.*)?", {"": f"{_REPOSITORY}/{{commits}}.atom"}),
    # GitHub has no feeds of issues, and the other feeds of the repository do not contain them.
    _Rule(rf"{_GITHUB}/(?:issues|pulls?|discussions|actions|projects|security){_REST}", {}),
    _Rule(rf"{_GITHUB}{_REST}", {"Releases": f"{_REPOSITORY}/releases.atom", "Commits": f"{_REPOSITORY}/commits.atom"}),
    _Rule(r"github\.com/(?P<owner>[\w-]{1,39})/?", {"": "https://github.com/{owner}.atom"}),
    _Rule(r"bsky\.app/profile/(?P<account>[\w.:-]{1,253})/?(?:\?.*)?", {"": "https://bsky.app/profile/{account}/rss"}),
    _Rule(
        r"(?:podcasts|itunes)\.apple\.com/.*\bid\d+.*",
        {"": "{feed}"},
        r'\\?"feedUrl\\?"\s?:\s?\\?"(?P<feed>https?:[^"<>\s]{1,1000}?)\\?"',
    ),
)
_WELL_KNOWN: Final = ("/feed", "/rss.xml")
_MASTODON_PROFILE: Final = re.compile(r"/@\w{1,100}/?")
_FEED_SUFFIX: Final = re.compile(r"\.(?:rss|atom|rdf|xml|json)(?=\?|$)", re.IGNORECASE)
FEED_URL: Final = re.compile(
    r"https?://(?:feeds?\d?|rss)\.[^/?]+/.+"  # a host for feeds
    r"|[^?]*/(?:feed|rss2?|atom)/?(?:\?.*)?"
    r"|[^?]*(?:\.(?:rss|atom|rdf)|[/._-](?:feed|rss2?|atom|index)\.(?:xml|json))(?:\?.*)?"
    r"|[^?]*\?(?:.*&)?(?:feed|format|type)=(?:rss2?|atom)(?:&.*)?",
    re.IGNORECASE,
)
"""Matches URLs of links that look like those of feeds."""


def site_feeds(url: str, page: str = "") -> tuple[FeedLink, ...]:
    """Return the feeds that a rule names for the page at ``url`` (canonical), by its URL or, if given, its HTML.

    The result is empty if there is no such rule, or if it states that there is no feed. Raises :class:`BadUrl` if the
    page contains an invalid URL.
    """
    for rule, fields in _rules_for(url):
        if bool(rule.content) == bool(page) and (found := re.search(rule.content, page, re.IGNORECASE)):
            # In a page, the URL may be in JSON, which may itself be a string in JSON.
            fields |= {
                name: re.sub(r"\\+u0026", "&", text).replace("\\", "") for name, text in found.groupdict().items()
            }
            return tuple(FeedLink(canonical_url(feed.format_map(fields)), title) for title, feed in rule.feeds.items())
    return ()


def _rules_for(url: str) -> list[tuple[_Rule, dict[str, str]]]:
    page = url.partition("://")[2]
    matches = ((rule, re.fullmatch(rule.pages, page, re.IGNORECASE)) for rule in _RULES)
    return [] if _FEED_SUFFIX.search(page) else [(rule, match.groupdict()) for rule, match in matches if match]


def probable_feeds(links: Iterable[str], url: str) -> tuple[str, ...]:
    """Return up to two of ``links`` in the page at ``url``: those within its site first, and feeds of comments last.

    The result is empty if there are rules for such pages.
    """
    site = host_of(url).split(".")[-2:]
    ranked = sorted(dict.fromkeys(links), key=lambda link: (host_of(link).split(".")[-2:] != site, "comment" in link))
    return () if _rules_for(url) else tuple(ranked[:2])


def likely_feeds(url: str) -> tuple[str, ...]:
    """Return up to two URLs at which the page's feed may be found, the most probable first.

    ``url`` is the canonical URL of the page. The result is empty if there are rules for such pages.
    """
    parts = urlsplit(url)
    site = f"{parts.scheme}://{parts.netloc}"
    if _rules_for(url):
        return ()
    if _MASTODON_PROFILE.fullmatch(parts.path):
        return (f"{site}{parts.path.rstrip('/')}.rss",)
    return tuple(f"{site}{path}" for path in _WELL_KNOWN if path != parts.path)
