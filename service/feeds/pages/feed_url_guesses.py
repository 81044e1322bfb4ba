"""Guesses the feed URL of a page that does not link to a feed. Linked feeds are found by ``feed_autodiscovery``."""

import re
from urllib.parse import urlsplit

_WELL_KNOWN = ("/feed", "/rss.xml")

# The feeds that a site provides for pages whose host, path and query match a pattern.
_SITES = {
    r"(?:www\.|m\.)?youtube\.com/channel/(?P<id>UC[\w-]{22})(?:[/?].*)?": (
        "https://www.youtube.com/feeds/videos.xml?channel_id={id}",
    ),
    r"(?:www\.|m\.)?youtube\.com/(?:playlist|watch)\?(?:.*&)?list=(?P<id>[\w-]{10,64})(?:&.*)?": (
        "https://www.youtube.com/feeds/videos.xml?playlist_id={id}",
    ),
    r"(?:www\.|old\.|new\.)?reddit\.com/(?P<place>(?:r|user)/[\w-]{2,50})(?:[/?].*)?": (
        "https://www.reddit.com/{place}/.rss",
    ),
    r"github\.com/(?P<repository>[\w-]{1,39}/[\w.-]{1,100}?)(?:\.git)?(?:[/?].*)?": (
        "https://github.com/{repository}/releases.atom",
        "https://github.com/{repository}/commits.atom",
    ),
    r"github\.com/(?P<owner>[\w-]{1,39})/?": ("https://github.com/{owner}.atom",),
    r"(?P<host>[\w.:-]+)/@(?P<name>\w{1,100})/?": ("https://{host}/@{name}.rss",),  # Mastodon
}


def likely_feeds(url: str) -> tuple[str, ...]:
    """Return up to two URLs at which the page's feed may be found, the most probable first.

    ``url`` is the canonical URL of the page.
    """
    parts = urlsplit(url)
    page = f"{parts.netloc}{parts.path}" + (f"?{parts.query}" if parts.query else "")
    for pattern, feeds in _SITES.items():
        if found := re.fullmatch(pattern, page, re.IGNORECASE):
            return tuple(feed.format_map(found.groupdict()) for feed in feeds)
    return tuple(f"{parts.scheme}://{parts.netloc}{path}" for path in _WELL_KNOWN if path != parts.path)
