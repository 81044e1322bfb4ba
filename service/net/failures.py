"""From the HTTP client's exceptions to Coronet's errors, in words a person can act on."""

import os
import ssl

import aiohttp

from service.errors import BadHttp, CoronetError, HostNotFound, TlsFailed, TooLarge, Unreachable
from service.net.guard import SocketRefused

# OpenSSL's verification results (x509_vfy.h) that are common enough to deserve better words.
_CERTIFICATE_FAULTS = {
    9: "is not valid yet",
    10: "has expired",
    18: "is self-signed",
    19: "comes from a self-signed authority",
    20: "comes from an authority that is not trusted here, or its chain is incomplete",
    62: "is for another name",
    64: "is for another address",
}


def as_error(error: aiohttp.ClientError | TimeoutError | OSError, host: str) -> CoronetError:
    """Return the error of our tree that the client's failure to fetch from ``host`` stands for."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return TlsFailed(f"{host}: its certificate {_certificate_fault(error.certificate_error)}.")
    if isinstance(error, aiohttp.ClientConnectorError):
        return _no_connection(error, host)
    if isinstance(error, TimeoutError):
        return Unreachable(f"{host} took too long to answer.")
    return _broken_answer(error, host)


def _no_connection(error: aiohttp.ClientConnectorError, host: str) -> CoronetError:
    cause = error.os_error
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        reason = getattr(cause, "reason", None) or "no common protocol"
        return TlsFailed(f"{host}: the TLS handshake failed ({str(reason).replace('_', ' ').lower()}).")
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return HostNotFound(f"There is no host of the name {host}, or its name server does not answer.")
    if isinstance(cause, SocketRefused):
        return cause.as_error(host)
    reason = os.strerror(cause.errno).lower() if cause.errno else "no connection"
    return Unreachable(f"{host} cannot be reached: {reason}.")


def _certificate_fault(error: Exception) -> str:
    if not isinstance(error, ssl.SSLCertVerificationError):
        return "cannot be used"
    return _CERTIFICATE_FAULTS.get(error.verify_code, f"is refused: {error.verify_message}")


def _broken_answer(error: aiohttp.ClientError | OSError, host: str) -> CoronetError:
    if isinstance(error, aiohttp.ClientResponseError):
        # The parser's own text quotes the publisher's bytes; only the kind of fault is passed on.
        if "more than" in error.message or "Too many" in error.message:
            return TooLarge(f"{host}: the headers of its answer are too large.")
        return BadHttp(f"{host}: its answer is not valid HTTP.")
    if isinstance(error, aiohttp.ClientPayloadError):
        return BadHttp(f"{host}: its answer ended early or is not framed correctly.")
    return Unreachable(f"{host} closed the connection without an answer.")
