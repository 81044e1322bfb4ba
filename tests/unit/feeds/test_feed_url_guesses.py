"""Feeds of pages by the rules for their sites, in URLs and in stored pages, and guesses for other pages.

The pages in ``site_pages`` are small reductions of what the sites send.
"""

from pathlib import Path

import pytest

from bots.dialogue.subscription_commands import RULE_TITLES
from service.feeds.canonical_urls import canonical_url
from service.feeds.pages.feed_autodiscovery import find_feeds
from service.feeds.pages.feed_url_guesses import _RULES, likely_feeds, site_feeds
from service.model import FeedLink

PAGES = Path(__file__).parent / "site_pages"
_VIDEOS = "https://www.youtube.com/feeds/videos.xml"
_ID = "abcdefghijklmnopqrst-_"
_CHANNEL_FEEDS = [f"{_VIDEOS}?channel_id=UC{_ID}", f"{_VIDEOS}?playlist_id=UULF{_ID}"]
_PODCAST = ["https://feeds.podcasts.example/a-podcast?format=rss&token=1"]
_PROJECT = "https://github.com/owner/project.py"


@pytest.mark.parametrize(
    ("page", "feeds"),
    [
        (f"https://www.youtube.com/channel/UC{_ID}", _CHANNEL_FEEDS),
        (f"https://m.youtube.com/channel/UC{_ID}/videos?view=0", _CHANNEL_FEEDS),
        ("https://youtube.com/playlist?list=PL0123456789", [f"{_VIDEOS}?playlist_id=PL0123456789"]),
        ("https://www.youtube.com/watch?v=abc&list=PL0123456789&t=1", [f"{_VIDEOS}?playlist_id=PL0123456789"]),
        ("https://old.reddit.com/r/python/top?t=week", ["https://www.reddit.com/r/python/.rss"]),
        ("https://www.reddit.com/r/python+rust/", ["https://www.reddit.com/r/python+rust/.rss"]),
        ("https://www.reddit.com/user/some-one", ["https://www.reddit.com/user/some-one/.rss"]),
        ("https://reddit.com/u/some-one/", ["https://www.reddit.com/u/some-one/.rss"]),
        (f"{_PROJECT}/releases", [f"{_PROJECT}/releases.atom"]),
        (f"{_PROJECT}/releases/tag/v1.0", [f"{_PROJECT}/releases.atom"]),
        (f"{_PROJECT}/tags", [f"{_PROJECT}/tags.atom"]),
        (f"{_PROJECT}/commits", [f"{_PROJECT}/commits.atom"]),
        (f"{_PROJECT}/commits/", [f"{_PROJECT}/commits.atom"]),
        (f"{_PROJECT}/commits/feature/x?author=me", [f"{_PROJECT}/commits/feature/x.atom"]),
        (f"{_PROJECT}/tree/main", [f"{_PROJECT}/releases.atom", f"{_PROJECT}/commits.atom"]),
        (f"{_PROJECT}.git", [f"{_PROJECT}/releases.atom", f"{_PROJECT}/commits.atom"]),
        (f"{_PROJECT}/issues", []),
        (f"{_PROJECT}/issues/1?x=y", []),
        (f"{_PROJECT}/pull/7", []),
        ("https://github.com/owner", ["https://github.com/owner.atom"]),
        ("https://bsky.app/profile/someone.example.com", ["https://bsky.app/profile/someone.example.com/rss"]),
        ("https://bsky.app/profile/did:plc:abc/", ["https://bsky.app/profile/did:plc:abc/rss"]),
    ],
)
def test_a_rule_derives_feeds_from_the_url_of_a_page(page: str, feeds: list[str]) -> None:
    found = [feed.url for feed in site_feeds(page)]
    assert found == feeds
    assert [canonical_url(feed) for feed in found] == found
    assert likely_feeds(page) == ()


@pytest.mark.parametrize(
    "url",
    [
        f"{_PROJECT}/releases.atom",
        f"{_PROJECT}/commits/main.atom?token=x",
        "https://www.reddit.com/r/python/.rss?sort=new",
        *_CHANNEL_FEEDS,
        "https://bsky.app/profile/someone.example.com/rss",
        "https://youtube.com.example.com/channel/x",
        "https://example.com/github.com/owner/project",
        "https://www.youtube.com/@someone",
    ],
)
def test_feeds_themselves_and_other_sites_have_no_rule_by_url(url: str) -> None:
    assert site_feeds(url) == ()


