"""Which of one's own subscriptions a command means. Pure."""

from collections.abc import Generator
from typing import Any

from bots.asking import Followed, MySubscriptions, Request
from bots.commands import Target
from service.errors import BadUrl
from service.feeds.urls import page_url


def meant(target: Target) -> Generator[Request, Any, tuple[Followed, ...]]:
    """Return the subscriptions that are meant; none if there is no such one.

    A page's URL also means the feed that was found through it.
    """
    mine: tuple[Followed, ...] = yield MySubscriptions()
    if target.everything:
        return mine
    if target.number:
        return tuple(followed for followed in mine if followed.number == target.number)
    try:
        url = page_url(target.url, target.selector)
    except BadUrl:
        return ()
    return tuple(followed for followed in mine if url in (followed.channel.url, followed.channel.link))[:1]
