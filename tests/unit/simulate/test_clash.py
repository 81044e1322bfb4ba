"""The experiment ``clash``: it is repeatable, uses production code, and reports as JSON, table, page and plots."""

from io import StringIO
from pathlib import Path

import msgspec
import numpy as np
import pytest
from rich.console import Console

from service.clash.key_groups import KeyGroup, Keyspaces
from service.clash.split_merge_policy import LoadLimits
from service.simulate.clash.experiment import LENGTHS, STEPS, ClashOutcome, FixedLengthDht, random_servers, run
from service.simulate.clash.report import JOBS, SETUPS, page, plot, plot_run, table
from service.simulate.clash.servers import (
    KEY_BITS,
    PREFIX_BITS,
    SPLIT_CHECK_S,
    ChordMap,
    ClashSetup,
    Interval,
    MapKind,
    MeasuredRates,
    SimulatedServers,
    TrafficSources,
    base_shares,
)
from service.simulate.report import SEEDS

SMALL = ClashSetup(queries=1000, servers=200, sources=5000, capacity_packets_s=400.0)


@pytest.fixture(scope="module")
def reports() -> list[str]:
    return []


@pytest.fixture(scope="module")
def outcome(reports: list[str]) -> ClashOutcome:
    return run(SMALL, 3, reports.append)


def test_the_same_seed_gives_the_same_json(outcome: ClashOutcome) -> None:
    assert msgspec.json.encode(run(SMALL, 3, lambda _what: None)) == msgspec.json.encode(outcome)


def test_the_json_has_the_documented_fields(outcome: ClashOutcome) -> None:
    found = msgspec.json.decode(msgspec.json.encode(outcome))
    names = {
        "servers_used",
        "mean_load",
        "max_load_after_transient",
        "depth_min",
        "depth_mean",
        "depth_max",
        "lookup_probes_mean",
        "messages_per_server_s",
    }
    assert [workload["workload"] for workload in found["workloads"]] == ["A", "B", "C"]
    for workload in found["workloads"]:
        assert names <= workload.keys()
        assert [dht["bits"] for dht in workload["dht"]] == list(LENGTHS)
        assert all(names <= dht.keys() for dht in workload["dht"])
        assert 1 <= workload["lookup_probes_mean"] < workload["lookup_probes_without_memory"]
        assert workload["depth_min"] <= workload["depth_mean"] <= workload["depth_max"] <= PREFIX_BITS


def test_clash_and_dhts_carry_the_same_load(outcome: ClashOutcome) -> None:
    """In every interval, the loads of all servers add up to the traffic."""
    for check in outcome.checks:
        carried = check.loads.mean * check.loads.servers_used
        for bits, loads in zip(LENGTHS, check.dht, strict=True):
            queries_s = SMALL.queries / 1000 / SMALL.capacity_packets_s if bits == KEY_BITS else 0.0
            assert loads.mean * loads.servers_used + queries_s == pytest.approx(carried)


def test_every_check_is_reported(outcome: ClashOutcome, reports: list[str]) -> None:
    assert len(reports) == STEPS == len(outcome.checks)


def test_the_table_fits_a_terminal(outcome: ClashOutcome) -> None:
    console = Console(file=StringIO(), width=80)
    console.print(table(outcome))
    assert isinstance(console.file, StringIO)
    assert "…" not in console.file.getvalue()


def test_the_page_lists_every_run_with_its_command(outcome: ClashOutcome) -> None:
    text = page({name: [outcome] * 2 for name in SETUPS})
    assert "- long streams: `coronet simulate clash`" in text
    assert "- short streams, queries: `coronet simulate clash --stream-packets 50 --queries 50000`" in text
    assert "- Chord's map: `coronet simulate clash --map chord`" in text
    assert text.count("eached") >= 6
    assert "{" not in text
    assert len(JOBS) == len(SETUPS) * len(SEEDS)


