"""Pagination of lists: page sizes, the API's cursors, and the page numbers on the console's own pages."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec
from aiohttp import web

from service.errors import UserError

PAGE_SIZE: Final = 50
"""Number of items on one page of a list."""
MAX_ITEMS: Final = 200
"""Maximum number of items on one page of a list in the API."""
INVALID_CURSOR: Final = "This cursor is not valid. Start again without one."

_CURSOR: Final = re.compile(r"(\S{1,253})\.(\d{1,9})", re.ASCII)
_STREAM_CURSOR: Final = re.compile(r"\d{1,19}-\d{1,19}", re.ASCII)


def read_limit(request: web.Request, default: int = PAGE_SIZE) -> int:
    """Return the maximum number of items per page: the value of ``limit`` in the URL's query, or ``default``.

    Raises :class:`UserError` if ``limit`` is not a number from 1 to ``MAX_ITEMS``.
    """
    try:
        limit: int = msgspec.convert(
            request.query.get("limit", str(default)), Annotated[int, msgspec.Meta(ge=1, le=MAX_ITEMS)], strict=False
        )
    except msgspec.ValidationError as error:
        raise UserError(f"limit: {error}") from error
    return limit


def read_log_cursor(request: web.Request) -> str:
    """Return the ``cursor`` in the URL's query, which is the id of the log entry after which the page begins.

    The value "" means that the page begins with the newest entry. Raises :class:`UserError` unless the cursor is "" or
    the id of a Redis stream entry.
    """
    cursor = request.query.get("cursor", "")
    if cursor and not _STREAM_CURSOR.fullmatch(cursor):
        raise UserError(INVALID_CURSOR)
    return cursor


def find_page_start(ids: Sequence[str], cursor: str) -> int:
    """Return the index in ``ids`` at which the requested page of a list begins.

    - ``ids``: the ids of all items in the list.
    - ``cursor``: the field ``next`` of the previous page, or "" for the first page. Its form is ``ID.COUNT``. ID is
      the last id on the previous page, and COUNT is the place of this id in the list, counted from 1.

    The page begins after ID. If ID is no longer in the list, the page begins at the index COUNT - 1, because the
    removal has moved the following ids up by one. Raises :class:`UserError` for an invalid cursor.
    """
    if not cursor:
        return 0
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise UserError(INVALID_CURSOR)
    try:
        return ids.index(match[1]) + 1
    except ValueError:
        # The following ids have moved up by one. Starting early repeats one instead of skipping one.
        return min(max(0, int(match[2]) - 1), len(ids))


def next_cursor(ids: Sequence[str], end: int) -> str:
    """Return the cursor of the page that begins after the first ``end`` ids; "" if there are no further ids."""
    return f"{ids[end - 1]}.{end}" if 0 < end < len(ids) else ""


def read_page_number(query: Mapping[str, str], total: int, size: int) -> tuple[int, int]:
    """Return (page, pages): the number of the requested page, counted from 1, and how many pages there are.

    - ``query``: the URL's query. Its field ``page`` is the requested number.
    - ``total``: the number of items in the list.
    - ``size``: the number of items on a page.

    A number that is too high counts as the last page. Any other invalid value, and a missing one, counts as 1.
    """
    pages, text = max(1, -(-total // size)), query.get("page", "1")[:9]
    return min(max(1, int(text) if text.isdecimal() else 1), pages), pages
