"""Who says what to which worker: requests and answers sealed with the cluster's secret (HMAC-SHA-256).

A seal covers the sender, the one worker it is meant for, what is asked, the time, a number used once, and the body; an
answer's covers the request's number, so that none serves for another request. Within ``WINDOW_S`` numbers are
remembered, and before or after it nothing is taken. Times are the fleet's: Redis's clock.
"""

import hmac
import re
from collections import OrderedDict
from hashlib import sha256

import msgspec

from service.errors import PeerRefused
from service.model import NodeId

WINDOW_S = 30.0
NONCE_BYTES = 12
MOST_NONCES = 200_000
"""So many requests are taken within the window at most: memory for their numbers is bounded."""

_FORM = re.compile(r"coronet1 ([0-9a-f]{40}) (\d{1,16}) ([0-9a-f]{24}) ([0-9a-f]{64})")


class Seal(msgspec.Struct, frozen=True):
    """What a request says of itself. ``at_ms`` is Unix time."""

    sender: NodeId
    at_ms: int
    nonce: str
    mac: str

    def header(self) -> str:
        """Return it as it stands in a request."""
        return f"coronet1 {self.sender} {self.at_ms} {self.nonce} {self.mac}"


def read(header: str) -> Seal:
    """Return what a request's header says; raises :class:`PeerRefused`."""
    found = _FORM.fullmatch(header)
    if found is None:
        raise PeerRefused("A request carries no seal of ours.", reason="signature")
    sender, at_ms, nonce, mac = found.groups()
    return Seal(sender, int(at_ms), nonce, mac)


class Sealer:
    """Seals and checks seals for one worker."""

    def __init__(self, secret: str, me: NodeId) -> None:
        """Have the cluster's secret, which must not be empty."""
        self._key = sha256(b"coronet peers\0" + secret.encode()).digest()
        self._me = me
        self._seen: OrderedDict[tuple[NodeId, str], int] = OrderedDict()

    def seal(self, to: NodeId, verb: str, body: bytes, nonce: str, now_s: float) -> Seal:
        """Return the seal of a request to a worker."""
        at_ms = int(now_s * 1000)
        unsealed = Seal(self._me, at_ms, nonce, "")
        return Seal(self._me, at_ms, nonce, self._request_mac(unsealed, to, verb, body))

    def timely(self, seal: Seal, now_s: float) -> None:
        """Raise :class:`PeerRefused` for a request of another time: before its body is read."""
        if abs(now_s - seal.at_ms / 1000) > WINDOW_S:
            raise PeerRefused(f"A request of {seal.sender[:8]} is not of now. Do clocks differ?", reason="late")

    def check(self, seal: Seal, verb: str, body: bytes, now_s: float) -> None:
        """Raise :class:`PeerRefused` if a request is not what its sender meant for us, or came before."""
        self.timely(seal, now_s)
        mac = self._request_mac(seal, self._me, verb, body)
        if not hmac.compare_digest(mac, seal.mac):
            raise PeerRefused("A request's seal is wrong. Have all workers the same secret?", reason="signature")
        self._forget(now_s)
        once = seal.sender, seal.nonce
        if once in self._seen:
            raise PeerRefused(f"A request of {seal.sender[:8]} came twice.", reason="replay")
        if len(self._seen) >= MOST_NONCES:
            raise PeerRefused("There are more requests than can be told from replays.", reason="flood")
        self._seen[once] = int(now_s)

    def answer_mac(self, nonce: str, status: int, body: bytes) -> str:
        """Return the seal of the answer to a request."""
        return self._mac(f"answer\n{nonce}\n{status}\n", body)

    def check_answer(self, nonce: str, status: int, body: bytes, mac: str) -> None:
        """Raise :class:`PeerRefused` if this is not the answer that a worker gave to that request."""
        if not hmac.compare_digest(self.answer_mac(nonce, status, body), mac):
            raise PeerRefused("An answer's seal is wrong.", reason="signature")

    def _request_mac(self, seal: Seal, to: NodeId, verb: str, body: bytes) -> str:
        return self._mac(f"request\n{seal.sender}\n{to}\n{verb}\n{seal.at_ms}\n{seal.nonce}\n", body)

    def _mac(self, about: str, body: bytes) -> str:
        return hmac.digest(self._key, about.encode() + sha256(body).digest(), "sha256").hex()

    def _forget(self, now_s: float) -> None:
        # A request may be of the future by the window, and come again until it is of the past by as much.
        while self._seen and now_s - next(iter(self._seen.values())) > 2 * WINDOW_S + 1:
            self._seen.popitem(last=False)
