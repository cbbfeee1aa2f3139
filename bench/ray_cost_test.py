"""Tests of bench/ray_cost.py: a short round on a real Ray instance."""

import pytest

from bench import ray_cost
from bench.ray_cost import LEAST_OF_TWO, LEAST_ON_RAY, RayBenchConfig, measure, measure_overhead
from train.cluster import ClusterConfig
from train.presets import PRESETS, PretrainConfig
from train.toy_job import toy_pretraining

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray warns of its own settings


def test_each_side_trains_the_same_steps_and_the_rows_name_their_goals() -> None:
    """T8, but for its goals: a busy machine says nothing about Ray, so no ratio is judged here, only that it is told.

    It fails where a side does not train all its steps, a rate is missing, or the rows name other goals.
    """
    ((one, two),) = measure_overhead(num_steps=30, rounds=1, config=toy_pretraining())
    assert (one.goal, two.goal) == (f"≥ {LEAST_ON_RAY} ×", f"≥ {LEAST_OF_TWO} ×")
    assert one.ours == two.peer > 0 and one.peer is not None and one.peer > 0 and two.ours > 0
    assert "2 rates of 10 steps" in one.note


def test_all_sides_train_the_preset_on_cpus_as_the_bare_loop_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there are GPUs, which Ray's workers would take by default."""
    clusters: list[ClusterConfig] = []
    trained: list[PretrainConfig] = []
    monkeypatch.setattr(ray_cost, "short_job", lambda folder, name, **options: trained.append(options["config"]))
    monkeypatch.setattr(ray_cost, "run_job", lambda job, place: None)
    monkeypatch.setattr(ray_cost, "run_on_ray", lambda job, cluster: clusters.append(cluster))
    monkeypatch.setattr(ray_cost, "_rates", lambda job: [1.0])
    measure(RayBenchConfig(rounds=1, preset="small"), save=lambda rows: None)
    assert trained == [PRESETS["small"]()] * 3
    assert clusters == [ClusterConfig(num_workers=count, gpus_per_worker=0) for count in (1, 2)]
