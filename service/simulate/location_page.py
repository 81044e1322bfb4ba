"""The page ``docs/experiments/location.md``: what was done, the figures, and what they say."""

from collections.abc import Sequence
from statistics import mean

from service.location.sizing import best_hashes, false_positives
from service.simulate.location import Outcome
from service.simulate.location_dynamic import Dynamic
from service.simulate.location_overlay import REACHED, Overlay
from service.simulate.location_static import ALGORITHMS_INDEX_BYTES, DEPTHS, INDEX_BYTES, INDEX_SIZES, Static, Way

FEW_FAILURES = 1.1
"""Times what formulas give at depth 1: where all rows have a server's documents, there can be no fewer."""
ALMOST_SHARE = 0.86
ROUTING, DISTANCE = 2.1, 1.9
MORE_BYTES = 1.05

STATIC_COLUMNS = (
    *("overlay", "depth", "updates", "index", "width", "hashes", "links", "crossing", "found", "failed", "≤ 1.2"),
    *("bytes", "messages", "stretch", "Tapestry's", "with home nodes", "home nodes'"),
)

PAGE = """\
# Probabilistic location

`coronet simulate report --only location` makes this page. A graph's figures 8 to 15 and its tables are
`coronet simulate location --seed N --plot FILE`, N from {first} to {last}; with `--json`, all figures of all runs.

{graphs} transit-stub graphs (six transit domains of ten nodes, seven stub domains at each, twelve nodes in one on
average), {servers:,} servers with {documents} documents and {queries} queries each, overlays in which a server reaches
20 others. The nodes with their filters, updates and queries, the bytes of their messages, and the choice of hashes are
the product's (`service/location`); every update is a message that takes its time along the graph.

## Against the paper

Means over the graphs. Of the paper's figures only what its text says is to be had as numbers.

{against}

{verdict}

![Figures 8 to 15 of the paper](location.png)

## Static: one copy of each document

*Failed* are queries that went to a neighbour and fell back on Tapestry; *≤ 1.2* is the share of them that took at most
20 % longer than by Tapestry at once. Bytes are those on interdomain edges (between stub and transit domains) for each
new document, with 40 bytes of TCP and IP for each message.

{static}

## Dynamic: caches of 420 kB

The whole stream goes through the caches; {reads:,.0f} reads per graph, from three places in it, needed a location and
were measured. Stretches are means over them; bytes are MB on interdomain edges.

{dynamic}

## How to read it

- **What failed means.** The paper's Figure 9 is not to be had, and its text says no number. At depth 1 there is a
  formula: 20 neighbours with 70 documents each in 1.83 kB are 732 bits per filter, and {least:.1%} of all queries match
  one of them by chance, whatever anybody does. Deeper filters do worse at this size: all rows have one width, but very
  different numbers of documents. Nearly all that is two hops away is heard of first by way of the same few neighbours,
  so those links' last rows are full while others are nearly empty. The paper counts its index in the same way,
  and does not say how its rows were filled. In the product, the width follows the fullest row.
- **Overlays.** The paper says *some number of their closest neighbors* and that the index has constant size per server,
  so here all have the same number: the nearest pairs first, while both have room. If each had its nearest ones, in
  whatever number others chose it, a few servers would have dozens of neighbours. The restricted overlay limits how many
  links go over each interdomain edge, to what the 20 need.
- **The graphs are ours.** The paper takes latencies and extra edges from GT-ITM and does not tell them. Ours are
  distances in a plane: stub nodes 1 ms, their transit nodes 5 ms, transit domains up to 80 ms apart.
- **Updates pass on what is known already.** The paper's do not, and can lose documents that share a bit with another
  (`service/location/protocol.py` says how). Destination filtering therefore sends a few bytes more than it would in
  the paper, and where it saves little, more than no filtering. Without filtering, updates are sent as in
  the paper. Algorithms are compared at {algorithms:.2f} kB: where filters are nearly full, an update changes and
  costs nothing.
- **The reference stream** has SURGE's popularity and stack distances, and fewer large files than SURGE
  (`service/simulate/location_trace.py`), so that the mean is the paper's 21 kB. It asks for each of the 50,000 files at
  least once; so Zipf's law makes it some 570,000 requests long. How long the paper's was, and how it was dealt
  out to servers, it does not say; ours goes to servers at random.
- **Disks** delay all ways alike and are left out.
- Home nodes are the paper's idealised ones: they know the copy nearest to who asks.
"""


def page(outcomes: Sequence[Outcome]) -> str:
    """Return the page of these graphs."""
    setup = outcomes[0].setup
    return PAGE.format(
        graphs=len(outcomes),
        servers=setup.servers,
        documents=setup.documents,
        queries=setup.queries,
        first=outcomes[0].seed,
        last=outcomes[-1].seed,
        least=least_failed(setup.documents),
        reads=mean(outcome.dynamic[0].reads for outcome in outcomes),
        against=against(outcomes),
        verdict=verdict(outcomes),
        static=static(outcomes),
        dynamic=dynamic(outcomes),
        algorithms=ALGORITHMS_INDEX_BYTES / 1000,
    )


def least_failed(documents: int) -> float:
    """Return the share of queries that fail at depth 1, by formula, with the paper's index."""
    width = int(8 * INDEX_BYTES / REACHED)
    matched = false_positives(width, best_hashes(width, [documents]), documents)
    return 1 - float((1 - matched) ** REACHED)


