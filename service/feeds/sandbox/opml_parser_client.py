"""The reader of OPML files, which parses one file at a time, each in a parser process of its own."""

import asyncio
from collections.abc import Awaitable, Callable

from service.errors import ParseKilled, ParserBusy, UserError
from service.feeds.opml_writer import MAX_OPML_BYTES, OpmlDocument
from service.feeds.sandbox.parser_client import ParserClient

_MAX_PENDING_FILES = 8
"""Largest number of files, of up to 5 MiB each, that are being loaded, wait, or are being parsed at the same time."""
_MAX_WAIT_S = 7.0
_BUSY = "Other lists of feeds are being read. Try again in a minute."


class OpmlParserClient:
    """Parses OPML files one at a time, each in a new process, so that channels' documents never wait for a file.

    A file that has to wait for more than 7 seconds is refused.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._pending = 0

    async def read(self, load: Callable[[], Awaitable[bytes]]) -> OpmlDocument:
        """Return the feeds in the OPML file whose content ``load`` returns.

        ``load`` is not called if 8 files are pending. Raises the errors of ``load``, :class:`ParserBusy` if too many
        files are pending, and :class:`UserError` for a file that is not OPML, is too large, or takes too much time or
        memory.
        """
        if self._pending >= _MAX_PENDING_FILES:
            raise ParserBusy(_BUSY)
        self._pending += 1
        try:
            body = await load()
            if len(body) > MAX_OPML_BYTES:
                raise UserError(f"The file is larger than {MAX_OPML_BYTES:,} bytes.")
            return await self._parse(body)
        except ParseKilled as error:
            raise UserError("The file takes more time or memory to read than a list of feeds gets.") from error
        finally:
            self._pending -= 1

    async def _parse(self, body: bytes) -> OpmlDocument:
        try:
            async with asyncio.timeout(_MAX_WAIT_S) as wait, self._turn, ParserClient() as parser:
                wait.reschedule(None)
                return await parser.parse_opml(body)
        except TimeoutError:
            raise ParserBusy(_BUSY) from None
