"""The figures of the page on location: means over the graphs."""

from collections.abc import Sequence
from statistics import mean

from service.simulate.location import Outcome
from service.simulate.location_dynamic import Dynamic
from service.simulate.location_overlay import Overlay
from service.simulate.location_static import ALGORITHMS_INDEX_BYTES, DEPTHS, INDEX_BYTES, Static
from service.simulate.location_updates import Updates


def static_of(
    outcomes: Sequence[Outcome], kind: Overlay, depth: int, index_bytes: float, updates: Updates
) -> list[Static]:
    """Return the run of these filters on each graph. Of depth 1 there is one overlay, and nothing to filter."""
    if depth == 1:
        kind, updates = Overlay.GREEDY, Updates.PRODUCT_SOURCE
    wanted = (kind, depth, index_bytes, updates)
    return [
        found
        for outcome in outcomes
        for found in outcome.static
        if (found.index.overlay, found.index.depth, found.index.bytes, found.index.updates) == wanted
    ]


def dynamic_of(outcomes: Sequence[Outcome]) -> dict[str, list[Dynamic]]:
    """Return the dynamic runs of all graphs by their labels; Tapestry alone is the first."""
    return {label(runs[0]): list(runs) for runs in zip(*(outcome.dynamic for outcome in outcomes), strict=True)}


def label(run: Dynamic) -> str:
    """Return what a dynamic run is called."""
    if run.index is None:
        return "Tapestry alone"
    return f"depth {run.index.depth}" + ("" if run.index.bytes == INDEX_BYTES else f", {run.index.bytes / 1000:.2f} kB")


def mean_of(runs: Sequence[Static] | Sequence[Dynamic], name: str) -> float:
    """Return the mean over the graphs."""
    return mean(float(getattr(run, name)) for run in runs)


def document_bytes(outcomes: Sequence[Outcome], updates: Updates) -> list[float]:
    """Return Figure 8 for one algorithm: by depth, the bytes of updates and of Tapestry's messages for a document."""
    runs = (static_of(outcomes, Overlay.RESTRICTED, depth, ALGORITHMS_INDEX_BYTES, updates) for depth in DEPTHS)
    return [mean_of(each, "crossed_bytes") + mean_of(each, "pointer_bytes") for each in runs]