@pytest.mark.parametrize(
    ("stored", "url", "feeds"),
    [
        ("youtube_handle", "https://www.youtube.com/@someone", _CHANNEL_FEEDS),
        ("youtube_handle", "https://www.youtube.com/@someone/videos", _CHANNEL_FEEDS),
        ("youtube_handle", "https://www.youtube.com/c/someone", _CHANNEL_FEEDS),
        ("youtube_handle", "https://www.youtube.com/user/someone", _CHANNEL_FEEDS),
        ("youtube_handle_without_links", "https://www.youtube.com/@someone", _CHANNEL_FEEDS),
        ("youtube_video", "https://www.youtube.com/watch?v=dQw4w9WgXcQ", _CHANNEL_FEEDS),
        ("youtube_video", "https://youtu.be/dQw4w9WgXcQ", _CHANNEL_FEEDS),
        ("youtube_video", "https://www.youtube.com/shorts/dQw4w9WgXcQ", _CHANNEL_FEEDS),
        ("youtube_consent", "https://www.youtube.com/@someone", []),
        ("apple_podcast", "https://podcasts.apple.com/us/podcast/a-podcast/id1234567890", _PODCAST),
        ("apple_podcast_nested", "https://podcasts.apple.com/us/podcast/a-podcast/id1234567890?i=1", _PODCAST),
        ("apple_podcast", "https://example.com/us/podcast/a-podcast/id1234567890", []),
        ("mastodon_profile", "https://social.example.com/@someone", ["https://social.example.com/@someone.rss"]),
        ("github_issues", "https://github.com/owner/project/issues", []),
    ],
)
def test_feeds_are_found_in_the_page_of_a_site(stored: str, url: str, feeds: list[str]) -> None:
    links, guesses = find_feeds((PAGES / f"{stored}.html").read_bytes(), url=url)
    assert ([feed.url for feed in links], guesses) == (feeds, ())


def test_the_feeds_of_a_channel_are_told_apart_by_their_titles() -> None:
    every, without_shorts = site_feeds(f"https://www.youtube.com/channel/UC{_ID}")
    assert (every, without_shorts) == (
        FeedLink(_CHANNEL_FEEDS[0], "All videos"),
        FeedLink(_CHANNEL_FEEDS[1], "Videos without Shorts"),
    )


def test_titles_in_rules_are_translated() -> None:
    assert {title for rule in _RULES for title in rule.feeds} - {""} == set(RULE_TITLES)


@pytest.mark.parametrize(
    ("stored", "url", "guesses"),
    [
        (
            "blog_with_body_links",
            "https://blog.example.com/",
            ("https://blog.example.com/index.xml", "https://blog.example.com/comments/feed/"),
        ),
        (
            "podcast_with_body_link",
            "https://pod.example/",
            ("https://pod.example/abo", "https://feeds.host.example/a-podcast"),
        ),
        ("shop_without_feed", "https://shop.example/", ()),
    ],
)
def test_links_in_the_body_that_look_like_feeds_are_guesses(stored: str, url: str, guesses: tuple[str, ...]) -> None:
    assert find_feeds((PAGES / f"{stored}.html").read_bytes(), url=url) == ((), guesses)


def test_a_page_that_names_its_feed_has_no_guesses() -> None:
    body = b'<link rel="alternate" type="application/rss+xml" href="/named"><p><a href="/feed">RSS</a>'
    assert find_feeds(body, url="https://example.com/") == ((FeedLink("https://example.com/named"),), ())


@pytest.mark.parametrize(
    ("page", "feeds"),
    [
        ("https://social.example.com/@someone", ["https://social.example.com/@someone.rss"]),
        ("https://example.com/blog/?page=2", ["https://example.com/feed", "https://example.com/rss.xml"]),
        ("http://example.com:8080/feed", ["http://example.com:8080/rss.xml"]),
        (
            "https://youtube.com.example.com/channel/x",
            ["https://youtube.com.example.com/feed", "https://youtube.com.example.com/rss.xml"],
        ),
        ("http://[2001:db8::1]/@x", ["http://[2001:db8::1]/@x.rss"]),
    ],
)
def test_common_feed_urls_are_guessed_for_other_pages(page: str, feeds: list[str]) -> None:
    likely = likely_feeds(page)
    assert list(likely) == feeds
    assert [canonical_url(feed) for feed in likely] == feeds
