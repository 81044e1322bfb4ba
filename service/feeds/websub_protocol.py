"""The state machine of a feed's subscription at a hub, a server that pushes changes (W3C WebSub, subscriber's side).

A request to the hub counts as failed until the hub verifies it (:func:`verify_intent`). A failed request is repeated
later. Therefore no request is lost if a process dies. In all states, the feed is also polled as if it had no hub.

The diagram below shows the states and their transitions. A hub is *listed* if the feed's last document links to it.

::

    wanted ──request──▶ pending ◀──request, before the lease ends── verified
                        pending ◀──listed again── leaving
                        pending ──hub verifies──▶ verified
           any of these ──hub denies──▶ refused ──request, a day later──▶ pending
           any of these ──no longer listed──▶ leaving ──hub verifies, or three requests fail──▶ (none)

The subscription at the current hub is ended before a subscription at another hub is requested. While hubs do not
respond, the interval between requests for a feed grows from 10 minutes to a day, even if the feed changes its hubs.
"""

import hmac
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from service.feeds.canonical_urls import web_link

LEASE_S = 10 * 86_400
"""The duration in seconds for which a subscription is requested from the hub. The hub may grant another duration."""

_DAY_S = 86_400.0
_MIN_LEASE_S = 600.0
_MAX_LEASE_S = 30 * _DAY_S
_RENEW_AT_SHARE = 0.8
_RETRY_S = 600.0
_MAX_DOUBLINGS = 10
_MAX_UNSUBSCRIBE_REQUESTS = 3
_MAX_HUBS = 8
_DIGESTS = frozenset({"sha1", "sha256", "sha384", "sha512"})

Status = Literal["wanted", "pending", "verified", "refused", "leaving"]


class HubTopic(msgspec.Struct, frozen=True):
    """The URL of a hub, and the topic, which is the URL by which the hub identifies the feed."""

    hub: str
    topic: str


class HubState(msgspec.Struct, frozen=True, omit_defaults=True, rename={"target": "named", "next_target": "then"}):
    """A feed's subscription at a hub, a server that pushes the feed's changes. Times are Unix seconds.

    - ``target`` is the hub, and the topic (the URL by which the hub identifies the feed).
    - ``secret`` is the key with which the hub signs its requests. It is known only to this service and the hub.
    - ``token`` is the secret part of the callback URL to which the hub sends its requests.
    - ``status`` is the state of the subscription. The module's docstring explains the states.
    - ``since_s`` is the time at which the status last changed or the last request was sent, whichever is later.
    - ``lease_until_s`` is the time at which the subscription granted by the hub ends; 0 if the hub has granted none.
    - ``failures`` is the number of successive requests that the hub has not verified.
    - ``next_target`` is the hub and topic to subscribe to after this subscription has ended; None if there is none.
    """

    target: HubTopic
    secret: str
    token: str
    status: Status = "wanted"
    since_s: float = 0.0
    lease_until_s: float = 0.0
    failures: int = 0
    next_target: HubTopic | None = None


class HubCredentials(NamedTuple):
    """The secret and the token of a new subscription: random texts of at most 199 bytes each (WebSub §5.1)."""

    secret: str
    token: str


class IntentVerification(NamedTuple):
    """A hub's message about a request of this service: a verification (WebSub §5.3) or a denial (WebSub §5.2).

    In a verification, the hub asks whether this service has really sent the request.

    - ``mode`` is the kind of the request, ``subscribe`` or ``unsubscribe``; in a denial, it is ``denied``.
    - ``topic`` is the URL by which the hub identifies the feed.
    - ``lease_seconds`` is the duration of the subscription in seconds, as the text that the hub sent.
    """

    mode: str
    topic: str
    lease_seconds: str


class VerificationResult(NamedTuple):
    """The response to a hub's verification request, and the state of the subscription afterwards.

    - ``is_confirmed`` is true if this service confirms the request.
    - ``state`` is None if the subscription has ended.
    """

    is_confirmed: bool
    state: HubState | None


def update_hub(state: HubState | None, hubs: Sequence[str], topic: str, credentials: HubCredentials) -> HubState | None:
    """Return the next state of a feed's subscription at a hub, after a new document of the feed was read.

    - ``state`` is the previous state; None if there was no subscription.
    - ``hubs`` are the URLs of the hubs to which the document links.
    - ``topic`` is the URL by which the hubs identify the feed. If ``topic`` or ``hubs`` is empty, the feed has no hub.
    - ``credentials`` are used if a new subscription begins.

    The result is None if there is no subscription.
    """
    choice = _choose_hub(state, hubs, topic)
    if state is None:
        return _start(choice, credentials)
    if choice == state.target:
        if state.status != "leaving":
            return state
        # Not "wanted": the hub may know the subscription, which has to be ended if the feed stops listing the hub.
        return msgspec.structs.replace(state, status="pending", failures=0, next_target=None)
    if state.status in {"wanted", "refused"}:
        return _start(choice, credentials, state.since_s)
    failures = state.failures if state.status == "leaving" else 0
    return msgspec.structs.replace(state, status="leaving", failures=failures, next_target=choice)