def static_of(
    outcomes: Sequence[Outcome], kind: Overlay, depth: int, index_bytes: float, filtering: str
) -> list[Static]:
    """Return the run of these filters on each graph. Of depth 1 there is one overlay, and nothing to filter."""
    if depth == 1:
        kind, filtering = Overlay.GREEDY, "source"
    wanted = (kind, depth, index_bytes, filtering)
    return [
        found
        for outcome in outcomes
        for found in outcome.static
        if (found.index.overlay, found.index.depth, found.index.bytes, found.index.filtering) == wanted
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


def against(outcomes: Sequence[Outcome]) -> str:
    """Return the table of what the paper says, and what was found, by depth."""

    def row(name: str, form: str, kind: Overlay, size: float = INDEX_BYTES, filtering: str = "source") -> str:
        cells = [mean_of(static_of(outcomes, kind, depth, size, filtering), name) for depth in DEPTHS]
        return " | ".join(format(cell, form) for cell in cells)

    def gain(name: str) -> str:
        alone, *others = dynamic_of(outcomes).values()
        return " | ".join(f"{mean_of(alone, name) / mean_of(runs, name):.2f}" for runs in others[: len(DEPTHS)])

    sizes = [
        f"| Fig. 9: failed, {size / 1000:.2f} kB, {kind} | {'few' if size == INDEX_BYTES else ''} | "
        f"{row('failed', '.1%', kind, size)} |"
        for kind in Overlay
        for size in INDEX_SIZES
    ]
    algorithms = [
        f"| Fig. 8: bytes per update, {filtering} filtering | source ≤ destination ≤ none | "
        f"{row('crossed_bytes', ',.0f', Overlay.RESTRICTED, ALGORITHMS_INDEX_BYTES, filtering)} |"
        for filtering in ("none", "destination", "source")
    ]
    overlays = [
        f"| Fig. 12: the same, {INDEX_BYTES / 1000:.2f} kB, {kind} | {said} | {row('crossed_bytes', ',.0f', kind)} |"
        for kind, said in ((Overlay.GREEDY, "alike at all depths"), (Overlay.RESTRICTED, "much less when deeper"))
    ]
    lines = [
        "|  | paper | depth 1 | 2 | 3 | 4 |",
        "|---|---|--:|--:|--:|--:|",
        *sizes,
        f"| Fig. 10: failed ones within 1.2 | 86 % at depth 3 | {row('failed_almost', '.1%', Overlay.RESTRICTED)} |",
        *algorithms,
        *overlays,
        f"| Fig. 13: routing stretch, Tapestry's to the hybrid's | up to 2.1 | {gain('routing_stretch')} |",
        f"| Fig. 14: distance stretch, Tapestry's to the hybrid's | up to 1.94 | {gain('distance_stretch')} |",
    ]
    return "\n".join(lines)


def verdict(outcomes: Sequence[Outcome]) -> str:
    """Say what was reached, on the mean over the graphs, and what not."""
    at_depth_3 = static_of(outcomes, Overlay.RESTRICTED, 3, INDEX_BYTES, "source")
    failed = [
        mean_of(static_of(outcomes, Overlay.RESTRICTED, depth, INDEX_BYTES, "source"), "failed") for depth in DEPTHS
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
    bandwidth = [
        [
            mean_of(static_of(outcomes, Overlay.RESTRICTED, depth, ALGORITHMS_INDEX_BYTES, filtering), "crossed_bytes")
            for filtering in ("source", "destination", "none")
        ]
        for depth in DEPTHS
    ]
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
                all(each == sorted(each) for each in bandwidth), "Source filtering ≤ destination ≤ none, at all depths"
            ),
            _said(all(each[0] <= min(each) for each in bandwidth), "Source filtering costs least, at all depths"),
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


def static(outcomes: Sequence[Outcome]) -> str:
    """Return a table of all static runs, means over the graphs."""
    lines = [
        f"| {' | '.join(STATIC_COLUMNS)} |",
        "|---|--:|---" + "|--:" * (len(STATIC_COLUMNS) - 3) + "|",
    ]
    for runs in zip(*(outcome.static for outcome in outcomes), strict=True):
        used = runs[0].index
        indices = [run.index for run in runs]
        cells = [
            used.overlay,
            str(used.depth),
            used.filtering,
            f"{used.bytes / 1000:.2f}",
            f"{mean(each.width for each in indices):,.0f}",
            f"{mean(each.hashes for each in indices):.1f}",
            f"{mean(each.links for each in indices):.1f}",
            f"{mean(each.crossing_links for each in indices):,.0f}",
            f"{mean_of(runs, 'found'):.2%}",
            f"{mean_of(runs, 'failed'):.1%}",
            f"{mean_of(runs, 'failed_almost'):.1%}",
            f"{mean_of(runs, 'crossed_bytes'):,.0f}",
            f"{mean_of(runs, 'messages'):.1f}",
            *(_stretch(runs, way) for way in (Way.HYBRID, Way.TAPESTRY, Way.HYBRID_HOME, Way.HOME)),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _stretch(runs: Sequence[Static], way: Way) -> str:
    found = [located.mean for run in runs for located in run.located if located.way is way]
    return f"{mean(found):.2f}" if found else ""


def dynamic(outcomes: Sequence[Outcome]) -> str:
    """Return a table of the dynamic runs, means over the graphs."""
    lines = [
        "|  | routing stretch | distance stretch | found | failed | files | pointers | queries | filters |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, runs in dynamic_of(outcomes).items():
        megabytes = [f"{mean_of(runs, f'{kind}_bytes') / 1e6:.1f}" for kind in ("file", "pointer", "query", "filter")]
        cells = [
            f"{mean_of(runs, 'routing_stretch'):.2f}",
            f"{mean_of(runs, 'distance_stretch'):.2f}",
            f"{mean_of(runs, 'found'):.1%}",
            f"{mean_of(runs, 'failed'):.1%}",
            *megabytes,
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _said(reached: bool, text: str) -> str:  # noqa: FBT001 - what it says
    return f"- {'Reached' if reached else '**Not reached**'}: {text}."
