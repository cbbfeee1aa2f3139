"""How the heads of a trial answer tasks whose true conditional mean and quantiles are known (seed 6.C).

Shapes: M query rows, G points of a curve.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from eval.head_trial import EVALUATION_SEEDS, Arm, SeedTrial
from eval.noisy_tasks import NoiseFamily, NoisyTask, QueryPlaces, TaskSize, noisy_task
from eval.records import network_inputs
from model.bar_distribution import BarDistribution
from model.network import Network
from model.quantile_prediction import QuantilePrediction
from model.regression_heads import PointPrediction, RegressionHeadKind, RegressionPrediction
from priors.task import collate

LEVEL = 0.9
"""Of the central interval."""

METRICS = {
    "centre_rmse": "RMSE of the predicted mean to the true conditional mean",
    "median_rmse": "RMSE of the predicted median to the same (the noise is symmetric); a point has none",
    "coverage": "share of the true distribution within the predicted central 90 % interval, mean over queries",
    "coverage_gap": "mean over queries of the distance of that share to 0.9: right on average may be wrong everywhere",
    "width": "mean width of the interval, in units of y",
    "width_ratio": "median over queries of its width over the true interval's",
    "crossing_rate": "share of neighbouring quantiles that cross before the repair; of the quantile head alone",
}

_CURVE_POINTS = 121


def answer(network: Network, tasks: list[NoisyTask]) -> RegressionPrediction:
    """The network's predictions of tasks of equal sizes."""
    with torch.no_grad():
        return network(network_inputs(collate([task.episode for task in tasks])))


def scores(prediction: RegressionPrediction, tasks: list[NoisyTask]) -> dict[str, float | None]:
    """`METRICS` of a prediction; None for what the head does not state.

    Coverage is the exact mass that the true distribution has in the predicted interval: no answers are drawn for it.
    """
    centre = np.stack([task.centre for task in tasks])
    found: dict[str, float | None] = dict.fromkeys(METRICS)
    found["centre_rmse"] = _rmse(prediction.mean(), centre)
    if isinstance(prediction, PointPrediction):
        return found
    low, middle, high = _quantiles(prediction)
    masses = [task.cdf(high[row]) - task.cdf(low[row]) for row, task in enumerate(tasks)]
    true_width = np.stack([task.interval(LEVEL)[:, 1] - task.interval(LEVEL)[:, 0] for task in tasks])
    found["median_rmse"] = _rmse(torch.from_numpy(middle), centre)
    found["coverage"] = float(np.mean(masses))
    found["coverage_gap"] = float(np.abs(np.asarray(masses) - LEVEL).mean())
    found["width"] = float((high - low).mean())
    found["width_ratio"] = float(np.median((high - low) / true_width))
    if isinstance(prediction, QuantilePrediction):
        found["crossing_rate"] = float(prediction.crossing_rate().mean())
    return found


def context_mean_rmse(tasks: list[NoisyTask]) -> float:
    """What predicting the context's mean everywhere would score: the yardstick of `centre_rmse`."""
    means = [np.full(len(t.centre), t.episode.task.y[: t.episode.num_context].mean(dtype=np.float64)) for t in tasks]
    return _rmse(torch.from_numpy(np.stack(means)), np.stack([task.centre for task in tasks]))


def over_seeds(values: Sequence[float | None]) -> dict[str, Any]:
    """{per_seed, mean, low, high} with the 95 % t interval of the mean; None where there is nothing, or one seed."""
    known = [value for value in values if value is not None]
    found: dict[str, Any] = {"per_seed": list(values), "mean": None, "low": None, "high": None}
    if known:
        found["mean"] = float(np.mean(known))
    if len(known) > 1:
        reach = float(stats.t.ppf(0.975, len(known) - 1) * np.std(known, ddof=1) / np.sqrt(len(known)))
        found |= {"low": float(np.mean(known)) - reach, "high": float(np.mean(known)) + reach}
    return found


def score_table(trials: Sequence[SeedTrial], tasks: Mapping[NoiseFamily, list[NoisyTask]]) -> dict[str, Any]:
    """arm → family → head → metric → `over_seeds`."""
    table: dict[str, Any] = {}
    for arm in Arm:
        by_family = {}
        for family, own in tasks.items():
            by_head = {}
            for kind in RegressionHeadKind:
                found = [scores(answer(trial.arms[arm][kind], own), own) for trial in trials]
                by_head[kind.value] = {name: over_seeds([one[name] for one in found]) for name in METRICS}
            by_family[family.value] = by_head
        table[arm.value] = by_family
    return table


def curves(trial: SeedTrial, family: NoiseFamily, *, num_context: int) -> dict[str, Any]:
    """What is drawn of one task: the heads of the whole arm along x, beside the truth.

    Returns:
        JSON values: x_context, y_context [N]; x, truth_mean, truth_low, truth_high [G]; heads: name → mean, low and
        high [G], the last two None for a point.
    """
    size = TaskSize(num_context=num_context, num_query=_CURVE_POINTS, places=QueryPlaces.EVEN)
    task = noisy_task(family, seed=EVALUATION_SEEDS - 1, size=size)
    evidence, truth, heads = task.episode.evidence(), task.interval(LEVEL), {}
    for kind, network in trial.arms[Arm.WHOLE].items():
        prediction = answer(network, [task])
        own: dict[str, Any] = {"mean": prediction.mean()[0].double().tolist(), "low": None, "high": None}
        if not isinstance(prediction, PointPrediction):
            low, _, high = _quantiles(prediction)
            own |= {"low": low[0].tolist(), "high": high[0].tolist()}
        heads[kind.value] = own
    return {
        "x_context": evidence.x_context[:, 0].tolist(),
        "y_context": evidence.y_context.tolist(),
        "x": evidence.x_query[:, 0].tolist(),
        "truth_mean": task.centre.tolist(),
        "truth_low": truth[:, 0].tolist(),
        "truth_high": truth[:, 1].tolist(),
        "heads": heads,
    }


def _quantiles(prediction: BarDistribution | QuantilePrediction) -> np.ndarray:
    """[3, B, M] the ends of the central interval, the median between them."""
    tail = (1 - LEVEL) / 2
    return prediction.icdf(torch.tensor([tail, 0.5, 1 - tail], dtype=torch.float64)).double().numpy().transpose(2, 0, 1)


def _rmse(values: Tensor, truth: np.ndarray) -> float:
    return float(np.sqrt(np.mean((values.double().numpy() - truth) ** 2)))
