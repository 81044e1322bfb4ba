"""The deployment experiment: publication times, the publisher's responses, and detection delays."""

import numpy as np
import pytest

from service.embedded.deployment_experiment.publication_plan import (
    PublicationPlan,
    PublicationTimes,
    detection_delays,
    draw_publication_times,
    entry_title,
    paper_delay_statistics,
    recovery_s,
)
from service.embedded.deployment_experiment.publisher import respond
from service.feeds.parsing.format_detection import parse

PLAN = PublicationPlan(seed=3, channels=200, begin_s=1_000.0, length_s=600.0)
TIMES = PublicationTimes(
    subscribers=(10, 1), interval_s=np.array([60.0, 60.0]), published_s=((10.0, 20.0, 30.0), (15.0,))
)


def head(path: str, etag: str = "") -> bytes:
    known = f'\r\nIf-None-Match: "{etag}"' if etag else ""
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.1.1{known}".encode()


def test_publication_times_depend_only_on_the_plan() -> None:
    one, other = draw_publication_times(PLAN), draw_publication_times(PLAN)
    assert (one.subscribers, one.published_s) == (other.subscribers, other.published_s)
    assert sum(one.subscribers) == pytest.approx(20 * PLAN.channels, rel=0.01)
    for times, interval_s in zip(one.published_s, one.interval_s, strict=True):
        assert all(1_000.0 <= at_s < 1_600.0 for at_s in times)
        assert np.diff(times) == pytest.approx(interval_s)


def test_a_feed_contains_the_entries_so_far_and_is_unchanged_until_the_next() -> None:
    before = respond(TIMES, head("/feeds/0"), 25.0)
    assert before.startswith(b'HTTP/1.1 200 OK\r\nETag: "2"')
    body = before.partition(b"\r\n\r\n")[2]
    titles = [entry.title for entry in parse(body, url="http://127.0.1.1/feeds/0", headers={}).entries]
    assert titles == [entry_title(1), entry_title(0), "The first"]
    assert respond(TIMES, head("/feeds/0", "2"), 29.0).startswith(b"HTTP/1.1 304")
    assert respond(TIMES, head("/feeds/0", "2"), 31.0).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("request_head", [head("/feeds/2"), head("/"), b"POST /feeds/0 HTTP/1.1", b"\xff"])
def test_other_requests_get_404(request_head: bytes) -> None:
    assert respond(TIMES, request_head, 25.0).startswith(b"HTTP/1.1 404")


def test_a_channels_weight_is_its_number_of_subscribers() -> None:
    queued_s = {(0, entry_title(0)): 11.0, (0, entry_title(1)): 23.0, (1, entry_title(0)): 26.0}
    delays_s, weights, missed = detection_delays(TIMES, queued_s, 0.0, 100.0)
    assert (sorted(delays_s), missed) == ([1.0, 3.0, 11.0], 1)
    mean_s, p95_s = paper_delay_statistics(delays_s, weights)
    assert mean_s == pytest.approx(30 * (10 * 2.0 + 1 * 11.0) / 11)
    assert p95_s == pytest.approx(30 * 11.0)
    assert detection_delays(TIMES, queued_s, 25.0, 100.0)[2] == 1


def test_a_fleet_has_recovered_when_polls_have_their_former_rate_for_five_seconds() -> None:
    before = [(float(at), 100 * at) for at in range(11)]
    halved = [(10.0 + at, 1000 + 50 * at) for at in range(1, 8)]
    recovered = [(17.0 + at, 1350 + 100 * at) for at in range(1, 9)]
    assert recovery_s([*before, *halved, *recovered], 10.0) == 7.0
    assert recovery_s([*before, *halved], 10.0) is None
    assert recovery_s([*before, *((at + 10.0, int(1000 + 100 * at)) for at in range(1, 8))], 10.0) == 0.0
