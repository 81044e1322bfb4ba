"""The experiment ``location``: it is repeatable, uses production nodes, and reports as JSON, table, page and plots."""

from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from rich.console import Console

from service.settings import Settings
from service.simulate.location import large_fleet_experiment
from service.simulate.location.dynamic_experiment import CACHE_BYTES, ServerCaches, draw_reference_stream
from service.simulate.location.experiment import STEPS, LocationOutcome, LocationSetup, run
from service.simulate.location.graph import (
    REACHED,
    OverlayKind,
    ServerDistances,
    build_overlay,
    draw_distances,
    mean_reach,
)
from service.simulate.location.large_fleet_experiment import fleet_filters
from service.simulate.location.network import TapestryMesh, UpdateAlgorithm
from service.simulate.location.report import JOBS, page, plot, plot_run, table
from service.simulate.location.static_experiment import ALGORITHMS_INDEX_BYTES
from workers.peers import neighbour_overlay

SMALL = LocationSetup(servers=60, documents=10, queries=4, files=600, reads=3)


@pytest.fixture(scope="module")
def reports() -> list[str]:
    return []


@pytest.fixture(scope="module")
def outcome(reports: list[str]) -> LocationOutcome:
    return run(SMALL, 3, reports.append)


@pytest.fixture(scope="module")
def graph() -> ServerDistances:
    return draw_distances(300, np.random.default_rng(1))


def found(outcome: LocationOutcome) -> dict[str, list[Any]]:
    """Return the outcomes as the page's jobs would return them."""
    fleets = (fleet_filters(6, 2, np.random.default_rng(1)),)
    return {"static": [outcome.static] * 3, "dynamic": [outcome.dynamic] * 3, "fleets": [fleets] * 3}


def test_every_run_is_reported(outcome: LocationOutcome, reports: list[str]) -> None:
    assert len(reports) == STEPS == len(outcome.static) + 1


def test_json_has_all_runs(outcome: LocationOutcome) -> None:
    found = msgspec.json.decode(msgspec.json.encode(outcome))
    assert {run["index"]["depth"] for run in found["static"]} == {1, 2, 3, 4}
    assert {run["index"]["updates"] for run in found["static"]} == set(UpdateAlgorithm)
    for static in found["static"]:
        assert 0 <= static["found"] + static["failed"] <= 1
        assert static["crossed_bytes"] > 0
    assert found["dynamic"][0]["filter_bytes"] == 0 < found["dynamic"][1]["filter_bytes"]


def test_the_products_updates_lose_nothing_and_the_papers_filtering_saves_bytes(outcome: LocationOutcome) -> None:
    for depth in (2, 3, 4):
        runs = {
            run.index.updates: run
            for run in outcome.static
            if run.index.depth == depth
            and run.index.overlay is OverlayKind.RESTRICTED
            and run.index.bytes == ALGORITHMS_INDEX_BYTES
        }
        for whole in (UpdateAlgorithm.NONE, UpdateAlgorithm.PRODUCT_DESTINATION, UpdateAlgorithm.PRODUCT_SOURCE):
            assert runs[whole].missing == 0
        source, destination, none = (
            runs[each].crossed_bytes
            for each in (UpdateAlgorithm.SOURCE, UpdateAlgorithm.DESTINATION, UpdateAlgorithm.NONE)
        )
        assert source <= destination <= none
        assert depth > 2 or destination == none


def test_filters_find_closer_copies_sooner(outcome: LocationOutcome) -> None:
    alone, *hybrids = outcome.dynamic
    for hybrid in hybrids:
        assert hybrid.reads == alone.reads
        assert 1 <= hybrid.routing_stretch < alone.routing_stretch
        assert 1 <= hybrid.distance_stretch < alone.distance_stretch


def test_the_table_and_the_page_show_the_results(outcome: LocationOutcome) -> None:
    console = Console(file=StringIO(), width=80)
    console.print(table(outcome))
    assert isinstance(console.file, StringIO)
    assert "…" not in console.file.getvalue()
    text = page(found(outcome))
    assert "{" not in text
    assert text.count("eached") >= 7
    assert len(JOBS) == 9


