"""The page ``docs/experiments/location.md``: what was done, the figures, and what they say."""

from collections.abc import Iterable, Sequence
from statistics import mean

from service.simulate.location import DYNAMIC_SIZES, Outcome
from service.simulate.location_means import document_bytes, dynamic_of, mean_of, static_of
from service.simulate.location_overlay import Overlay
from service.simulate.location_static import ALGORITHMS_INDEX_BYTES, DEPTHS, INDEX_BYTES, INDEX_SIZES, Static, Way
from service.simulate.location_updates import Updates
from service.simulate.location_verdict import least_failed, verdict

FIGURE_8 = {
    Updates.NONE: "",
    Updates.DESTINATION: "as none at depth 2, then less",
    Updates.SOURCE: "generally significantly less",
    Updates.PRODUCT_DESTINATION: "",
    Updates.PRODUCT_SOURCE: "",
}
"""What the paper says of each algorithm."""

STATIC_COLUMNS = (
    *("overlay", "depth", "updates", "index", "width", "hashes", "links", "crossing", "found", "failed", "≤ 1.2"),
    *("bytes", "messages", "missing", "stretch", "Tapestry's", "with home nodes", "home nodes'"),
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
new document, with 40 bytes of TCP and IP for each message. *Missing* is the share of servers near a new document that
cannot find it where it is. Updates that are not *ours* are the paper's, as published.

{static}

## Dynamic: caches of 420 kB

The whole stream goes through the caches; {reads:,.0f} reads per graph, from three places in it, needed a location and
were measured. Stretches are means over them; bytes are MB on interdomain edges.

{dynamic}

## How to read it

- **What failed means.** The paper's Figure 9 is not to be had, and its text says no number, so what is wanted here is
  our own. At depth 1 there is a formula: 20 neighbours with 70 documents each in 1.83 kB are 732 bits per filter, and
  {least:.1%} of all queries match one of them by chance, whatever anybody does. Deeper filters do worse at this size:
  20 servers are reached *on average*, so some reach many more, and all rows have one width, but very
  different numbers of documents. Nearly all that is two hops away is heard of first by way of the same few neighbours,
  so those links' last rows are full while others are nearly empty. Were what each server reaches spread evenly over its
  rows, {even} would fail at depths 2, 3 and 4 of the restricted overlay. The paper counts its index in
  the same way, and does not say how its rows were filled. In the product, the width follows the fullest row.
- **Overlays.** The paper says *some number of their closest neighbors* and that the index has constant size per server,
  so here all have the same number: the nearest pairs first, while both have room. If each had its nearest ones, in
  whatever number others chose it, a few servers would have dozens of neighbours. The restricted overlay limits how many
  links go over each interdomain edge, to what the 20 need.
- **The graphs are ours.** The paper takes latencies and extra edges from GT-ITM and does not tell them. Ours are
  distances in a plane: stub nodes 1 ms, their transit nodes 5 ms, transit domains up to 80 ms apart.
- **The product's updates pass on what is known already.** The paper's tell a neighbour only what it was not told
  before. But with filtering, a neighbour has not all that it was told: documents that share bits with others
  are lost, {missing} of them at depths 2, 3 and 4, until all is flushed and told anew. So the three
  algorithms of Figure 8 are the paper's, as published, and the product's stand beside them
  (`service/location/protocol.py`). Its destination filtering, which nobody uses, would cost more than none where there
  are few loops. Algorithms are compared at {algorithms:.2f} kB: where filters are nearly full, an update changes and
  costs nothing.
- **Figure 8** has, as in the paper, Tapestry's messages besides the updates: {pointers:.0f} bytes.
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
    restricted = [
        static_of(outcomes, Overlay.RESTRICTED, depth, INDEX_BYTES, Updates.PRODUCT_SOURCE) for depth in DEPTHS[1:]
    ]
    published = [
        static_of(outcomes, Overlay.RESTRICTED, depth, ALGORITHMS_INDEX_BYTES, Updates.SOURCE) for depth in DEPTHS[1:]
    ]
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
        even=_listed(mean(run.index.even_failed for run in runs) for runs in restricted),
        missing=_listed(mean_of(runs, "missing") for runs in published),
        pointers=mean_of(published[0], "pointer_bytes"),
    )


def _listed(shares: Iterable[float]) -> str:
    *before, last = (f"{share:.1%}" for share in shares)
    return f"{', '.join(before)} and {last}"


def against(outcomes: Sequence[Outcome]) -> str:
    """Return the table of what the paper says, and what was found, by depth."""

    def row(name: str, form: str, kind: Overlay, size: float = INDEX_BYTES) -> str:
        cells = [mean_of(static_of(outcomes, kind, depth, size, Updates.PRODUCT_SOURCE), name) for depth in DEPTHS]
        return " | ".join(format(cell, form) for cell in cells)

    def gains(figure: str, name: str, paper: float) -> list[str]:
        alone, *hybrids = dynamic_of(outcomes).values()
        found = [f"{mean_of(alone, name) / mean_of(runs, name):.2f}" for runs in hybrids]
        depths = len(DEPTHS)
        what = f"{name.replace('_', ' ')}, Tapestry's to the hybrid's"
        return [
            f"| {figure}: {what}, {size / 1000:.2f} kB | up to {paper} | {' | '.join(found[at : at + depths])} |"
            for size, at in zip(DYNAMIC_SIZES, range(0, len(found), depths), strict=True)
        ]

    sizes = [
        f"| Fig. 9: failed, {size / 1000:.2f} kB, {kind} | {'few' if size == INDEX_BYTES else ''} | "
        f"{row('failed', '.1%', kind, size)} |"
        for kind in Overlay
        for size in INDEX_SIZES
    ]
    algorithms = [
        f"| Fig. 8: bytes per document, {updates} filtering | {said} | "
        f"{' | '.join(f'{each:,.0f}' for each in document_bytes(outcomes, updates))} |"
        for updates, said in FIGURE_8.items()
    ]
    overlays = [
        f"| Fig. 12: of updates, {INDEX_BYTES / 1000:.2f} kB, {kind} | {said} | {row('crossed_bytes', ',.0f', kind)} |"
        for kind, said in ((Overlay.GREEDY, "alike at all depths"), (Overlay.RESTRICTED, "much less when deeper"))
    ]
    lines = [
        "|  | paper | depth 1 | 2 | 3 | 4 |",
        "|---|---|--:|--:|--:|--:|",
        *sizes,
        f"| Fig. 10: failed ones within 1.2 | 86 % at depth 3 | {row('failed_almost', '.1%', Overlay.RESTRICTED)} |",
        *algorithms,
        *overlays,
        *gains("Fig. 13", "routing_stretch", 2.1),
        *gains("Fig. 14", "distance_stretch", 1.94),
    ]
    return "\n".join(lines)


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
            used.updates,
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
            f"{mean_of(runs, 'missing'):.1%}",
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
