"""What a shard set holds, counted and summed up by family."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest

from priors import shards
from priors.families import Family
from priors.generation import ensure_shards
from priors.group import TaskGroup
from priors.mixture import PriorConfig
from priors.properties import ALL, spread, summarise, tabulate
from priors.recipe import ShardConfig
from priors.shards import ShardSet, ShardSource
from priors.signal_filter import SignalFilterConfig
from priors.task import ColumnKind, TaskKind


def _group(families: tuple[str, ...], parameters: list[dict[str, object]], *, features: int = 3) -> TaskGroup:
    """Tasks of 8 rows whose first column is a category; regression."""
    count = len(families)
    kinds = np.full((count, features), ColumnKind.NUMBER, np.int8)
    kinds[:, 0] = ColumnKind.CATEGORY
    return TaskGroup(
        x=np.ones((count, 8, features), np.float32),
        y=np.ones((count, 8), np.float32),
        column_kinds=kinds,
        level_counts=np.zeros((count, features), np.int32),
        num_classes=np.zeros(count, np.int32),
        families=families,
        seeds=np.zeros(count, np.int64),
        parameters=tuple(json.dumps(one) for one in parameters),
        kind=TaskKind.REGRESSION,
    )


def _set(
    folder: pathlib.Path, groups: list[TaskGroup], *, config: dict[str, object] | None = None, **counts: dict[str, int]
) -> ShardSet:
    source = ShardSource(config=config or {"group_size": 2}, seed=5, kind=TaskKind.REGRESSION)
    entry = shards.write_part(folder, groups, source=source, index=0, **counts)
    shards.write_set(folder, [entry], source=source)
    return ShardSet.open(folder)


@pytest.fixture(name="groups")
def _groups() -> list[TaskGroup]:
    noisy = [{"noise_share": 0.5, "position": 7, "depth": 2}, {"noise_share": 0.25}]
    return [_group(("rules", "forest"), noisy), _group(("rules", "rules"), [{}, {"noise_share": 0.0}], features=5)]


def test_every_task_is_counted_once_and_in_its_own_family(tmp_path: pathlib.Path, groups: list[TaskGroup]) -> None:
    found = summarise(tabulate(groups), shard_set=_set(tmp_path, groups))
    assert [(part.name, part.tasks, part.share) for part in found.families] == [("rules", 3, 0.75), ("forest", 1, 0.25)]
    assert found.whole.tasks == 4 and found.whole.name == ALL
    assert found.families[0].columns == {"numbers": 10 / 13, "ordinals": 0.0, "categories": 3 / 13}
    size = (tmp_path / "part-00000.arrow").stat().st_size
    assert found.bytes == size and found.bytes_per_task == size / 4
    assert (found.seed, found.kind, found.config) == (5, "regression", {"group_size": 2})


def test_a_property_is_summed_up_over_the_tasks_that_have_it(tmp_path: pathlib.Path, groups: list[TaskGroup]) -> None:
    found = summarise(tabulate(groups), shard_set=_set(tmp_path, groups))
    noise = found.families[0].spreads["noise_share"]
    assert (noise.known, noise.low, noise.high) == (2, 0.0, 0.5)
    assert "classes" not in found.whole.spreads and "position" not in found.whole.spreads
    assert found.whole.spreads["depth"].known == 1 and found.whole.spreads["features"].high == 5


def test_rejections_are_those_of_the_manifest(tmp_path: pathlib.Path, groups: list[TaskGroup]) -> None:
    counts = {"drawn": {"rules": 4, "forest": 1, "gone": 3}, "rejected": {"rules": 1, "forest": 0, "gone": 3}}
    found = summarise(tabulate(groups), shard_set=_set(tmp_path, groups, **counts))
    shares = {part.name: part.rejected_share for part in found.families}
    assert shares == {"rules": 0.25, "forest": 0.0, "gone": 1.0} and found.whole.rejected_share == 0.5
    assert found.families[-1].name == "gone" and found.families[-1].tasks == 0
    json.dumps(found.to_json(), allow_nan=False)


def test_rejections_that_a_set_does_not_record_are_unknown_and_not_none(
    tmp_path: pathlib.Path, groups: list[TaskGroup]
) -> None:
    found = summarise(tabulate(groups), shard_set=_set(tmp_path, groups))
    for part in (*found.families, found.whole):
        assert part.drawn is part.rejected is part.rejected_share is None


@pytest.mark.parametrize(
    ("own", "counts"),
    [
        ({"enabled": True, "threshold": 1.60004}, {"rules": 1, "forest": 0, "all": 1}),
        ({"enabled": True, "threshold": 9}, {"rules": 2, "forest": 1, "all": 3}),
        ({"enabled": False, "threshold": 1.6}, dict.fromkeys(("rules", "forest", "all"))),
        (None, dict.fromkeys(("rules", "forest", "all"))),
    ],
)
def test_kept_tasks_below_the_threshold_of_the_sets_filter_are_counted(
    tmp_path: pathlib.Path, own: object, counts: dict[str, int | None]
) -> None:
    """A task of the exact families has no signal; one at the threshold, as far as it is written down, has."""
    signals = [{"signal": 1.5}, {"signal": 1.6}, {}, {"signal": 8.0}]
    groups = [_group(("rules", "rules", "rules", "forest"), signals)]
    shard_set = _set(tmp_path, groups, config={} if own is None else {"prior": {"filter": own}})
    found = summarise(tabulate(groups), shard_set=shard_set)
    assert {part.name: part.without_signal for part in (*found.families, found.whole)} == counts


def test_a_filter_that_nothing_can_pass_is_seen_in_the_count(tmp_path: pathlib.Path) -> None:
    """The prior fills a group up with what it has; nothing else says so."""
    strict = dataclasses.replace(SignalFilterConfig(), threshold=1e6)
    config = ShardConfig(
        prior=PriorConfig(filter=strict, only=(Family.RULES,), max_rows=64, max_features=3),
        group_size=8,
        groups_per_part=1,
    )
    shard_set = ensure_shards(config, out=tmp_path / "set", num_tasks=8, seed=0)
    found = summarise(tabulate([shard_set.group(0)]), shard_set=shard_set)
    assert found.whole.without_signal == 8 and found.whole.rejected == found.whole.drawn


def test_quantiles_are_values_that_occur() -> None:
    found = spread(np.array([2.0, 3.0, np.nan, 3.0, 10.0]))
    assert found is not None and (found.low, found.median, found.high, found.known) == (2.0, 3.0, 10.0, 4)
    assert spread(np.array([np.nan])) is None


def test_the_json_holds_every_family_and_the_whole(tmp_path: pathlib.Path, groups: list[TaskGroup]) -> None:
    found = summarise(tabulate(groups), shard_set=_set(tmp_path, groups))
    value = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert list(value["families"]) == ["rules", "forest"] and value["all"]["tasks"] == 4
    assert value["families"]["forest"]["spreads"]["noise_share"]["median"] == 0.25
    assert value["digest"] == found.digest and value["place"] == str(tmp_path)
