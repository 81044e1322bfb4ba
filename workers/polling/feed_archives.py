"""Archive documents of feeds (RFC 5005), which contain the entries that a feed has dropped since the last poll.

If a feed no longer contains any known entry, polls may have missed entries. The poll then also reads the archive
documents to which the feed links.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from service.errors import PublisherError, UserError
from service.feeds.canonical_urls import host_of
from service.feeds.sandbox.protocol import DetectionResult, Document
from service.model import Channel
from service.net.fetcher import Fetcher
from workers.polling.politeness import Politeness
from workers.polling.publisher_requests import document_of, must_be_public

_MAX_ARCHIVES = 3
"""Maximum number of archive documents that one poll reads after earlier polls have missed entries."""
_ARCHIVES_TIMEOUT_S = 20.0

Detect = Callable[[tuple[Document, ...]], Awaitable[DetectionResult]]
"""Compares documents with the channel's baseline. May raise :class:`PublisherError`."""


class FeedArchives:
    """Fetches archive documents of feeds (RFC 5005), within the politeness limits.

    An archive document contains older entries, which the feed itself no longer contains.
    """

    def __init__(self, fetcher: Fetcher, politeness: Politeness) -> None:
        self._fetcher = fetcher
        self._politeness = politeness

    async def add_archives(
        self, channel: Channel, documents: tuple[Document, ...], findings: DetectionResult, detect: Detect
    ) -> tuple[tuple[Document, ...], DetectionResult]:
        """Fetch archive documents of a channel's feed, to find the entries that polls have missed.

        - ``documents``: the documents that the poll has read so far.
        - ``findings``: the result of comparing ``documents`` with the channel's last state. If polls have missed
          entries, it contains the URL of the next older archive document.
        - ``detect``: compares documents with the channel's last state. It is called after each archive document, with
          all documents read so far.

        The newest archive document is fetched first, and at most ``_MAX_ARCHIVES`` are fetched. If one cannot be
        fetched or parsed, older ones are not fetched.

        Return (documents, findings): all documents, oldest first, and the result of comparing them.
        """
        # A new result may have the URL of a next older document again, which is then fetched. If no archive can be
        # read, ``documents`` and ``findings`` are returned.

        # An error in an archive does not invalidate the documents at hand.
        with contextlib.suppress(PublisherError, UserError, TimeoutError):
            async with asyncio.timeout(_ARCHIVES_TIMEOUT_S):
                for _ in range(_MAX_ARCHIVES):
                    if not findings.older_url:
                        break
                    more = (await self._fetch(findings.older_url, channel), *documents)
                    findings = await detect(more)
                    documents = more
        return documents, findings

    async def _fetch(self, url: str, channel: Channel) -> Document:
        await self._politeness.acquire_redirect(host_of(url))
        on_redirect, public_only = self._politeness.acquire_redirect, must_be_public(channel)
        return document_of(await self._fetcher.fetch(url, None, 0, on_redirect, public_only=public_only))