def test_plots_are_drawn(outcome: ClashOutcome, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot({name: [outcome] for name in SETUPS}, tmp_path / "page.png")
    plot_run(outcome, tmp_path / "run.png")
    for name in ("page.png", "run.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_the_skews_match_the_paper() -> None:
    shares = base_shares(np.random.default_rng(1))
    hottest = {name: share.reshape(64, 4).sum(axis=1).max() for name, share in shares.items()}
    assert hottest["A"] < 1.2 / 64
    assert hottest["B"] < 0.1
    assert hottest["C"] == pytest.approx(0.5, abs=0.1)


def test_sources_send_at_their_rate_and_change_keys() -> None:
    setup = ClashSetup(stream_packets=50, sources=1000, servers=10)
    rng = np.random.default_rng(1)
    sources = TrafficSources(setup, random_servers(setup.servers, None, rng), rng)
    first = sources.run("A")
    assert first.packets.sum() == pytest.approx(setup.sources)
    assert first.by_whole_key.sum() == pytest.approx(setup.sources)
    later = sources.run("B")
    assert later.packets.sum() == pytest.approx(2 * setup.sources)
    assert later.lookups.sum() == pytest.approx(2 * SPLIT_CHECK_S / 50 * setup.sources, rel=0.05)


def test_servers_split_while_overloaded_and_merge_without_load() -> None:
    keyspaces, limits = Keyspaces(100), LoadLimits(100.0)
    servers = SimulatedServers(keyspaces, 100, limits)
    nothing = np.zeros(1 << PREFIX_BITS)
    busy = Interval(nothing + 1000 / len(nothing), nothing.astype(int), nothing.astype(int), nothing)
    servers.split_overloaded(busy)
    assert max(sum(leaves.values()) for leaves in servers.loads(busy).values()) <= 90
    assert servers.moved
    servers.merge_underloaded(busy)
    assert max(sum(leaves.values()) for leaves in servers.loads(busy).values()) <= 90
    servers.merge_underloaded(Interval(nothing, nothing.astype(int), nothing.astype(int), nothing))
    assert [group for _, group in servers.leaf_groups()] == [KeyGroup(0, 0, KEY_BITS)]


def test_chord_maps_a_key_to_the_next_server_on_the_circle() -> None:
    chord = ChordMap(50, np.random.default_rng(1))
    places = [chord.keyspace_of(KeyGroup(key << 16, 8, KEY_BITS)) for key in range(256)]
    assert set(places) < set(range(50))
    setup = ClashSetup(map=MapKind.CHORD, sources=500, servers=50, capacity_packets_s=400.0)
    assert run(setup, 1, lambda _what: None).splits > 0


def test_a_dht_moves_no_keys() -> None:
    dht = FixedLengthDht(6, Keyspaces(100), 100, 10.0)
    packets = np.zeros(1 << PREFIX_BITS)
    packets[0] = 50.0
    loads = dht.loads(Interval(packets, packets.astype(int), np.zeros(len(packets), int), np.zeros(100)))
    assert (loads.servers_used, loads.max) == (1, 5.0)


def test_chord_routes_a_request_in_about_half_of_log_n_hops() -> None:
    rng = np.random.default_rng(1)
    assert ChordMap(1, rng).mean_hops(rng) == 0
    assert ChordMap(1024, rng).mean_hops(rng) == pytest.approx(np.log2(1024) / 2, abs=1)


def test_measured_rates_converge_to_steady_traffic_and_peaks_decay_slowly() -> None:
    rates, nothing = MeasuredRates(10.0), np.zeros(1 << PREFIX_BITS)
    busy = Interval(nothing + 2.0, nothing.astype(int), nothing.astype(int), nothing)
    silent = Interval(nothing, nothing.astype(int), nothing.astype(int), nothing)
    first, _ = rates.measure(busy)
    assert 0 < first.packets[0] < 1
    for _ in range(200):
        rates.measure(busy)
    for _ in range(3):
        current, peak = rates.measure(silent)
    assert current.packets[0] == pytest.approx(1.0, rel=0.01)
    assert 1.5 < peak.packets[0] < 2


def test_the_run_as_shipped_uses_the_products_thresholds() -> None:
    setup = msgspec.structs.replace(SMALL, as_shipped=True)
    assert setup.limits == LoadLimits(SMALL.capacity_packets_s)
    assert setup.intervals_per_check > SMALL.intervals_per_check
