"""Regret on the page (5.I): drawn from results alone, apart from standings, with its limits in words."""

import re

import numpy as np
import pytest

from eval.results import ResultRow, scores_tree
from reports import regret
from reports.standings import Scores

SIZES = (8, 32, 128)


def _scores(*, level: float = 0.4, models: tuple[str, ...] = ("veritab", "linear")) -> Scores:
    generator = np.random.default_rng(0)
    rows = [
        ResultRow(
            kind="regression",
            table=f"{family}@{size}",
            model=model,
            seed=task,
            metric="regret",
            value=float(level / size**0.5 * (1 + 0.2 * generator.normal())),
            num_episodes=1,
        )
        for family in ("linear_gaussian", "gaussian_process")
        for size in reversed(SIZES)
        for model in models
        for task in range(12)
    ]
    usual = ResultRow(
        kind="regression", table="diabetes", model="veritab", seed=0, metric="r2", value=0.4, num_episodes=1
    )
    return scores_tree([usual, *rows])


def test_regrets_are_taken_out_of_the_scores_and_ordered_by_n() -> None:
    ordinary, found = regret.split(_scores())
    assert list(ordinary) == ["diabetes"] and list(found) == ["linear_gaussian", "gaussian_process"]
    for by_model in found.values():
        for points in by_model.values():
            assert [point.num_context for point in points] == list(SIZES) and points[0].num_tasks == 12
    values = _scores()["gaussian_process@32"]["linear"]["regret"]["per_seed"]
    point = found["gaussian_process"]["linear"][1]
    assert point.mean == pytest.approx(np.mean(values)) and point.low < point.mean < point.high


def test_a_real_table_may_have_any_name() -> None:
    scores = {"mail@2024": _scores()["diabetes"], "plain": _scores()["linear_gaussian@8"]}
    assert regret.split(scores) == (scores, {})


def test_undefined_tasks_take_no_part() -> None:
    scores = _scores()
    scores["linear_gaussian@8"]["veritab"]["regret"]["per_seed"][:11] = [None] * 11
    point = regret.split(scores)[1]["linear_gaussian"]["veritab"][0]
    assert point.num_tasks == 1 and np.isnan(point.low)
    assert regret.regret_pictures(regret.split(scores)[1], kind="r")


def test_intervals_cover_the_mean_as_often_as_they_say() -> None:
    """Of 300 intervals from 30 tasks each, about 95 % hold the truth; tasks are the units that are resampled."""
    generator = np.random.default_rng(1)
    ends = [regret.interval(generator.gamma(2.0, 0.5, 30).tolist()) for _ in range(300)]
    share = np.mean([low <= 1.0 <= high for low, high in ends])
    assert 0.89 < share < 0.985
    assert np.isnan(regret.interval([0.3])).all()


def test_the_figure_shows_its_data_with_bayes_at_zero() -> None:
    """5.I: a line for each family over N, intervals, and the baseline named."""
    first, again, other = (
        regret.regret_pictures(regret.split(_scores(level=level))[1], kind="r")[0] for level in (0.4, 0.4, 0.5)
    )
    assert first.name == "r-regret" and first.svg == again.svg != other.svg
    texts = re.findall(r">([^<>]+)</text>", first.svg)
    assert {"Bayes", "linear regression", "Gaussian process", "8", "32", "128"} <= set(texts)
    assert "12 tasks" in first.caption and "linear baseline" in first.caption
    mean = regret.split(_scores())[1]["linear_gaussian"]["veritab"][0].mean
    assert f"linear regression {mean:.3f}" in first.alt


def test_without_regrets_there_is_neither_figure_nor_text() -> None:
    ordinary, found = regret.split({"diabetes": _scores()["diabetes"]})
    assert list(ordinary) == ["diabetes"] and regret.regret_pictures(found, kind="r") == []
    assert regret.sentences(found, config={}) == []
    only = regret.split(_scores(models=("linear",)))[1]
    assert regret.regret_pictures(only, kind="r") == []


def test_the_words_say_what_audits_prove_and_what_regret_does_not() -> None:
    """5.I: legality and skill are told apart, and the training prior is read from the run's configuration."""
    found = regret.split(_scores())[1]
    prior = {
        "min_rows": 64,
        "max_rows": 256,
        "weights": {"mlp_scm": 0.5, "gaussian_process": 0.0, "linear_gaussian": 0.2},
    }
    legality, bound, membership = regret.sentences(found, config={"config": {"data": {"shards": {"prior": prior}}}})
    assert "legality only" in legality and "upper bound" in bound and "not a conclusion" in bound
    assert membership == (
        "linear regression: in the training prior; Gaussian process: not in the training prior. "
        "Its tables had 64 to 256 rows, context and query together."
    )
    assert (
        regret.sentences(found, config=None)[2] == "Whether these families were in the training prior is not recorded."
    )
    only_others = {"prior": {"weights": {"forest": 1.0, "gaussian_process": 0.1}, "only": ["forest"]}}
    assert regret.sentences(found, config=only_others)[2].endswith("Gaussian process: not in the training prior.")
