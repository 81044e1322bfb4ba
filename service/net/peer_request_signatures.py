"""Signatures of the requests and responses between workers: HMAC-SHA-256 with the cluster's secret.

- The signature of a request covers the sender, recipient, operation (verb), time, nonce and body.
- The signature of a response covers the request's nonce, so that it is not valid for another request.
- A request is rejected if its nonce was used before, or if its time differs from the current time by more than
  ``WINDOW_S`` seconds. Times are taken from Redis's clock, which all workers share.
"""

import hmac
import re
from collections import OrderedDict
from hashlib import sha256

import msgspec

from service.errors import PeerProtocolError
from service.model import NodeId

SIGNATURE_HEADER = "Coronet-Seal"
WINDOW_S = 30.0
NONCE_BYTES = 12
MAX_NONCES = 200_000
"""Maximum number of requests that are accepted within the time window. It limits the memory needed for their nonces."""

_FORMAT = re.compile(r"coronet1 ([0-9a-f]{40}) (\d{1,16}) ([0-9a-f]{24}) ([0-9a-f]{64})")


class RequestSignature(msgspec.Struct, frozen=True):
    """The signature of a request from one worker to another.

    - ``sender`` is the worker that sent the request.
    - ``at_ms`` is the time at which it was sent, in Unix milliseconds.
    - ``nonce`` is unique to the request.
    - ``mac`` is the authentication code (HMAC) in hex.
    """

    sender: NodeId
    at_ms: int
    nonce: str
    mac: str

    def header(self) -> str:
        """Return this signature as the value of an HTTP header."""
        return f"coronet1 {self.sender} {self.at_ms} {self.nonce} {self.mac}"


def parse_signature(header: str) -> RequestSignature:
    """Parse the value of an HTTP header that contains a signature.

    Raises :class:`PeerProtocolError` if the value is not a signature.
    """
    found = _FORMAT.fullmatch(header)
    if found is None:
        raise PeerProtocolError("A request has no valid signature header.", reason="signature")
    sender, at_ms, nonce, mac = found.groups()
    return RequestSignature(sender, int(at_ms), nonce, mac)


class RequestSigner:
    """Signs the requests and responses of the worker ``node_id``, and verifies the signatures of other workers.

    ``secret`` is the secret shared by the cluster's workers. It must not be empty.
    """

    def __init__(self, secret: str, node_id: NodeId) -> None:
        self._key = sha256(b"coronet peers\0" + secret.encode()).digest()
        self._node_id = node_id
        self._nonces: OrderedDict[tuple[NodeId, str], int] = OrderedDict()

    def sign(self, recipient: NodeId, verb: str, body: bytes, nonce: str, now_s: float) -> RequestSignature:
        """Return the signature of a request to the worker ``recipient``.

        - ``verb`` is the requested operation.
        - ``nonce`` must be unique to the request.
        - ``now_s`` is the current Unix time by Redis's clock, which all workers share.
        """
        unsigned = RequestSignature(self._node_id, int(now_s * 1000), nonce, "")
        return msgspec.structs.replace(unsigned, mac=self._request_mac(unsigned, recipient, verb, body))

    def check_time(self, signature: RequestSignature, now_s: float) -> None:
        """Raise :class:`PeerProtocolError` if a request's time is more than ``WINDOW_S`` seconds from ``now_s``.

        ``now_s`` is the current Unix time by Redis's clock, which all workers share.
        """
        # The check needs only the headers, so the request's body is read afterwards.
        if abs(now_s - signature.at_ms / 1000) > WINDOW_S:
            raise PeerProtocolError(
                f"A request of {signature.sender[:8]} was signed at another time. Do clocks differ?", reason="late"
            )

    def verify(self, signature: RequestSignature, verb: str, body: bytes, now_s: float) -> None:
        """Raise :class:`PeerProtocolError` if a request's signature is invalid, or if its nonce was used before.

        - ``verb`` is the requested operation.
        - ``now_s`` is the current Unix time by Redis's clock, which all workers share.
        """
        self.check_time(signature, now_s)
        mac = self._request_mac(signature, self._node_id, verb, body)
        if not hmac.compare_digest(mac, signature.mac):
            raise PeerProtocolError(
                "A request's signature is wrong. Do all workers have the same secret?", reason="signature"
            )
        self._forget_nonces(now_s)
        once = signature.sender, signature.nonce
        if once in self._nonces:
            raise PeerProtocolError(f"A request of {signature.sender[:8]} was repeated.", reason="replay")
        if len(self._nonces) >= MAX_NONCES:
            raise PeerProtocolError("Too many requests to detect replays.", reason="flood")
        self._nonces[once] = int(now_s)

    def response_mac(self, nonce: str, status: int, body: bytes) -> str:
        """Return the signature of a response, in hex. ``nonce`` is the nonce of the request."""
        return self._mac(f"answer\n{nonce}\n{status}\n", body)

    def verify_response(self, nonce: str, status: int, body: bytes, mac: str) -> None:
        """Raise :class:`PeerProtocolError` if ``mac`` is not the signature of this response.

        ``nonce`` is the nonce of the request.
        """
        if not hmac.compare_digest(self.response_mac(nonce, status, body), mac):
            raise PeerProtocolError("A response's signature is wrong.", reason="signature")

    def _request_mac(self, signature: RequestSignature, recipient: NodeId, verb: str, body: bytes) -> str:
        about = f"request\n{signature.sender}\n{recipient}\n{verb}\n{signature.at_ms}\n{signature.nonce}\n"
        return self._mac(about, body)

    def _mac(self, about: str, body: bytes) -> str:
        return hmac.digest(self._key, about.encode() + sha256(body).digest(), "sha256").hex()

    def _forget_nonces(self, now_s: float) -> None:
        # A request may be sent WINDOW_S in the future by this clock, and is accepted until WINDOW_S after that.
        while self._nonces and now_s - next(iter(self._nonces.values())) > 2 * WINDOW_S + 1:
            self._nonces.popitem(last=False)
