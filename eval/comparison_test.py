"""Comparisons: paired, blind, honest about what is left out; and intervals that follow tables."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest

from eval import baselines, comparison, scores, tables
from eval.comparison import Unit
from eval.results import ResultRow
from priors.task import ColumnKind, Episode, Evidence, Task, TaskKind
from tools.failure import ExitCode, Failure

CLS, REG = TaskKind.CLASSIFICATION, TaskKind.REGRESSION


@dataclasses.dataclass
class _Recorder:
    """Answers class 1 (or 0.0 ± 1) everywhere, and keeps and then spoils what it was given."""

    name: str = "recorder"
    seen: list[np.ndarray] = dataclasses.field(default_factory=list)

    def classify(self, evidence: Evidence) -> np.ndarray:
        self._take(evidence)
        return np.tile(np.eye(evidence.num_classes)[1], (len(evidence.x_query), 1))

    def forecast(self, evidence: Evidence) -> scores.Forecast:
        self._take(evidence)
        rows = len(evidence.x_query)
        return scores.Forecast(mean=np.zeros(rows), quantiles=np.tile(2 * scores.TAUS - 1, (rows, 1)))

    def _take(self, evidence: Evidence) -> None:
        self.seen.append(np.concatenate([evidence.x_context, evidence.x_query]).copy())
        evidence.x_context[:] = -1
        evidence.y_context[:] = 0
        assert evidence.y_context.base is None


class _Broken(_Recorder):
    def classify(self, evidence: Evidence) -> np.ndarray:
        return np.full((len(evidence.x_query), evidence.num_classes), np.nan)

    def forecast(self, evidence: Evidence) -> scores.Forecast:
        return scores.Forecast(mean=np.zeros(1), quantiles=np.zeros((1, 99)))


def _episode(kind: TaskKind, *, seed: int = 0, y: np.ndarray | None = None, scale: float = 1.0) -> Episode:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(40, 3)).astype(np.float32)
    drawn = (x[:, 0] > 0) if kind is CLS else scale * x[:, 0]
    task = Task(
        x=x,
        y=np.asarray(drawn if y is None else y, np.float32),
        column_kinds=np.zeros(3, np.int8),
        level_counts=np.zeros(3, np.int32),
        kind=kind,
        num_classes=3 if kind is CLS else 0,
        family="toy",
    )
    return Episode(task=task, num_context=20)


def _value(rows: list[ResultRow], metric: str, *, model: str = "recorder", seed: int = 0) -> ResultRow:
    (row,) = [row for row in rows if (row.metric, row.model, row.seed) == (metric, model, seed)]
    return row


def test_all_predictors_get_the_same_untouched_episodes() -> None:
    """6.12: same split, same rows; one predictor that spoils its input cannot harm the next."""
    first, second = _Recorder(name="first"), _Recorder(name="second")
    cell = {"a": {0: [_episode(CLS, seed=1), _episode(CLS, seed=2)], 1: [_episode(CLS, seed=3)]}}
    comparison.compare(cell, [first, second])
    assert len(first.seen) == 3 and all(np.array_equal(a, b) for a, b in zip(first.seen, second.seen, strict=True))
    assert np.array_equal(first.seen[0], cell["a"][0][0].task.x)


def test_rows_are_means_over_episodes_and_name_everything() -> None:
    cell = {"synthetic": {seed: [_episode(CLS, seed=10 * seed + one) for one in range(4)] for seed in range(3)}}
    rows = comparison.compare(cell, [baselines.Majority(), _Recorder()])
    assert len(rows) == 3 * 2 * 6
    expected = np.mean([np.mean(episode.answers() == 1) for episode in cell["synthetic"][2]])
    found = _value(rows, "accuracy", seed=2)
    assert found.value == pytest.approx(expected)
    assert (found.kind, found.table, found.num_episodes, found.num_undefined) == ("classification", "synthetic", 4, 0)


def test_undefined_scores_are_left_out_and_counted() -> None:
    one_class = np.where(np.arange(40) < 20, np.arange(40) % 2, 1)
    cell = {"t": {0: [_episode(CLS), _episode(CLS, y=one_class)], 1: [_episode(CLS, y=one_class)]}}
    rows = comparison.compare(cell, [_Recorder()])
    some, none = _value(rows, "auc_ovr"), _value(rows, "auc_ovr", seed=1)
    assert (some.value, some.num_episodes, some.num_undefined) == (0.5, 1, 1)
    assert math.isnan(none.value) and (none.num_episodes, none.num_undefined) == (0, 1)
    assert _value(rows, "nll").num_episodes == 2


def test_queries_of_a_class_that_the_context_lacks_count_for_nobody() -> None:
    """6.5: such a class has probability 0 by structure, which says nothing about a model."""
    y = np.ones(40)
    y[0], y[30:] = 0, 2
    rows = comparison.compare({"t": {0: [_episode(CLS, y=y)]}}, [_Recorder()])
    assert _value(rows, "accuracy").value == 1.0 and _value(rows, "nll").value < 1e-5
    y[20:] = 2
    rows = comparison.compare({"t": {0: [_episode(CLS, y=y)]}}, [_Recorder()])
    assert _value(rows, "nll").num_undefined == 1


def test_synthetic_scores_do_not_depend_on_the_scale_of_a_task() -> None:
    cells = [{"synthetic": {0: [_episode(REG, scale=scale)]}} for scale in (1.0, 1e6)]
    small, large = (comparison.compare(one, [baselines.Linear()], unit=Unit.CONTEXT_DEVIATION) for one in cells)
    for metric in ("rmse", "crps", "width90"):
        a, b = (_value(rows, metric, model="linear").value for rows in (small, large))
        assert a == pytest.approx(b, rel=1e-3)
    raw = comparison.compare(cells[1], [baselines.Majority()])
    assert _value(raw, "rmse", model="majority").value > 1e5


def test_a_constant_context_gives_no_unit_and_is_counted() -> None:
    episode = _episode(REG, y=np.where(np.arange(40) < 20, 5.0, np.arange(40)))
    rows = comparison.compare({"t": {0: [episode]}}, [_Recorder()], unit=Unit.CONTEXT_DEVIATION)
    assert _value(rows, "crps").num_undefined == 1
    assert _value(comparison.compare({"t": {0: [episode]}}, [_Recorder()]), "crps").num_undefined == 0


@pytest.mark.parametrize("kind", [CLS, REG])
def test_a_model_that_answers_nonsense_stops_the_comparison(kind: TaskKind) -> None:
    """A NaN from a model is not an undefined score: dropping it would flatter that model."""
    with pytest.raises(Failure, match="answer of recorder on table t") as caught:
        comparison.compare({"t": {0: [_episode(kind)]}}, [_Broken()])
    assert caught.value.code is ExitCode.DIVERGED


def test_two_predictors_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="one name"):
        comparison.compare({}, [_Recorder(), _Recorder()])


def _table(name: str, *, columns: int = 2, group: str = "") -> tables.Table:
    frame = pd.DataFrame(np.arange(8 * columns).reshape(8, columns))
    kinds = np.full(columns, ColumnKind.NUMBER, np.int8)
    return tables.Table(name=name, kind=CLS, frame=frame, target=np.arange(8) % 2, kinds=kinds, group=group)


def test_tables_over_a_limit_or_named_twice_are_skipped_by_name() -> None:
    candidates = [_table("small"), _table("wide", columns=9), _table("small", group="core")]
    found = comparison.select(candidates, max_classes=10, max_features=5)
    assert list(found.episodes) == ["small"] and list(found.episodes["small"]) == [0, 1, 2]
    assert "9 features, the model takes 5" in found.skipped["wide"]
    assert list(found.skipped) == ["wide", "small (core)"]


def test_held_out_episodes_make_disjoint_sets() -> None:
    episodes = [_episode(CLS, seed=seed) for seed in range(7)]
    (sets,) = comparison.episode_sets(episodes).values()
    assert [len(part) for part in sets.values()] == [3, 2, 2]
    assert sorted(id(one) for part in sets.values() for one in part) == sorted(id(one) for one in episodes)
    with pytest.raises(ValueError, match="2 episodes"):
        comparison.episode_sets(episodes[:2])


def _rows(values: dict[str, dict[str, list[float]]]) -> list[ResultRow]:
    return [
        ResultRow(kind="regression", table=t, model=m, seed=s, metric="crps", value=value, num_episodes=1)
        for t, models in values.items()
        for m, per_seed in models.items()
        for s, value in enumerate(per_seed)
    ]


def test_averages_use_only_tables_that_all_models_share() -> None:
    values = {"a": {"x": [1.0, 3.0], "y": [1.0, math.nan]}, "b": {"x": [100.0]}, "c": {"x": [4.0], "y": [7.0]}}
    assert comparison.average_over_tables(_rows(values), "crps") == {"x": 3.0, "y": 4.0}


def test_intervals_are_paired_and_clustered_by_table() -> None:
    """6.12: several seeds of one table are one observation, not several."""
    generator = np.random.default_rng(0)
    level = {f"t{one}": float(generator.normal(scale=10)) for one in range(25)}
    gain = {name: float(generator.normal(0.5, 1.0)) for name in level}
    values = {name: {"x": [level[name] + gain[name]] * 3, "y": [level[name]] * 3} for name in level}
    found = comparison.paired_interval(_rows(values), "x", model_b="y", metric="crps")
    expected = np.array(list(gain.values()))
    error = expected.std() / 5
    assert found.mean == pytest.approx(expected.mean()) and found.num_tables == 25
    assert found.low == pytest.approx(expected.mean() - 1.96 * error, abs=0.1)
    assert found.high == pytest.approx(expected.mean() + 1.96 * error, abs=0.1)
    assert found == comparison.paired_interval(_rows(values), "x", model_b="y", metric="crps")
    reverse = comparison.paired_interval(_rows(values), "y", model_b="x", metric="crps")
    assert reverse.mean == pytest.approx(-found.mean)


def test_one_table_has_a_difference_and_no_interval() -> None:
    found = comparison.paired_interval(_rows({"a": {"x": [2.0], "y": [1.5]}}), "x", model_b="y", metric="crps")
    assert found.mean == 0.5 and math.isnan(found.low) and math.isnan(found.high)
    assert comparison.paired_interval([], "x", model_b="y", metric="crps").num_tables == 0
