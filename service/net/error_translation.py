"""Translates timeouts and aiohttp's exceptions to Coronet's errors, whose messages tell people what they can do."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from service.errors import BadHttp, CoronetError, HostNotFound, TlsFailed, TooLarge, Unreachable
from service.net.address_guard import SocketRefused


@asynccontextmanager
async def time_limit(host: str, total_s: float) -> AsyncIterator[None]:
    """Raise :class:`Unreachable` if the code inside this context takes more than ``total_s`` seconds.

    ``host`` is the host to which the code sends a request.
    """
    try:
        async with asyncio.timeout(total_s):
            yield
    except TimeoutError as error:
        raise Unreachable(
            "{host} took longer than {seconds} s to respond.", host=host, seconds=f"{round(total_s, 1):g}"
        ) from error


def translate_error(error: aiohttp.ClientError | TimeoutError | OSError, host: str) -> CoronetError:
    """Return the Coronet error that corresponds to an exception raised by aiohttp during a request to ``host``."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _translate_certificate_error(error.certificate_error, host)
    if isinstance(error, aiohttp.ClientConnectorError):
        return _translate_connection_error(error, host)
    if isinstance(error, TimeoutError):
        return Unreachable("{host} took too long to respond.", host=host)
    return _translate_response_error(error, host)


def _translate_connection_error(error: aiohttp.ClientConnectorError, host: str) -> CoronetError:
    cause = error.os_error
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        reason = str(getattr(cause, "reason", None) or "no common protocol").replace("_", " ").lower()
        return TlsFailed("The TLS handshake with {host} failed ({reason}).", host=host, reason=reason)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return HostNotFound("There's no site named {host}, or its name server isn't responding.", host=host)
    if isinstance(cause, SocketRefused):
        return cause.as_error(host)
    reason = os.strerror(cause.errno).lower() if cause.errno else "no connection"
    return Unreachable("{host} cannot be reached: {reason}.", host=host, reason=reason)


def _translate_certificate_error(error: Exception, host: str) -> TlsFailed:
    if not isinstance(error, ssl.SSLCertVerificationError):
        return TlsFailed("The certificate of {host} can't be used.", host=host)
    common = {  # by OpenSSL's codes (x509_vfy.h)
        9: TlsFailed("The certificate of {host} is not valid yet.", host=host),
        10: TlsFailed("The certificate of {host} has expired.", host=host),
        18: TlsFailed("The certificate of {host} is self-signed.", host=host),
        19: TlsFailed("The certificate of {host} comes from a self-signed authority.", host=host),
        20: TlsFailed(
            "The certificate of {host} comes from an authority that is not trusted here, or its chain is incomplete.",
            host=host,
        ),
        62: TlsFailed("The certificate of {host} is for another name.", host=host),
        64: TlsFailed("The certificate of {host} is for another address.", host=host),
    }
    refused = TlsFailed(
        "The certificate of {host} was rejected: {reason}.", host=host, reason=str(error.verify_message)
    )
    return common.get(error.verify_code, refused)


def _translate_response_error(error: aiohttp.ClientError | OSError, host: str) -> CoronetError:
    if isinstance(error, aiohttp.ClientResponseError):
        # The parser's message quotes the publisher's bytes; only the kind of the fault is reported.
        if "more than" in error.message or "Too many" in error.message:
            return TooLarge(f"{host}: the headers of its answer are too large.")
        return BadHttp("The response from {host} isn't valid HTTP.", host=host)
    if isinstance(error, aiohttp.ClientPayloadError):
        return BadHttp("The response from {host} ended early or got garbled.", host=host)
    return Unreachable("{host} closed the connection without a response.", host=host)
