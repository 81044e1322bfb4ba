"""Experiment ``schedulers``: our goal against other readers' schedulers, each at its own number of requests.

One trace for all. A peer polls as its source says and thereby fixes how many requests it takes; then we spend just as
many on the same channels. Everybody begins cold at time 0, meets the same first documents, and is measured after as
many weeks of warm-up as are measured.

Four figures of ours stand beside each peer's:

- ``ours``: production's goal, optimiser, estimates and rotas;
- ``ours_polite``: the same, no channel asked more often than the product allows by default;
- ``ours_with_rhythm``: the same, on clocks that learn when publishers tend to publish (``rhythm``);
- ``known``: no scheduler, but the goal's optimum with every publisher's true interval known. With Fair and Poisson
  publishers no way to spend these requests has a lower mean notification delay: nobody's ratio can be higher.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
import numpy as np

from service.corona.honeycomb import AllocationProblem, scale_for_budget, sizes
from service.corona.objectives import Goal, weights
from service.simulate.schedulers.corona_scheduler import POLL_INTERVAL_S, Fleet, Rhythm, run_fleet
from service.simulate.schedulers.polls import Figures, Polling, Seen, figures
from service.simulate.schedulers.publication_trace import HOUR_S, WEEK_S, Floats, Publishers, Trace, make_trace
from service.simulate.schedulers.reader_schedulers import PEERS

BEFORE_S = 4 * WEEK_S
"""How far back feeds reach when polling begins."""
FIRST_POLLS_S = HOUR_S
"""Within this time everybody polls everything once."""
POLITE_PER_HOUR = 12.0
"""The product's default bound on polls of one public channel (settings: max_polls_per_hour)."""

STEPS = len(PEERS) * 5
"""How often a run reports progress."""


class Setup(msgspec.Struct, frozen=True):
    """What is simulated."""

    channels: int = 2000
    weeks: int = 2
    """Measured, after as many of warm-up."""
    publishers: Publishers = Publishers.POISSON
    goal: Goal = Goal.FAIR


class Ours(Figures, frozen=True):
    """Figures of ours, and how many times longer the peer's notifications take on average."""

    ratio: float


class Peer(Figures, frozen=True):
    """Figures of a peer, and ours at its number of requests."""

    name: str
    ours: Ours
    ours_polite: Ours
    ours_with_rhythm: Ours
    known: Ours


class Comparison(msgspec.Struct, frozen=True):
    """What ``coronet simulate schedulers --json`` prints."""

    experiment: str
    seed: int
    setup: Setup
    entries: int
    """Published within the measured weeks."""
    schedulers: tuple[Peer, ...]


Report = Callable[[str], None]
"""Called after each run with what it was."""


def run(setup: Setup, seed: int, report: Report) -> Comparison:
    """Run all peers on one trace, and ours beside each."""
    window_s = setup.weeks * WEEK_S, 2 * setup.weeks * WEEK_S
    trace_rng, phase_rng, *peer_rngs = np.random.default_rng(seed).spawn(2 + len(PEERS))
    trace = make_trace(setup.channels, -BEFORE_S, window_s[1], setup.publishers, trace_rng)
    bench = _Bench(trace, setup.goal, phase_rng.random(setup.channels), window_s, report)
    peers = []
    for (name, make), rng in zip(PEERS.items(), peer_rngs, strict=True):
        polling = Polling(trace, make(trace, rng), bench.first_s, window_s)
        polling.advance(np.inf)
        found = figures(trace, polling, window_s)
        report(name)
        peers.append(Peer(**msgspec.structs.asdict(found), name=name, **bench.beside(found)))
    entries = int((trace.published_s >= window_s[0]).sum())
    return Comparison("schedulers", seed, setup, entries, tuple(peers))


class _Bench:
    """Runs ours at any number of requests; a number that was run before costs nothing."""

    def __init__(self, trace: Trace, goal: Goal, phases: Floats, window_s: tuple[float, float], report: Report) -> None:
        self.first_s = phases * FIRST_POLLS_S
        self._trace, self._goal, self._phases = trace, goal, phases
        self._window_s, self._report = window_s, report
        self._figures = cache(self._measured)

    def beside(self, peer: Figures) -> dict[str, Any]:
        """Return ours at the peer's number of requests, by the fields of :class:`Peer`."""
        beside = {}
        for what in ("ours", "ours_polite", "ours_with_rhythm", "known"):
            found = self._figures(what, peer.requests)
            ratio = peer.mean_notification_delay_s / found.mean_notification_delay_s
            beside[what] = Ours(**msgspec.structs.asdict(found), ratio=ratio)
            self._report(what)
        return beside

    def _measured(self, what: str, requests: int) -> Figures:
        people, requests_per_s = self._trace.subscribers, requests / (self._window_s[1] - self._window_s[0])
        if what == "known":
            polling = self._polled_with_knowledge(requests_per_s)
        else:
            most_per_hour = POLITE_PER_HOUR if what == "ours_polite" else np.inf
            rhythm = Rhythm(len(people)) if what == "ours_with_rhythm" else None
            fleet = Fleet(people, self._goal, requests_per_s, most_per_hour=most_per_hour, rhythm=rhythm)
            polling = run_fleet(self._trace, fleet, self.first_s, self._window_s)
        return figures(self._trace, polling, self._window_s)

    def _polled_with_knowledge(self, requests_per_s: float) -> Polling:
        problem = AllocationProblem.of(
            weights(self._goal, self._trace.subscribers, self._trace.interval_s, POLL_INTERVAL_S)
        )
        gap_s = POLL_INTERVAL_S / sizes(problem, scale_for_budget(problem, requests_per_s * POLL_INTERVAL_S))
        polling = Polling(self._trace, _Gaps(gap_s), self._phases * gap_s, self._window_s)
        polling.advance(np.inf)
        return polling


class _Gaps:
    """Polls each channel at a gap of its own."""

    def __init__(self, gap_s: Floats) -> None:
        self._gap_s = gap_s

    def wait_s(self, seen: Seen) -> Floats:
        return self._gap_s[seen.channel]