def next_request_s(state: HubState) -> float:
    """Return the Unix time at which the next request to the hub is due."""
    match state.status:
        case "verified":
            return state.since_s + _RENEW_AT_SHARE * (state.lease_until_s - state.since_s)
        case "refused":
            return state.since_s + _DAY_S
        case _:
            doublings = min(max(state.failures - 1, 0), _MAX_DOUBLINGS)
            return state.since_s + min(_RETRY_S * 2.0**doublings, _DAY_S)


def record_request(state: HubState, now_s: float) -> HubState:
    """Return the state after a request was sent to the hub at the Unix time ``now_s``."""
    status: Status = "leaving" if state.status == "leaving" else "pending"
    return msgspec.structs.replace(state, status=status, since_s=now_s, failures=state.failures + 1)


def is_unresponsive(state: HubState) -> bool:
    """Return whether the hub has ignored three requests to unsubscribe. The subscription then counts as ended.

    If so, the caller should replace the state with the result of :func:`leave_hub`.
    """
    return state.status == "leaving" and state.failures >= _MAX_UNSUBSCRIBE_REQUESTS


def leave_hub(state: HubState, credentials: HubCredentials) -> HubState | None:
    """Return the state that replaces ``state`` after its subscription has ended.

    The result is a new subscription with ``credentials`` at the hub in ``state.next_target``; None if there is no
    such hub.
    """
    return _start(state.next_target, credentials)


def request_form(state: HubState, callback: str) -> dict[str, str]:
    """Return the form fields of the next request to the hub (WebSub §5.1).

    ``callback`` is the URL that the hub will call. The request is to unsubscribe in the state ``leaving``, and to
    subscribe in all other states.

    Deviation from WebSub: the secret is also sent to hubs without TLS. It still protects against messages that are
    forged by anyone who cannot read the request.
    """
    about = {"hub.callback": callback, "hub.topic": state.target.topic}
    if state.status == "leaving":
        return {"hub.mode": "unsubscribe", **about}
    return {"hub.mode": "subscribe", **about, "hub.secret": state.secret, "hub.lease_seconds": str(LEASE_S)}


def verify_intent(
    state: HubState, intent: IntentVerification, now_s: float, credentials: HubCredentials
) -> VerificationResult:
    """Process a hub's verification of intent (WebSub §5.3) or denial (§5.2); return the response and the next state.

    The service confirms the hub's request only if it matches ``state``. ``now_s`` is the current Unix time.
    ``credentials`` are used if a new subscription begins.
    """
    # So nobody else can subscribe or unsubscribe in this service's name.
    if intent.topic != state.target.topic:
        return VerificationResult(False, state)
    match intent.mode, state.status:
        case (("denied" | "unsubscribe"), "leaving"):
            return VerificationResult(True, leave_hub(state, credentials))
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
    """Return whether ``signature`` is a valid signature of ``body`` with the key ``secret``.

    ``signature`` is the value of the ``X-Hub-Signature`` header, which has the form ``METHOD=HEX`` (WebSub §7).
    """
    method, _, received = signature.strip().partition("=")
    if method not in _DIGESTS:
        return False
    expected = hmac.new(secret.encode(), body, method).hexdigest()
    return hmac.compare_digest(expected.encode(), received.lower().encode(errors="replace"))


def _start(choice: HubTopic | None, credentials: HubCredentials, since_s: float = 0.0) -> HubState | None:
    return HubState(choice, credentials.secret, credentials.token, since_s=since_s) if choice else None


def _choose_hub(state: HubState | None, hubs: Sequence[str], topic: str) -> HubTopic | None:
    """Return the hub and topic to which the feed should be subscribed; None if the feed has no hub.

    ``hubs`` and ``topic`` come from the feed's last document. The topic is the URL by which the hubs identify the feed.
    """
    # The current hub is kept while ``hubs`` contains it, unless it has refused and ``hubs`` contains another hub.
    # Otherwise the result is the first hub of ``hubs`` that is not the current hub.
    urls = [web_link(hub) for hub in hubs[:_MAX_HUBS]]
    choices = [HubTopic(url, topic) for url in urls if url and topic]
    if state is None or state.target not in choices:
        return next(iter(choices), None)
    others = [choice for choice in choices if choice != state.target]
    return others[0] if others and state.status == "refused" else state.target


def _lease_s(lease_seconds: str) -> float:
    """Return the duration of the subscription that the hub has granted, in seconds.

    Durations below 10 minutes are raised to 10 minutes, and those above 30 days are reduced to 30 days. If
    ``lease_seconds`` is invalid, the requested duration is assumed.
    """
    asked_for = lease_seconds if lease_seconds.isascii() and lease_seconds.isdigit() else str(LEASE_S)
    return min(max(float(asked_for[:12]), _MIN_LEASE_S), _MAX_LEASE_S)
