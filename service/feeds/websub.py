"""One channel's subscription at a hub (W3C WebSub): what to ask next, and what to believe.

The state is what was agreed so far. A question counts as failed until the hub comes back and confirms it
(:func:`answered`), so whoever asks may die at any moment: when the question is due again, it is asked again.
Meanwhile, and whatever the hub does, the channel is polled as if there were none.

::

    wanted ──ask──▶ pending ◀──ask, before the lease ends── verified
                    pending ◀──named again── leaving
                    pending ──the hub confirms──▶ verified
           any of these ──the hub denies──▶ refused ──ask, a day later──▶ pending
           any of these ──not named any more──▶ leaving ──the hub confirms, or is silent thrice──▶ gone

A hub is left before the next one is asked. While hubs are silent, minutes pass between a channel's questions to
them, whatever it names meanwhile.
"""

import hmac
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from service.feeds.urls import web_link

LEASE_S = 10 * 86_400
"""The lease that we ask for."""

_DAY_S = 86_400.0
_SHORTEST_LEASE_S = 600.0
_LONGEST_LEASE_S = 30 * _DAY_S
_RENEWED_AT = 0.8
_PATIENCE_S = 600.0
_DOUBLINGS = 10
_LEAVING_TRIES = 3
_MOST_HUBS = 8
_DIGESTS = frozenset({"sha1", "sha256", "sha384", "sha512"})

Status = Literal["wanted", "pending", "verified", "refused", "leaving"]


class HubTopic(msgspec.Struct, frozen=True):
    """Where a feed says that news of it is told: a hub, and the name (a URL) that it knows the feed by."""

    hub: str
    topic: str


class HubState(msgspec.Struct, frozen=True, omit_defaults=True):
    """A channel's subscription at a hub. Times are Unix seconds.

    ``secret`` signs what the hub sends, ``token`` is in the URL it sends to; both are only ours and the hub's.
    ``since_s`` is when it came to ``status``, or was asked about it last. ``lease_until_s`` is 0 without a lease,
    ``failures`` counts questions without an answer. ``then`` is the hub to turn to when this one is left.
    """

    named: HubTopic
    secret: str
    token: str
    status: Status = "wanted"
    since_s: float = 0.0
    lease_until_s: float = 0.0
    failures: int = 0
    then: HubTopic | None = None


class HubCredentials(NamedTuple):
    """Random texts for a subscription that may begin: unguessable, and at most 199 bytes long (§5.1)."""

    secret: str
    token: str


class IntentVerification(NamedTuple):
    """What a hub asks us to confirm (§5.3), or denies (§5.2); ``lease_seconds`` as it wrote it."""

    mode: str
    topic: str
    lease_seconds: str


class VerificationResult(NamedTuple):
    """Whether we agree with the hub, and the state from then on (None: no subscription any more)."""

    agreed: bool
    state: HubState | None


def update_hub(state: HubState | None, hubs: Sequence[str], topic: str, fresh: HubCredentials) -> HubState | None:
    """Return the state after the feed named these hubs and its topic; nothing of either means that it has no hub."""
    choice = _choice(state, hubs, topic)
    if state is None:
        return _begun(choice, fresh)
    if choice == state.named:
        if state.status != "leaving":
            return state
        # The hub knows us: "wanted" would forget it, and when it was asked, if the feed names none the next time.
        return msgspec.structs.replace(state, status="pending", failures=0, then=None)
    if state.status in {"wanted", "refused"}:
        return _begun(choice, fresh, state.since_s)
    failures = state.failures if state.status == "leaving" else 0
    return msgspec.structs.replace(state, status="leaving", failures=failures, then=choice)


def next_request_s(state: HubState) -> float:
    """Return when the hub is to be asked."""
    match state.status:
        case "verified":
            return state.since_s + _RENEWED_AT * (state.lease_until_s - state.since_s)
        case "refused":
            return state.since_s + _DAY_S
        case _:
            doubled = min(max(state.failures - 1, 0), _DOUBLINGS)
            return state.since_s + min(_PATIENCE_S * 2.0**doubled, _DAY_S)


