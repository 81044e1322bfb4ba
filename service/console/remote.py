"""The API from outside: one request, its answer as JSON, or the problem as the error it stands for."""

import secrets
from collections.abc import Mapping
from http import HTTPStatus

import msgspec
from aiohttp import hdrs

from service.console.failures import Problem
from service.errors import Fault, OperationalError, Unreachable, from_fault
from service.net.remote import send

_WITHIN_S = 120.0
"""Longer than any answer takes: an import of a list of feeds may have 45 s."""
_SHOWN_CHARS = 200


async def ask(
    base_url: str, token: str, method: str, path: str, *, query: Mapping[str, str], body: bytes | None, media_type: str
) -> tuple[str, bytes]:
    """Return the answer's media type and body.

    Raises the error that a problem stands for, :class:`OperationalError` if there is no console.
    """
    headers: dict[str, str] = {hdrs.AUTHORIZATION: f"Bearer {token}"}
    if body is not None:
        headers[hdrs.CONTENT_TYPE] = media_type
    if method == hdrs.METH_POST:
        headers["Idempotency-Key"] = secrets.token_hex(16)
    try:
        said = await send(
            method, f"{base_url.rstrip('/')}{path}", query=query, headers=headers, body=body, within_s=_WITHIN_S
        )
    except Unreachable as error:
        raise OperationalError(
            f"No console answers at {base_url} ({error}): is `coronet console` running there? "
            "CORONET_CONSOLE_PUBLIC_URL says where to ask."
        ) from error
    if said.status >= HTTPStatus.BAD_REQUEST:
        raise _as_error(base_url, said.status, said.body)
    return said.media_type, said.body


def _as_error(base_url: str, status: int, said: bytes) -> Exception:
    try:
        problem = msgspec.json.decode(said, type=Problem)
    except msgspec.MsgspecError:
        shown = said[:_SHOWN_CHARS].decode(errors="replace")
        return OperationalError(f"What answers at {base_url} is no console: status {status}, {shown!r}.")
    return from_fault(Fault(problem.code, problem.detail))
