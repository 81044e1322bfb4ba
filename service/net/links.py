"""The hubs that a publisher names in its answer's headers (WebSub §4, RFC 8288 §3)."""

import re
from collections.abc import Iterable

import msgspec

from service.errors import BadUrl
from service.feeds.urls import redirect_target

MAX_HUBS = 5
_MAX_CHARS = 8 * 1024

# A "<" inside a quoted parameter would begin another link; no publisher has one there.
_LINK = re.compile(r"<([^<>]*)>([^<]*)")
_PARAMETER = re.compile(r";\s*(rel|anchor)\s*=\s*(?:\"([^\"]*)\"|([^\s;,\"]+))", re.IGNORECASE)


class Links(msgspec.Struct, frozen=True):
    """Where news of ``topic`` can be subscribed to: absolute URLs, ``hubs`` in the publisher's order."""

    hubs: tuple[str, ...] = ()
    topic: str = ""


def links(values: Iterable[str], base: str) -> Links:
    """Return the hubs and the topic in the values of an answer's ``Link`` headers, relative to ``base``.

    What cannot be read is passed over: these headers carry much that is not for us.
    """
    hubs: dict[str, None] = {}
    topic = ""
    for target, parameters in _LINK.findall(",".join(values)[:_MAX_CHARS]):
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
    return Links(tuple(hubs), topic)


def _relations(parameters: str) -> set[str]:
    """Return a link's relation types in lower case; none if it is a link of something else ("anchor")."""
    first: dict[str, str] = {}
    for name, quoted, plain in _PARAMETER.findall(parameters):
        first.setdefault(name.lower(), quoted or plain)
    return set() if "anchor" in first else set(first.get("rel", "").lower().split())
