"""The order of search results."""

from service.discovery.search_candidates import CandidateName, Clause, WeightedPair
from service.discovery.text_search.ranking import RankingSignals, clause_importance, score

NOTHING = RankingSignals(as_written=0.0, is_in_askers_language=False, subscribers=0, age_s=None)


def total(weight: float, circumstances: RankingSignals = NOTHING) -> float:
    return score(CandidateName("n", 0.0, 0.0, (weight,), ("word=a",)), [5.0], circumstances).total


def test_rare_words_are_more_important() -> None:
    clause = Clause((WeightedPair("word=a"), WeightedPair("word=b", 0.5)))
    assert clause_importance(clause, {"word=a": 1}) > clause_importance(clause, {"word=a": 100}) > 0


def test_a_similar_word_decides_the_importance_only_if_nothing_else_is_registered() -> None:
    clause = Clause((WeightedPair("word=a"), WeightedPair("word=b", 0.5)))
    assert clause_importance(clause, {"word=a": 9, "word=b": 500}) == clause_importance(clause, {"word=a": 9})
    assert clause_importance(clause, {"word=b": 500}) < clause_importance(clause, {"word=b": 5})


def test_relevance_outweighs_all_other_signals() -> None:
    best = RankingSignals(as_written=1.0, is_in_askers_language=True, subscribers=10**9, age_s=0.0)
    assert total(200) > total(100, best)


def test_each_ranking_signal_raises_the_score() -> None:
    assert total(100, RankingSignals(1.0, False, 0, None)) > total(100)
    assert total(100, RankingSignals(0.0, True, 0, None)) > total(100)
    popular, known = (RankingSignals(0.0, False, count, None) for count in (50, 5))
    assert total(100, popular) > total(100, known) > total(100)
    new, old = (RankingSignals(0.0, False, 0, age_s) for age_s in (0.0, 1e9))
    assert total(100, new) > total(100, old) >= total(100)


def test_extreme_ranking_signals_have_finite_scores() -> None:
    for age_s in (-1e300, 1e300, 0.0):
        assert 0 < total(100, RankingSignals(1.0, True, 2**63, age_s)) < 1e6
