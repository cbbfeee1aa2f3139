"""Tests of priors/speed.py: that what is said to be measured is measured."""

import dataclasses
import os
import pathlib

import pytest

from priors.families import Family
from priors.generation import ensure_shards
from priors.mixture import PriorConfig
from priors.recipe import ShardConfig
from priors.speed import (
    Generators,
    SpeedCase,
    bench_prior,
    distinct_graphs,
    groups_that_last,
    python_share,
    tasks_per_second,
    verified_gigabytes_per_second,
)
from tools import stores
from tools.failure import BadInput, ExitCode


def _case(family: Family | None = Family.RULES, *, count: int = 8) -> SpeedCase:
    return SpeedCase(prior=bench_prior(family=family, filtered=False), rows=32, features=4, count=count)


def test_the_prior_is_the_default_one_but_for_family_and_filter() -> None:
    alone = bench_prior(family=Family.MLP_SCM, filtered=False)
    assert list(alone.shares()) == [Family.MLP_SCM]
    assert not alone.filter.enabled
    assert bench_prior(family=None, filtered=True) == PriorConfig()


def test_rates_are_of_all_tasks_and_more_groups_last_longer() -> None:
    few, many = _case(count=2), _case(count=256)
    groups_that_last(few, seconds=0.01)
    assert tasks_per_second(many, seed=1) > 4 * tasks_per_second(few, seed=1)
    assert groups_that_last(few, seconds=1.0) > 2 * groups_that_last(few, seconds=0.1)
    assert groups_that_last(many, seconds=1e-6) == 1


def test_graphs_are_counted_where_tasks_have_some() -> None:
    different, number = distinct_graphs(_case(Family.GRAPH_SCM, count=32), seed=1)
    assert number == 32
    assert 16 < different <= 32
    assert distinct_graphs(_case(Family.RULES), seed=1) == (0, 0)


def test_large_tensors_leave_less_of_the_time_to_python() -> None:
    small = _case(Family.MLP_SCM, count=2)
    large = dataclasses.replace(small, rows=1024, features=50, count=64)
    shares = [python_share(case, seed=1) for case in (small, large)]
    assert 0.0 < shares[1] < shares[0] < 1.0


def test_processes_draw_side_by_side() -> None:
    workers = min(2, os.cpu_count() or 1)
    before = os.sched_getaffinity(0)
    with Generators(_case(count=64), workers=workers) as generators:
        one = generators.pace(workers=1, seed=1, groups=20)
        both = generators.pace(workers=workers, seed=1, groups=20)
        assert len({future._processes.copy().popitem()[0] for future in generators._pools}) == workers
    assert os.sched_getaffinity(0) == before
    assert 0.3 < workers * both.per_cpu_second / one.per_cpu_second < 2.0 * workers
    assert both.per_second > 0


def test_verification_is_timed_over_all_bytes_each_time(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ShardConfig(prior=dataclasses.replace(PriorConfig(), max_rows=64), group_size=8, groups_per_part=1)
    ensure_shards(config, out=tmp_path, num_tasks=16, seed=0)
    hashed: list[str] = []
    real = stores.sha256
    monkeypatch.setattr(
        stores, "sha256", lambda store, name, **options: (hashed.append(name), real(store, name, **options))[1]
    )
    for _ in range(2):
        assert 0 < verified_gigabytes_per_second(tmp_path) < 50
    assert sorted(hashed) == ["part-00000.arrow"] * 2 + ["part-00001.arrow"] * 2
    (tmp_path / "part-00001.arrow").write_bytes(b"")
    with pytest.raises(Exception, match="damaged"):
        verified_gigabytes_per_second(tmp_path)


@pytest.mark.parametrize("changes", [{"rows": 15}, {"features": 0}, {"count": 0}])
def test_sizes_that_no_group_has_are_refused(changes: dict[str, int]) -> None:
    name, value = next(iter(changes.items()))
    with pytest.raises(BadInput, match=f"{name} {value} is too small") as caught:
        dataclasses.replace(_case(), **changes)
    assert caught.value.code is ExitCode.BAD_FLAG
