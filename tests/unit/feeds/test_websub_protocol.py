"""The state machine of a subscription at a hub: each event and the state that follows."""

import hashlib
import hmac

import msgspec
import pytest

from service.feeds.websub_protocol import (
    LEASE_S,
    HubCredentials,
    HubState,
    HubTopic,
    IntentVerification,
    Status,
    VerificationResult,
    is_signature_valid,
    is_unresponsive,
    leave_hub,
    next_request_s,
    record_request,
    request_form,
    update_hub,
    verify_intent,
)

HUB, OTHER_HUB, TOPIC = "https://hub.example/", "https://other.example/", "https://example.org/feed"
FRESH = HubCredentials("a-secret", "a-token")
OTHER = HubCredentials("another-secret", "another-token")
WANTED = HubState(HubTopic(HUB, TOPIC), *FRESH)
PENDING = record_request(WANTED, 1_000.0)
VERIFIED = msgspec.structs.replace(PENDING, status="verified", lease_until_s=1_000.0 + 864_000.0, failures=0)
REFUSED = msgspec.structs.replace(PENDING, status="refused")
LEAVING = msgspec.structs.replace(VERIFIED, status="leaving")
DAY_S = 86_400.0


def _subscribe(state: HubState, lease: str = "864000", topic: str = TOPIC) -> VerificationResult:
    return verify_intent(state, IntentVerification("subscribe", topic, lease), 1_060.0, OTHER)


def test_a_listed_hub_is_requested_at_once() -> None:
    state = update_hub(None, (HUB, OTHER_HUB), TOPIC, FRESH)
    assert state == WANTED
    assert next_request_s(state) < PENDING.since_s
    assert request_form(state, "https://me.example/cb") == {
        "hub.mode": "subscribe",
        "hub.callback": "https://me.example/cb",
        "hub.topic": TOPIC,
        "hub.secret": "a-secret",
        "hub.lease_seconds": str(LEASE_S),
    }


@pytest.mark.parametrize(
    ("hubs", "topic"),
    [((), TOPIC), ((HUB,), ""), (("", "mailto:a@example.org", "http://[", "https://u:p@h.example/"), TOPIC)],
)
def test_a_feed_without_hub_or_topic_has_no_subscription(hubs: tuple[str, ...], topic: str) -> None:
    assert update_hub(None, hubs, topic, FRESH) is None


@pytest.mark.parametrize("state", [WANTED, PENDING, VERIFIED, REFUSED])
def test_a_hub_that_is_still_listed_changes_nothing(state: HubState) -> None:
    assert update_hub(state, (OTHER_HUB, HUB) if state != REFUSED else (HUB,), TOPIC, OTHER) is state


def test_a_subscription_is_renewed_before_its_lease_ends() -> None:
    agreed, state = _subscribe(PENDING)
    assert agreed
    assert state is not None
    assert (state.status, state.lease_until_s, state.failures) == ("verified", 1_060.0 + 864_000, 0)
    assert next_request_s(state) == 1_060.0 + 0.8 * 864_000
    renewing = record_request(state, next_request_s(state))
    assert (renewing.secret, renewing.token) == FRESH, "a renewal is for the same callback"
    assert _subscribe(renewing).is_confirmed


@pytest.mark.parametrize(
    ("said", "lease_s"),
    [
        ("", LEASE_S),
        ("-5", LEASE_S),
        ("soon", LEASE_S),
        ("²", LEASE_S),
        ("0", 600),
        ("1", 600),
        ("9" * 400, 30 * DAY_S),
    ],
)
def test_an_invalid_lease_is_limited(said: str, lease_s: float) -> None:
    state = _subscribe(PENDING, said).state
    assert state is not None
    assert state.lease_until_s == 1_060.0 + lease_s


@pytest.mark.parametrize(
    ("state", "mode", "topic"),
    [
        (PENDING, "subscribe", "https://example.org/another"),
        (WANTED, "subscribe", TOPIC),
        (REFUSED, "subscribe", TOPIC),
        (LEAVING, "subscribe", TOPIC),
        (VERIFIED, "unsubscribe", TOPIC),
        (VERIFIED, "denied", "https://example.org/another"),
        (VERIFIED, "publish", TOPIC),
        (VERIFIED, "", ""),
    ],
)
def test_an_unrequested_intent_is_not_confirmed(state: HubState, mode: str, topic: str) -> None:
    assert verify_intent(state, IntentVerification(mode, topic, "60"), 1_060.0, OTHER) == (False, state)


