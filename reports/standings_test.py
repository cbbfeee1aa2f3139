"""Standings: bold is the best, spreads are over seeds, and the sentence says where a baseline wins."""

from typing import Any

import pytest

from reports import standings
from reports.standings import metric_of


def _scores(**by_model: list[float | None]) -> dict[str, Any]:
    return {"wine": {model: {"auc_ovr": {"mean": 0, "per_seed": seeds}} for model, seeds in by_model.items()}}


def test_the_best_is_bold_ties_at_the_digits_shown_included() -> None:
    row = standings.table_row(
        _scores(veritab=[0.9904], linear=[0.9896], knn=[0.98]), table="wine", metric=metric_of("auc_ovr")
    )
    assert {model: (cell.text, cell.is_best) for model, cell in row.items()} == {
        "veritab": ("0.990", True),
        "linear": ("0.990", True),
        "knn": ("0.980", False),
    }


@pytest.mark.parametrize(("key", "best"), [("auc_ovr", "high"), ("nll", "low"), ("coverage90", "near"), ("odd", None)])
def test_each_metric_knows_which_way_is_better(key: str, best: str | None) -> None:
    values = {"low": 0.1, "near": 0.89, "high": 1.0}
    tree = {"t": {model: {key: {"per_seed": [value]}} for model, value in values.items()}}
    row = standings.table_row(tree, table="t", metric=metric_of(key))
    assert [model for model, cell in row.items() if cell.is_best] == ([best] if best else [])


def test_the_spread_is_the_sample_deviation_over_seeds_and_undefined_seeds_are_left_out() -> None:
    row = standings.table_row(
        _scores(veritab=[0.9, None, 1.0], knn=[None]), table="wine", metric=metric_of("auc_ovr")
    )
    assert list(row) == ["veritab"]
    assert row["veritab"].mean == pytest.approx(0.95) and row["veritab"].spread == pytest.approx(0.0707, abs=1e-4)


def test_a_better_baseline_is_named_with_the_gap() -> None:
    scores = _scores(veritab=[0.990, 0.991], linear=[0.994, 0.995], knn=[0.9, 0.9])
    sentence = standings.verdict_sentence(scores, metric=metric_of("auc_ovr"))
    assert sentence.endswith("none of one table. On wine, linear is better by .004.")


def test_a_gap_within_the_spread_of_paired_seeds_says_so() -> None:
    scores = _scores(veritab=[0.99, 0.98], linear=[0.98, 1.0])
    assert "which is within the spread over seeds" in standings.verdict_sentence(scores, metric=metric_of("auc_ovr"))


def test_lower_is_better_and_ties_are_not_wins() -> None:
    tree = {
        "a": {"veritab": {"nll": {"per_seed": [0.5]}}, "knn": {"nll": {"per_seed": [0.7]}}},
        "b": {"veritab": {"nll": {"per_seed": [0.5]}}, "knn": {"nll": {"per_seed": [0.5]}}},
    }
    sentence = standings.verdict_sentence(tree, metric=metric_of("nll"))
    assert "1 of 2 tables" in sentence and "On b, kNN is as good" in sentence


def test_all_wins_leave_nothing_to_excuse() -> None:
    scores = _scores(veritab=[0.99], untrained=[0.9])
    sentence = standings.verdict_sentence(scores, metric=metric_of("auc_ovr"))
    assert sentence.endswith("on the one table. One seed only: the spread is not known.")


def test_of_many_losses_the_largest_are_named_and_the_rest_counted() -> None:
    tree = {
        f"t{index}": {"veritab": {"nll": {"per_seed": [1.0]}}, "knn": {"nll": {"per_seed": [1.0 - index / 100]}}}
        for index in range(1, 8)
    }
    sentence = standings.verdict_sentence(tree, metric=metric_of("nll"))
    assert "on t7, kNN is better by .070" in sentence.lower().replace("knn", "kNN")
    assert sentence.endswith("; and on 3 more by less.") and "t3" not in sentence


def test_without_ours_or_without_baselines_the_sentence_says_that_there_is_nothing_to_compare() -> None:
    for scores in ({}, _scores(linear=[0.9]), _scores(veritab=[0.9])):
        assert "no table" in standings.verdict_sentence(scores, metric=metric_of("auc_ovr"))


def test_tiles_show_synthetic_skill_and_the_mean_over_real_tables_beside_the_best_baseline() -> None:
    tree = {
        table: {
            model: {"nll": {"per_seed": [nll]}, "auc_ovr": {"per_seed": [auc]}}
            for model, nll, auc in (("veritab", 0.5, 0.9), ("linear", 0.6, 0.95), ("knn", 0.4, 0.8))
        }
        for table in ("synthetic", "iris", "wine")
    }
    shown = standings.tiles(tree, headlines=[metric_of("nll"), metric_of("auc_ovr")])
    assert [tile.value for tile in shown] == ["0.500", "0.900"]
    assert shown[0].label == "NLL on synthetic tasks; best baseline: kNN 0.400"
    assert shown[1].label == "AUC mean over 2 real tables; best baseline: linear 0.950"


def test_models_and_metrics_come_in_the_pages_order_unknown_ones_last() -> None:
    tree = {"t": {model: {"zeta": {"per_seed": [1]}, "nll": {"per_seed": [1]}} for model in ("new", "knn", "veritab")}}
    assert standings.models_of(tree) == ["veritab", "knn", "new"]
    assert [metric.key for metric in standings.metrics_of(tree)] == ["nll", "zeta"]
