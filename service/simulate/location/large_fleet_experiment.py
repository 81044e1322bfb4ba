"""An experiment on the links between the product's workers, and on filter widths, in fleets of up to 500 workers.

A filter has one row for each distance in hops. The row represents the documents of all workers at this distance. The
experiment has these steps:

1. Workers negotiate links with production's :class:`~service.location.neighbour_choice.Neighbourhood`, based on their
   round-trip times. Round-trip times are less than 1 ms within a site, and 10 to 160 ms between sites.
2. Production's nodes exchange filters, with one document per worker. This shows how many workers share a row.
3. :func:`~service.location.bloom_filters.next_shape` computes the width that filters need for the documents of the
   workers in a row.

The limits are those of ``workers.peers.neighbour_overlay``. This package must not import that module, so the limits are
copied here; a test checks that they are equal.
"""

from collections import deque
from collections.abc import Callable, Sequence
from math import log
from statistics import fmean

import msgspec
import numpy as np

from service.location.bloom_filters import (
    HEADROOM,
    MIN_WIDTH,
    FilterShape,
    best_hashes,
    false_positive_rate,
    next_shape,
)
from service.location.neighbour_choice import Effect, Neighbourhood, NeighbourLimits, SendOffer
from service.simulate.location.graph import Edges, ServerDistances
from service.simulate.location.network import SimulatedOverlay, UpdateAlgorithm, node_id_of
from service.simulate.numerics import Floats

FLEETS = ((3, 3), (50, 5), (500, 5), (500, 10), (500, 100))
"""The simulated fleets, as pairs (number of workers, number of sites)."""
NEAR_S = 0.005
"""Round-trip time up to which workers count as near: the default of the setting ``near_rtt_s``."""
DEPTH = 3
FALSE_POSITIVES = 0.02
MAX_FILTER_BITS = 1 << 19
MAX_ROW_DOCUMENTS = 64_000
MAX_ROW_WORKERS = 64
CACHED = 5_000
"""Number of cached documents per worker. If this is too many for a filter, it contains only the most recent ones."""
_ROUNDS = 6
_PROBE_BITS = 1 << 14


class FleetFilters(msgspec.Struct, frozen=True):
    """The filters of a fleet of ``workers`` workers in ``sites`` sites, each with ``CACHED`` documents in its cache.

    A filter has one row for each distance in hops. The row represents the documents of the workers at this distance.

    - ``links`` is the mean number of neighbours of a worker.
    - ``most_links`` is the maximum number of neighbours of a worker.
    - ``shown`` is how many of its documents a worker announces in its filters.
    - ``fullest_row`` is the maximum number of workers whose documents are in the same row.
    - ``width`` is the number of bits in a row.
    - ``unbounded_width`` is the width that would be needed for all cached documents if there were no limits.
    - ``rate`` is the fullest row's rate of false positives.
    - ``mean_rate`` is the mean rate of false positives over all rows.
    - ``bytes`` is the total size of all filters that a worker receives, averaged over all workers.
    """

    workers: int
    sites: int
    links: float
    most_links: int
    shown: int
    fullest_row: float
    width: int
    unbounded_width: float
    rate: float
    mean_rate: float
    bytes: float


def run_fleets(seed: int, report: Callable[[str], None]) -> tuple[FleetFilters, ...]:
    """Return the results of all fleets in ``FLEETS``.

    ``report`` is called with a short text after each fleet.
    """
    rng = np.random.default_rng(seed)
    found = []
    for workers, sites in FLEETS:
        found.append(fleet_filters(workers, sites, rng))
        report(f"{workers} workers in {sites} sites")
    return tuple(found)


