"""What of the paper's figures for location was reached, and what not."""

from collections.abc import Sequence

from service.location.sizing import best_hashes, false_positives
from service.simulate.location import Outcome
from service.simulate.location_means import document_bytes, dynamic_of, mean_of, static_of
from service.simulate.location_overlay import REACHED, Overlay
from service.simulate.location_static import DEPTHS, INDEX_BYTES
from service.simulate.location_updates import Updates

FEW_FAILURES = 1.1
"""Times what formulas give at depth 1: where all rows have a server's documents, there can be no fewer."""
ALMOST_SHARE = 0.86
ROUTING, DISTANCE = 2.1, 1.9
MORE_BYTES = 1.05


def least_failed(documents: int) -> float:
    """Return the share of queries that fail at depth 1, by formula, with the paper's index."""
    width = int(8 * INDEX_BYTES / REACHED)
    matched = false_positives(width, best_hashes(width, [documents]), documents)
    return 1 - float((1 - matched) ** REACHED)


def verdict(outcomes: Sequence[Outcome]) -> str:
    """Say what was reached, on the mean over the graphs, and what not."""
    at_depth_3 = static_of(outcomes, Overlay.RESTRICTED, 3, INDEX_BYTES, Updates.PRODUCT_SOURCE)
    failed = [
        mean_of(static_of(outcomes, Overlay.RESTRICTED, depth, INDEX_BYTES, Updates.PRODUCT_SOURCE), "failed")
        for depth in DEPTHS
    ]
    least = least_failed(outcomes[0].setup.documents)
    almost = mean_of(at_depth_3, "failed_almost")
    alone, *hybrids = dynamic_of(outcomes).values()
    routing, distance = (
        max(mean_of(alone, name) / mean_of(runs, name) for runs in hybrids)
        for name in ("routing_stretch", "distance_stretch")
    )
    of_graphs = [
        max(found.dynamic[0].routing_stretch / run.routing_stretch for run in found.dynamic) for found in outcomes
    ]
    paper = [document_bytes(outcomes, updates) for updates in (Updates.SOURCE, Updates.DESTINATION, Updates.NONE)]
    ours = document_bytes(outcomes, Updates.PRODUCT_SOURCE)
    total = [
        sum(mean_of(runs, f"{kind}_bytes") for kind in ("file", "pointer", "query", "filter"))
        for runs in (alone, *hybrids)
    ]
    depths = ", ".join(f"{depth}: {share:.1%}" for depth, share in zip(DEPTHS, failed, strict=True))
    return "\n".join(
        [
            _said(
                max(failed) <= FEW_FAILURES * least,
                f"An index of 1.83 kB keeps failures low, by depth {depths}; at most {FEW_FAILURES * least:.1%} wanted",
            ),
            _said(
                almost >= ALMOST_SHARE,
                f"Failed queries of depth 3 that cost at most 20 % more: {almost:.1%}; 86 % wanted",
            ),
            _said(
                all(source <= destination <= none for source, destination, none in zip(*paper, strict=True)),
                "Source filtering ≤ destination ≤ none, at all depths, as published",
            ),
            _said(
                all(found <= none for found, none in zip(ours, paper[-1], strict=True)),
                "The product's source filtering, which loses nothing, costs less than none, at all depths: "
                + ", ".join(f"{found / none:.0%}" for found, none in zip(ours, paper[-1], strict=True)),
            ),
            _said(
                routing >= ROUTING,
                f"Routing stretch, of the best: {routing:.2f} times better; {ROUTING} wanted. "
                f"Of single graphs, {min(of_graphs):.2f} to {max(of_graphs):.2f}; the paper's is *as much as* 2.1",
            ),
            _said(
                distance >= DISTANCE, f"Distance stretch, of the best: {distance:.2f} times better; {DISTANCE} wanted"
            ),
            _said(
                max(total[1:]) <= MORE_BYTES * total[0],
                f"Interdomain MB: {total[0] / 1e6:.0f} alone, at most {max(total[1:]) / 1e6:.0f}; 5 % more wanted",
            ),
        ]
    )


def _said(reached: bool, text: str) -> str:  # noqa: FBT001 - what it says
    return f"- {'Reached' if reached else '**Not reached**'}: {text}."
