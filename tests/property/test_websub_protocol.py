"""Properties of a subscription at a hub, whatever feeds list and hubs respond."""

from collections.abc import Callable
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from service.feeds.websub_protocol import (
    HubCredentials,
    HubState,
    IntentVerification,
    is_unresponsive,
    leave_hub,
    next_request_s,
    record_request,
    update_hub,
    verify_intent,
)

FRESH = HubCredentials("s", "t")
HUBS = ("https://a.example/", "https://b.example/", "https://c.example/")
TOPICS = ("https://example.org/1", "https://example.org/2")

Happening = Callable[[HubState | None, float], HubState | None]


def _named(hubs: list[str], topic: str) -> Happening:
    return lambda state, _: update_hub(state, hubs, topic, FRESH)


def _answered(mode: str, topic: str, lease: str) -> Happening:
    return lambda state, now_s: (
        state and verify_intent(state, IntentVerification(mode, topic, lease), now_s, FRESH).state
    )


namings = st.builds(_named, st.lists(st.sampled_from(HUBS), unique=True), st.sampled_from((*TOPICS, "")))
answers = st.builds(
    _answered,
    st.sampled_from(("subscribe", "unsubscribe", "denied", "publish")),
    st.sampled_from(TOPICS),
    st.sampled_from(("", "1", "3600", "864000", "99999999999999", "-1")),
)
pauses_s = st.floats(0.0, 86_400.0)


@example([(_named(hubs, TOPICS[0]), 0.0) for hubs in ([HUBS[0]], [HUBS[1]], [HUBS[0]], [], [HUBS[0]])])
@given(st.lists(st.tuples(namings, pauses_s), max_size=60))
def test_requests_to_silent_hubs_are_minutes_apart_whatever_the_feed_lists(
    history: list[tuple[Happening, float]],
) -> None:
    state: HubState | None = None
    now_s, asked_at_s = 1_000_000.0, []
    for happening, later_s in history:
        state = happening(state, now_s)
        if state is not None and next_request_s(state) <= now_s:
            if is_unresponsive(state):
                state = leave_hub(state, FRESH)
            else:
                asked_at_s.append(now_s)
                state = record_request(state, now_s)
        now_s += later_s
    assert all(after_s - before_s >= 600.0 for before_s, after_s in pairwise(asked_at_s))


@given(st.lists(st.tuples(namings | answers, pauses_s), max_size=60), st.sampled_from(HUBS))
def test_the_listed_hub_and_topic_are_subscribed_to_if_the_hub_confirms(
    history: list[tuple[Happening, float]], hub: str
) -> None:
    state: HubState | None = None
    now_s = 1_000_000.0
    for happening, later_s in history:
        state = happening(state, now_s)
        now_s += later_s
    for _ in range(4):
        state = update_hub(state, (hub,), TOPICS[0], FRESH)
        assert state is not None
        now_s = max(now_s, next_request_s(state))
        state = record_request(state, now_s)
        mode = "unsubscribe" if state.status == "leaving" else "subscribe"
        state = verify_intent(state, IntentVerification(mode, state.target.topic, "864000"), now_s, FRESH).state
    assert state is not None
    assert (state.status, state.target.hub, state.target.topic) == ("verified", hub, TOPICS[0])
