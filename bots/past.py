"""The past of an account, page by page, from the archive of its server (XEP-0313)."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from bots import archive
from bots.archive import Kept
from bots.link import AskingLink

MOST_PAGES: Final = 500
PAGE: Final = 200
_WITHIN_S: Final = 30.0


async def past(link: AskingLink, since_s: float) -> AsyncIterator[Kept]:
    """Return what there was since a moment (Unix s); a server without an archive says nothing.

    Raises LinkLost, and TimeoutError if a page takes too long.
    """
    after = ""
    for _ in range(MOST_PAGES):
        async with asyncio.timeout(_WITHIN_S):
            results, answer = await link.search(since_s, after, PAGE)
        yield archive.read(results, link.address)
        found = archive.next_page(answer)
        if found is None:
            return
        after = found