@pytest.mark.parametrize("state", [WANTED, PENDING, VERIFIED])
def test_a_denying_hub_is_requested_again_a_day_later(state: HubState) -> None:
    agreed, refused = verify_intent(state, IntentVerification("denied", TOPIC, ""), 5_000.0, OTHER)
    assert agreed
    assert refused is not None
    assert (refused.status, refused.lease_until_s, next_request_s(refused)) == ("refused", 0.0, 5_000.0 + DAY_S)


def test_requests_to_a_silent_hub_back_off() -> None:
    state, now_s, waited_s = WANTED, 0.0, []
    for _ in range(10):
        state = record_request(state, now_s)
        waited_s.append(next_request_s(state) - now_s)
        now_s = next_request_s(state)
    assert waited_s[:4] == [600.0, 1_200.0, 2_400.0, 4_800.0]
    assert waited_s[-1] == DAY_S


def test_a_refusing_hub_is_replaced_by_the_next_listed_one() -> None:
    state = update_hub(REFUSED, (HUB, OTHER_HUB), TOPIC, OTHER)
    assert state is not None
    assert (state.target.hub, state.token) == (OTHER_HUB, "another-token")


def test_the_subscription_at_an_unlisted_hub_is_ended() -> None:
    state = update_hub(VERIFIED, (), "", OTHER)
    assert state is not None
    assert state.status == "leaving"
    assert request_form(state, "https://me.example/cb") == {
        "hub.mode": "unsubscribe",
        "hub.callback": "https://me.example/cb",
        "hub.topic": TOPIC,
    }
    assert verify_intent(
        record_request(state, next_request_s(state)), IntentVerification("unsubscribe", TOPIC, ""), 2_000.0, OTHER
    ) == (True, None)


@pytest.mark.parametrize("status", ["wanted", "refused"])
def test_an_unverified_subscription_is_dropped_without_request(status: Status) -> None:
    assert update_hub(msgspec.structs.replace(WANTED, status=status), (), TOPIC, OTHER) is None


def test_another_hub_or_topic_is_requested_after_the_old_subscription_ended() -> None:
    for then in (HubTopic(OTHER_HUB, TOPIC), HubTopic(HUB, "https://example.org/feed2")):
        state = update_hub(VERIFIED, (then.hub,), then.topic, OTHER)
        assert state is not None
        assert (state.status, state.target.hub, state.next_target) == ("leaving", HUB, then)
        assert leave_hub(state, OTHER) == HubState(then, *OTHER)


def test_a_hub_that_is_listed_again_while_leaving_is_kept() -> None:
    state = update_hub(LEAVING, (HUB,), TOPIC, OTHER)
    assert state is not None
    assert (state.status, state.token) == ("pending", "a-token")


def test_a_hub_that_ignores_unsubscribe_requests_is_dropped() -> None:
    state = LEAVING
    for _ in range(3):
        assert not is_unresponsive(state)
        state = record_request(state, next_request_s(state))
    assert is_unresponsive(state)
    assert leave_hub(state, OTHER) is None


@pytest.mark.parametrize("method", ["sha1", "sha256", "sha384", "sha512"])
def test_a_valid_signature_is_accepted(method: str) -> None:
    signature = f"{method}={hmac.new(b'a-secret', b'news', getattr(hashlib, method)).hexdigest()}"
    assert is_signature_valid("a-secret", signature, b"news")
    assert is_signature_valid("a-secret", f" {method}={signature.partition('=')[2].upper()}", b"news")
    assert not is_signature_valid("a-secret", signature, b"other news")
    assert not is_signature_valid("another", signature, b"news")


@pytest.mark.parametrize("signature", ["", "=", "sha256=", "sha256", "md5=" + "0" * 32, "sha1=\udcff", "shake_128=00"])
def test_an_invalid_signature_is_refused(signature: str) -> None:
    assert not is_signature_valid("a-secret", signature, b"news")