def test_plots_are_drawn(outcome: LocationOutcome, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot(found(outcome), tmp_path / "page.png")
    plot_run(outcome, tmp_path / "run.png")
    for name in ("page.png", "run.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_distances_are_shortest_and_symmetric(graph: ServerDistances) -> None:
    latency_s = graph.latency_s
    assert np.allclose(latency_s, latency_s.T)
    assert (np.diag(latency_s) == 0).all()
    assert (graph.crossings == graph.crossings.T).mean() > 0.99
    through = latency_s[:, :20, None] + latency_s[None, :20]
    assert (latency_s <= through.min(axis=1) + 1e-12).all()
    same = graph.domain[:, None] == graph.domain[None]
    assert graph.crossings[same].max() == 0
    assert latency_s[same].max() < np.median(latency_s[~same])


def test_a_graph_depends_only_on_its_seed(graph: ServerDistances) -> None:
    again = draw_distances(300, np.random.default_rng(1))
    assert (again.latency_s == graph.latency_s).all()
    assert (draw_distances(300, np.random.default_rng(2)).latency_s != graph.latency_s).any()


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_overlays_reach_twenty_servers_and_the_restricted_one_crosses_fewer_domains(
    graph: ServerDistances, depth: int
) -> None:
    crossing = {}
    for kind in OverlayKind:
        edges = build_overlay(kind, graph, depth, np.random.default_rng(1))
        assert mean_reach(edges, graph.servers, depth) == pytest.approx(REACHED, abs=0.5)
        crossing[kind] = sum(bool(graph.crossings[one, other]) for one, other in edges)
    assert crossing[OverlayKind.RESTRICTED] <= crossing[OverlayKind.GREEDY]


def test_all_tapestry_paths_to_a_document_end_at_its_root(graph: ServerDistances) -> None:
    tapestry = TapestryMesh(graph, np.random.default_rng(1))
    for document in ("one", "two", "three"):
        assert len({tapestry.path(start, document)[-1] for start in range(graph.servers)}) == 1


def test_a_published_document_is_located_until_it_is_withdrawn(graph: ServerDistances) -> None:
    tapestry = TapestryMesh(graph, np.random.default_rng(1))
    tapestry.publish(7, "document")
    tapestry.publish(9, "document")
    assert {tapestry.locate(start, "document").holder for start in range(graph.servers)} <= {7, 9}
    assert tapestry.locate(7, "document") == (7, 0.0, 0)
    tapestry.withdraw(7, "document")
    assert {tapestry.locate(start, "document").holder for start in range(graph.servers)} == {9}


def test_file_sizes_match_the_paper_and_caches_keep_their_limit() -> None:
    stream = draw_reference_stream(20, 50_000, np.random.default_rng(1))
    assert np.mean(stream.sizes) == pytest.approx(21_000, rel=0.1)
    caches = ServerCaches(20, stream.sizes, stream.disks)
    cached: list[set[int]] = [set() for _ in range(20)]
    for server, file in stream.requests:
        had = server in caches.holders[file]
        come, gone = caches.read(server, file)
        assert not (had and come)
        cached[server] = (cached[server] | set(come)) - set(gone)
        assert sum(stream.sizes[each] for each in cached[server]) <= CACHE_BYTES
    for file, holders in enumerate(caches.holders):
        assert holders == {stream.disks[file]} | {server for server in range(20) if file in cached[server]}


def test_the_width_of_filters_is_bounded_in_large_fleets() -> None:
    small, large = (fleet_filters(workers, 4, np.random.default_rng(1)) for workers in (20, 120))
    assert small.width <= large.width <= neighbour_overlay.MAX_FILTER_BITS
    assert large.fullest_row < 1.05 * neighbour_overlay.MAX_ROW_WORKERS
    assert large.shown < small.shown
    assert max(small.most_links, large.most_links) < 20


@pytest.mark.parametrize(
    "limit", ["DEPTH", "FALSE_POSITIVES", "MAX_FILTER_BITS", "MAX_ROW_DOCUMENTS", "MAX_ROW_WORKERS"]
)
def test_the_simulated_fleets_have_the_products_limits(limit: str) -> None:
    assert getattr(large_fleet_experiment, limit) == getattr(neighbour_overlay, limit)


def test_the_simulated_fleets_have_the_default_limit_of_near_workers() -> None:
    assert Settings.model_fields["near_rtt_s"].default == large_fleet_experiment.NEAR_S