def record_request(state: HubState, now_s: float) -> HubState:
    """Return the state once the hub was asked."""
    status: Status = "leaving" if state.status == "leaving" else "pending"
    return msgspec.structs.replace(state, status=status, since_s=now_s, failures=state.failures + 1)


def is_unresponsive(state: HubState) -> bool:
    """Say whether the hub was told often enough that it is left; :func:`left` is the state then."""
    return state.status == "leaving" and state.failures >= _LEAVING_TRIES


def leave_hub(state: HubState, fresh: HubCredentials) -> HubState | None:
    """Return the state after the hub was left."""
    return _begun(state.then, fresh)


def request_form(state: HubState, callback: str) -> dict[str, str]:
    """Return what to POST to the hub (§5.1).

    We deviate: the secret is given to hubs without TLS too, where it still keeps out who only guesses.
    """
    about = {"hub.callback": callback, "hub.topic": state.named.topic}
    if state.status == "leaving":
        return {"hub.mode": "unsubscribe", **about}
    return {"hub.mode": "subscribe", **about, "hub.secret": state.secret, "hub.lease_seconds": str(LEASE_S)}


def verify_intent(
    state: HubState, intent: IntentVerification, now_s: float, fresh: HubCredentials
) -> VerificationResult:
    """Return what follows when the hub verifies our intent (§5.3) or denies it (§5.2).

    We agree to what we asked for, and to nothing that somebody else asked in our name.
    """
    if intent.topic != state.named.topic:
        return VerificationResult(False, state)
    match intent.mode, state.status:
        case (("denied" | "unsubscribe"), "leaving"):
            return VerificationResult(True, leave_hub(state, fresh))
        case "denied", _:
            return VerificationResult(
                True, msgspec.structs.replace(state, status="refused", since_s=now_s, lease_until_s=0.0)
            )
        case "subscribe", ("pending" | "verified"):
            until_s = now_s + _lease_s(intent.lease_seconds)
            verified = msgspec.structs.replace(
                state, status="verified", since_s=now_s, lease_until_s=until_s, failures=0
            )
            return VerificationResult(True, verified)
        case _:
            return VerificationResult(False, state)


def is_signature_valid(secret: str, signature: str, body: bytes) -> bool:
    """Say whether ``X-Hub-Signature`` (``METHOD=HEX``, §7) shows that who sent the body knows the secret."""
    method, _, theirs = signature.strip().partition("=")
    if method not in _DIGESTS:
        return False
    ours = hmac.new(secret.encode(), body, method).hexdigest()
    return hmac.compare_digest(ours.encode(), theirs.lower().encode(errors="replace"))


def _begun(choice: HubTopic | None, fresh: HubCredentials, since_s: float = 0.0) -> HubState | None:
    return HubState(choice, fresh.secret, fresh.token, since_s=since_s) if choice else None


def _choice(state: HubState | None, hubs: Sequence[str], topic: str) -> HubTopic | None:
    """Return the hub that we have if it is still named and takes us, else the first other one."""
    urls = [web_link(hub) for hub in hubs[:_MOST_HUBS]]
    choices = [HubTopic(url, topic) for url in urls if url and topic]
    if state is None or state.named not in choices:
        return next(iter(choices), None)
    others = [choice for choice in choices if choice != state.named]
    return others[0] if others and state.status == "refused" else state.named


def _lease_s(lease_seconds: str) -> float:
    """Return how long the hub will send; what is no sensible length of time is moved to the nearest that is."""
    asked_for = lease_seconds if lease_seconds.isascii() and lease_seconds.isdigit() else str(LEASE_S)
    return min(max(float(asked_for[:12]), _SHORTEST_LEASE_S), _LONGEST_LEASE_S)
