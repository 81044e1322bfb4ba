"""Links to WebSub hubs in the ``Link`` headers of responses (RFC 8288 §3, W3C WebSub §4)."""

import re
from collections.abc import Iterable

import msgspec

from service.errors import BadUrl
from service.feeds.canonical_urls import redirect_target

MAX_HUBS = 5
_MAX_LINK_CHARS = 8 * 1024

# A "<" inside a quoted parameter begins another link here; publishers do not use it there.
_LINK = re.compile(r"<([^<>]*)>([^<]*)")
_PARAMETER = re.compile(r";\s*(rel|anchor)\s*=\s*(?:\"([^\"]*)\"|([^\s;,\"]+))", re.IGNORECASE)


class HubLinks(msgspec.Struct, frozen=True):
    """The WebSub hubs and the topic in a response's ``Link`` headers (WebSub §4, RFC 8288 §3).

    A hub is a server that pushes changes. The topic is the URL by which the hub identifies the feed. The hubs are in
    the order of the headers, and all URLs are absolute.
    """

    hubs: tuple[str, ...] = ()
    topic: str = ""


def parse_hub_links(values: Iterable[str], base: str) -> HubLinks:
    """Return the WebSub hubs and the topic (the URL by which the hubs identify the feed) in ``Link`` headers.

    ``values`` are the values of a response's ``Link`` headers. Relative URLs are resolved against ``base``. Links that
    are invalid or unrelated are ignored.
    """
    hubs: dict[str, None] = {}
    topic = ""
    for target, parameters in _LINK.findall(",".join(values)[:_MAX_LINK_CHARS]):
        relations = _relations(parameters)
        if not relations & {"hub", "self"}:
            continue
        try:
            url = redirect_target(base, target)
        except BadUrl:
            continue
        if "hub" in relations and len(hubs) < MAX_HUBS:
            hubs[url] = None
        if "self" in relations:
            topic = topic or url
    return HubLinks(tuple(hubs), topic)


def _relations(parameters: str) -> set[str]:
    """Return a link's relation types in lower case; an empty set if the link is about another resource.

    ``parameters`` is the part of the link after its URL. An ``anchor`` parameter means that the link is about another
    resource.
    """
    first: dict[str, str] = {}
    for name, quoted, plain in _PARAMETER.findall(parameters):
        first.setdefault(name.lower(), quoted or plain)
    return set() if "anchor" in first else set(first.get("rel", "").lower().split())
