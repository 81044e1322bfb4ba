"""Guesses of the feed of a page."""

import pytest

from service.feeds.canonical_urls import canonical_url
from service.feeds.pages.feed_url_guesses import likely_feeds

_VIDEOS = "https://www.youtube.com/feeds/videos.xml"
_CHANNEL = "UCabcdefghijklmnopqrstuv"


@pytest.mark.parametrize(
    ("page", "feeds"),
    [
        (f"https://www.youtube.com/channel/{_CHANNEL}", [f"{_VIDEOS}?channel_id={_CHANNEL}"]),
        (f"https://m.youtube.com/channel/{_CHANNEL}/videos", [f"{_VIDEOS}?channel_id={_CHANNEL}"]),
        ("https://youtube.com/playlist?list=PL0123456789", [f"{_VIDEOS}?playlist_id=PL0123456789"]),
        ("https://www.youtube.com/watch?v=abc&list=PL0123456789&t=1", [f"{_VIDEOS}?playlist_id=PL0123456789"]),
        ("https://old.reddit.com/r/python/top?t=week", ["https://www.reddit.com/r/python/.rss"]),
        ("https://www.reddit.com/user/some-one", ["https://www.reddit.com/user/some-one/.rss"]),
        (
            "https://github.com/owner/project.py/tree/main",
            ["https://github.com/owner/project.py/releases.atom", "https://github.com/owner/project.py/commits.atom"],
        ),
        (
            "https://github.com/owner/project.git",
            ["https://github.com/owner/project/releases.atom", "https://github.com/owner/project/commits.atom"],
        ),
        ("https://github.com/owner", ["https://github.com/owner.atom"]),
        ("https://social.example.com/@someone", ["https://social.example.com/@someone.rss"]),
        ("https://example.com/blog/?page=2", ["https://example.com/feed", "https://example.com/rss.xml"]),
        ("http://example.com:8080/feed", ["http://example.com:8080/rss.xml"]),
        (
            "https://youtube.com.example.com/channel/x",
            ["https://youtube.com.example.com/feed", "https://youtube.com.example.com/rss.xml"],
        ),
        ("http://[2001:db8::1]/@x", ["http://[2001:db8::1]/feed", "http://[2001:db8::1]/rss.xml"]),
    ],
)
def test_feed_urls_are_guessed_from_the_url_of_a_page(page: str, feeds: list[str]) -> None:
    likely = likely_feeds(page)
    assert list(likely) == feeds
    assert len(likely) <= 2
    assert [canonical_url(feed) for feed in likely] == feeds