def fleet_filters(workers: int, sites: int, rng: np.random.Generator) -> FleetFilters:
    """Simulate one fleet with sites at random locations, and return the properties of its filters."""
    rtts_s = _round_trip_times_s(workers, sites, rng)
    edges = negotiate(rtts_s)
    none = np.zeros_like(rtts_s, dtype=np.int64)
    distances = ServerDistances(rtts_s / 2, np.zeros_like(rtts_s), none, np.arange(workers))
    probe = FilterShape(1, _PROBE_BITS, 1, DEPTH)
    network = SimulatedOverlay(distances, edges, probe, UpdateAlgorithm.PRODUCT_SOURCE)
    for worker in range(workers):
        network.change_documents(worker, [str(worker)])
        network.deliver_all()
    rows = [row for rows in network.row_documents() for row in rows]
    shown = min(CACHED, MAX_ROW_DOCUMENTS // min(workers - 1, MAX_ROW_WORKERS))
    fullest = shown * max(rows)
    shape = _shape_for(fullest)
    links = [len(node.links) for node in network.nodes]
    return FleetFilters(
        workers=workers,
        sites=sites,
        links=fmean(links),
        most_links=max(links),
        shown=shown,
        fullest_row=max(rows),
        width=shape.width,
        unbounded_width=-HEADROOM * CACHED * max(rows) * log(FALSE_POSITIVES) / log(2) ** 2,
        rate=false_positive_rate(shape.width, shape.hashes, fullest),
        mean_rate=fmean(false_positive_rate(shape.width, shape.hashes, shown * row) for row in rows),
        bytes=shape.width / 8 * DEPTH * fmean(links),
    )


def _round_trip_times_s(workers: int, sites: int, rng: np.random.Generator) -> Floats:
    """Choose random locations for the sites; return the round-trip times between all workers in seconds.

    The shape of the result is (workers, workers).
    """
    places = rng.random((sites, 2))
    site = np.arange(workers) % sites
    between = np.linalg.norm(places[site][:, None] - places[site][None, :], axis=2)
    far_s = 0.010 + 0.150 * between / 2**0.5
    noise_s = rng.uniform(0.0002, 0.001, (workers, workers))
    rtts_s = np.where(site[:, None] == site[None, :], 0.0, far_s) + (noise_s + noise_s.T) / 2
    np.fill_diagonal(rtts_s, 0.0)
    return np.asarray(rtts_s)


def negotiate(rtts_s: Floats) -> Edges:
    """Simulate the negotiation of links between workers; return the links as pairs of worker indices.

    ``rtts_s`` contains the round-trip times between all workers, of shape (workers, workers).
    """
    limits = NeighbourLimits(NEAR_S)
    nodes = [Neighbourhood(node_id_of(worker), limits) for worker in range(len(rtts_s))]
    number = {node.node_id: worker for worker, node in enumerate(nodes)}
    offers: deque[tuple[int, SendOffer]] = deque()

    def queue(sender: int, effects: Sequence[Effect]) -> None:
        offers.extend((sender, effect) for effect in effects if isinstance(effect, SendOffer))

    for worker, node in enumerate(nodes):
        queue(
            worker,
            node.on_measurements((node_id_of(peer), rtt_s) for peer, rtt_s in enumerate(rtts_s[worker].tolist())),
        )
    for _ in range(_ROUNDS):
        while offers:
            sender, sent = offers.popleft()
            to = number[sent.to]
            queue(to, nodes[to].on_offer(nodes[sender].node_id, sent.offer))
        for worker, node in enumerate(nodes):
            queue(worker, node.reset_declined())
    return sorted(
        {
            (min(worker, number[peer]), max(worker, number[peer]))
            for worker, node in enumerate(nodes)
            for peer in node.links
        }
    )


def _shape_for(fullest: float) -> FilterShape:
    """Return the parameters that the product's filters have if their fullest row contains ``fullest`` documents.

    The product changes the width of its filters in steps until it suits the number of documents. The result
    describes the filters after the last step.
    """
    width = 32 * MIN_WIDTH
    shape, changed = None, FilterShape(0, width, best_hashes(width, [width / 10]), DEPTH)
    while changed is not shape:
        shape = changed
        changed = next_shape(shape, min(fullest, 2.0 * shape.width), FALSE_POSITIVES, MAX_FILTER_BITS)
    return shape
