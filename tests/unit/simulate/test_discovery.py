"""The experiment ``discovery``: observed rates, the choice of matrices by queries, and reports of a small run."""

import json
from collections import defaultdict, deque
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.discovery.matrix import WINDOW, MatrixLimits
from service.simulate.cli import run
from service.simulate.discovery import experiment as discovery
from service.simulate.discovery.experiment import DiscoveryOutcome
from service.simulate.discovery.experiment import run as run_seed
from service.simulate.discovery.matrices import (
    PAIRS,
    QueryWorkload,
    RateWindows,
    SimulatedMatrices,
    skewed_names,
    uniform_names,
    zipf_queries,
)
from service.simulate.discovery.queries import (
    LIMIT,
    FullQueries,
    LimitedQueries,
    RegisteredNames,
    Registrations,
    Scheme,
    choose_matrix,
    partitions_to_ask,
    size_to_learn,
)
from service.simulate.discovery.report import page

NAMES, QUERIES = 2_000, 3_000


@pytest.fixture(scope="module")
def outcome() -> Iterator[DiscoveryOutcome]:
    """Return a small run; other runs in the test have the same size."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(discovery, "uniform_names", lambda rng: uniform_names(rng, NAMES))
        patched.setattr(discovery, "skewed_names", lambda rng: skewed_names(rng, NAMES))
        patched.setattr(discovery, "zipf_queries", lambda rng: zipf_queries(rng, QUERIES))
        patched.setattr(discovery, "MIXED_QUERIES", QUERIES // 2)
        yield run_seed(1, lambda _what: None)


@given(batches=st.lists(st.lists(st.integers(0, 3), max_size=60), max_size=6), seed=st.integers(0, 99))
def test_a_node_observes_the_rate_of_its_last_messages_regardless_of_batches(
    batches: list[list[int]], seed: int
) -> None:
    windows, rng, now_s = RateWindows(), np.random.default_rng(seed), 0.0
    seen: dict[int, deque[float]] = defaultdict(lambda: deque(maxlen=WINDOW))
    for nodes in batches:
        times_s = now_s + np.cumsum(rng.exponential(0.01, len(nodes)))
        found = windows.record_messages(np.array(nodes, dtype=np.int64), times_s)
        for node, at_s, rate in zip(nodes, times_s.tolist(), found.tolist(), strict=True):
            whole = len(seen[node]) == WINDOW
            assert rate == (pytest.approx(WINDOW / (at_s - seen[node][0])) if whole else 0.0)
            seen[node].append(at_s)
            now_s = at_s


def registered(*pairs: int) -> SimulatedMatrices:
    """Return matrices in which names with these pairs were registered."""
    matrices, one = SimulatedMatrices(MatrixLimits(), np.random.default_rng(1)), np.array(pairs, dtype=np.int64)
    matrices.report_registrations(one, np.zeros_like(one), np.ones_like(one), np.zeros(len(one)), 0.0)
    return matrices


def asked(matrices: SimulatedMatrices, *pairs: int) -> set[int]:
    """Return the pairs whose matrices a hundred queries with all these pairs use."""
    queries = QueryWorkload(np.tile(np.array(pairs), 100), np.arange(0, 100 * len(pairs) + 1, len(pairs)))
    sent = FullQueries(queries, 100.0, 0.0, matrices, scheme=Scheme.OPTIMISED, rng=np.random.default_rng(2))
    sent.process_until(sent.last_s)
    return set(sent.pair.tolist())


def test_a_query_uses_a_pair_without_registrations() -> None:
    matrices = registered(1, 2, 3)
    assert asked(matrices, 1, 2) == {1, 2}
    assert asked(matrices, 1, 2, 7) == {7}
    assert asked(matrices, 1, 7, 8) == {7, 8}
    assert not matrices.begun[PAIRS - 1]


def test_a_limited_query_asks_partitions_until_it_has_enough_names() -> None:
    rng = np.random.default_rng(3)
    names = skewed_names(rng, NAMES)
    matrices = SimulatedMatrices(MatrixLimits(names=100, partitions=8), rng)
    sent = Registrations(names, 500.0, 0.0, matrices, rng=rng)
    discovery._deliver_all(sent, 500, matrices, grow=True)
    queries, held = zipf_queries(rng, QUERIES).first(500), RegisteredNames(sent)
    asked = LimitedQueries(queries, 100.0, sent.last_s + 1, matrices, registered_names=held, rng=rng)
    several = 0
    for query in range(queries.count):
        of = np.flatnonzero(asked._query == query)
        pair, partitions = int(asked._pair[of[0]]), asked._partition[of].tolist()
        wanted = queries.pair[queries.begin[query] : queries.begin[query + 1]]
        has = np.isin(names, wanted).sum(axis=1) == len(wanted)
        at = sent.partition[np.flatnonzero(sent.pair == pair)]
        whose = np.flatnonzero((names == pair).any(axis=1))
        lies = at[(has & sent.succeeds)[whose]]
        count = int(matrices.partitions[pair])
        several += count > 1
        assert len(set(partitions)) == len(partitions) == asked.messages[query] <= count
        if count > 1:
            assert held.spread(wanted.tolist(), pair, count).tolist() == np.bincount(lies, minlength=count).tolist()
            assert len(partitions) == count or np.isin(lies, partitions).sum() >= LIMIT
    assert several > 20


def test_sizes_are_read_until_a_matrix_of_one_partition_is_known() -> None:
    assert size_to_learn([1, 2], {}, 0) == 1
    assert size_to_learn([1, 2], {1: 4}, 0) == 2
    assert size_to_learn([1, 2], {1: 1}, 0) is None
    assert size_to_learn([1], {1: 4}, 0) is None


def test_the_matrix_with_the_fewest_partitions_is_chosen() -> None:
    assert [choose_matrix({1: 4, 2: 2, 3: 2}, draw) for draw in range(2)] == [2, 3]


def test_only_as_many_partitions_are_asked_as_the_limit_needs() -> None:
    assert partitions_to_ask(0, 0, 10) == 1
    assert partitions_to_ask(1, 10, 10) == 0
    assert partitions_to_ask(1, 2, 10) == 1
    assert partitions_to_ask(4, 8, 10) == 1
    assert partitions_to_ask(4, 0, 10) == 4


def test_the_page_has_every_figure(outcome: DiscoveryOutcome) -> None:
    text = page({"discovery": [outcome, outcome]})
    assert all(f"Fig. {number}" in text for number in (9, 10, 11, 12, 14, 15, 16))
    assert "{" not in text


def test_the_command_prints_json_and_draws_a_plot(
    outcome: DiscoveryOutcome, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    run(["discovery", "--json", "--seed", "1", "--plot", str(tmp_path / "drawn.png")])
    assert json.loads(capsys.readouterr().out) == json.loads(msgspec.json.encode(outcome))
    assert (tmp_path / "drawn.png").read_bytes().startswith(b"\x89PNG")
