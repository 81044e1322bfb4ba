"""Polls as a calm fleet makes them, by arithmetic (``members``, ``timetable``), and what is asked of any polls."""

from typing import Protocol

import numpy as np

from service.simulate.fleet import Fleet
from service.simulate.members import node_polls
from service.simulate.phases import EvenPhases, RandomPhases, Schedule
from service.simulate.timetable import Timetable
from service.simulate.trace import Floats, Ints
from service.simulate.workload import Phases


class Polling(Protocol):
    """All polls of the channels ``numbers``."""

    numbers: Ints

    def next_s(self, channel: Ints, after_s: Floats) -> Floats:
        """Return when each of these channels is polled first after its moment."""

    def polls_per_channel(self, begin_s: float, end_s: float) -> float:
        """Return how often a channel is polled after ``begin_s``, up to ``end_s``, on average."""

    def busiest_node(self, begin_s: float, end_s: float) -> float:
        """Return the polls of the node that made most of them, over the mean."""

    def mean_waits_s(self, begin_s: float, end_s: float) -> Floats:
        """Return what an update at any moment of this time waits on average, in the order of ``numbers``."""


class Calm:
    """Nobody joins or leaves, and every message arrives: what owners have written down is what is done."""

    def __init__(self, fleet: Fleet, timetable: Timetable, rng: np.random.Generator) -> None:
        self.numbers = np.arange(fleet.setup.channels)
        random = fleet.setup.phases is Phases.RANDOM
        self._schedule: Schedule = RandomPhases(timetable, rng) if random else EvenPhases(timetable)
        self._trie, self._points = fleet.trie, fleet.channels.points

    def next_s(self, channel: Ints, after_s: Floats) -> Floats:
        """Return when each channel is polled first after its moment."""
        return self._schedule.next_s(channel, after_s)

    def polls_per_channel(self, begin_s: float, end_s: float) -> float:
        """Return how often a channel is polled after ``begin_s``, up to ``end_s``, on average."""
        return self._schedule.polls(begin_s, end_s) / len(self.numbers)

    def busiest_node(self, begin_s: float, end_s: float) -> float:
        """Return the polls of the node that made most of them, over the mean."""
        polls = node_polls(self._schedule, self._trie, self._points, begin_s, end_s)
        return float(polls.max() / polls.mean())

    def mean_waits_s(self, begin_s: float, end_s: float) -> Floats:
        """Return what an update at any moment of this time waits on average, exactly."""
        return self._schedule.mean_waits_s(begin_s, end_s)
