"""Where a feed's own links lead: to its hubs, to itself, to its older entries."""

from collections.abc import Iterable
from typing import NamedTuple

from service.feeds.limits import LIST_LENGTH, absolute_link


class Relations(NamedTuple):
    """See the fields of the same names in :class:`service.model.ParsedFeed`."""

    hubs: tuple[str, ...]
    topic: str
    older: str


def relations(links: Iterable[tuple[object, object]], url: str) -> Relations:
    """Return what the feed's links (each a ``rel`` in lower case, and a ``href``) say of the document at ``url``.

    ``hub`` and ``self`` are WebSub's (§4), ``prev-archive`` and ``next`` those of RFC 5005 (§4, §3): an archive
    is complete, so it goes before a page.
    """
    found: dict[str, list[str]] = {"hub": [], "self": [], "prev-archive": [], "next": []}
    for rel, href in links:
        for name in rel.split() if isinstance(rel, str) else ():
            target = absolute_link(href, url) if name in found else ""
            if target:
                found[name].append(target)
    older = found["prev-archive"] or found["next"]
    return Relations(
        hubs=tuple(dict.fromkeys(found["hub"]))[:LIST_LENGTH],
        topic=next(iter(found["self"]), ""),
        older=next(iter(older), ""),
    )
