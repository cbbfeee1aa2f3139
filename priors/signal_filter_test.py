"""Tests of priors.signal_filter: tasks that can be told pass, shuffled ones do not, and nothing leaks between tasks."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch

from priors.draws import Draws
from priors.families import Family
from priors.group import TaskGroup
from priors.mixture import PriorConfig, sample_group
from priors.rules import RuleConfig
from priors.signal_filter import Signal, SignalFilterConfig, measure_signal
from priors.task import ColumnKind, TaskKind
from tools.failure import BadInput

ON, OFF = SignalFilterConfig(), SignalFilterConfig(enabled=False)
COUNT, ROWS, FEATURES = 40, 256, 6


def measure(
    x: torch.Tensor, y: torch.Tensor, *, classes: int, kinds: torch.Tensor | None = None, seed: int = 0
) -> Signal:
    """x [B, C, R], y [B, R]; columns are numbers unless `kinds` [B, C] says otherwise."""
    kinds = torch.zeros(x.shape[:2], dtype=torch.int8) if kinds is None else kinds
    number = torch.full((len(x),), classes, dtype=torch.int32)
    return measure_signal(Draws(seed), ON, x=x, y=y, column_kinds=kinds, num_classes=number)


def measure_group(group: TaskGroup, *, shuffled: bool = False) -> Signal:
    y = np.random.default_rng(0).permuted(group.y, axis=1) if shuffled else group.y
    kinds, classes = torch.from_numpy(group.column_kinds), torch.from_numpy(group.num_classes)
    x = torch.from_numpy(group.x).transpose(1, 2)
    return measure_signal(Draws(1), ON, x=x, y=torch.from_numpy(y), column_kinds=kinds, num_classes=classes)


def numbers(seed: int = 0, features: int = FEATURES) -> torch.Tensor:
    return torch.randn((COUNT, features, ROWS), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("kind", list(TaskKind))
def test_shuffled_answers_are_rejected_and_most_tasks_of_the_prior_pass(kind: TaskKind) -> None:
    """The control of the filter: where answers tell nothing, 94 of 100 tasks at least are rejected (of 400)."""
    prior = PriorConfig(kind=kind, filter=OFF)
    groups = [
        sample_group(prior, seed=seed, rows=rows, features=features, count=100)
        for seed, (rows, features) in enumerate(((64, 3), (128, 8), (256, 20), (512, 60)))
    ]
    passed = torch.cat([measure_group(group).passed for group in groups]).float().mean()
    control = torch.cat([measure_group(group, shuffled=True).passed for group in groups]).float().mean()
    assert control <= 0.06
    assert passed > 0.75


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_a_linear_target_passes(noise: float) -> None:
    x = numbers()
    score = x.sum(1) / math.sqrt(FEATURES) + noise * numbers(1)[:, 0]
    assert measure(x, score, classes=0).passed.float().mean() > 0.95
    assert measure(x, (score > 0).float(), classes=2).passed.float().mean() > 0.95
    assert measure(x, torch.bucketize(score, torch.tensor([-0.7, 0.0, 0.7])).float(), classes=4).passed.all()


def test_more_noise_is_less_strength() -> None:
    x, noise = numbers(), numbers(1)[:, 0]
    strength = [float(measure(x, x[:, 0] + level * noise, classes=0).strength.mean()) for level in (0.0, 0.5, 2.0, 8.0)]
    assert strength == sorted(strength, reverse=True)
    assert strength[0] > 4 * ON.threshold and strength[-1] < ON.threshold


@pytest.mark.parametrize("features", [2, 6, 20])
def test_two_columns_that_tell_only_together_pass(features: int) -> None:
    """Parity: no column alone tells anything, and random trees seldom ask about both of twenty."""
    x = numbers(features=features)
    y = ((x[:, 0] > 0) ^ (x[:, 1] > 0)).float()
    assert measure(x, y, classes=2).passed.float().mean() > 0.9


def test_three_columns_that_tell_only_together_pass_where_there_are_no_others() -> None:
    """Only trees of several questions see this."""
    x = numbers(features=3)
    y = ((x > 0).sum(1) % 2).float()
    assert measure(x, y, classes=2).passed.float().mean() > 0.9


def test_parity_of_two_columns_of_the_prior_is_not_rejected_systematically() -> None:
    families = dataclasses.replace(PriorConfig().families, rules=RuleConfig(weights=(1.0, 0.0, 0.0, 0.0, 0.0)))
    prior = PriorConfig(only=(Family.RULES,), families=families, filter=OFF)
    for features, share in ((6, 0.85), (20, 0.65)):
        group = sample_group(prior, seed=0, rows=256, features=features, count=100)
        of_two = torch.tensor([json.loads(text)["relevant"] == 2 for text in group.parameters])
        assert measure_group(group).passed[of_two].float().mean() > share


def test_one_level_of_an_unordered_category_passes_sooner_if_its_kind_is_known() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 12, (COUNT, 1, ROWS), generator=generator).float()
    y = ((x[:, 0] == 5) ^ (torch.rand((COUNT, ROWS), generator=generator) < 0.08)).float()
    kinds = torch.full((COUNT, 1), ColumnKind.CATEGORY, dtype=torch.int8)
    known, unknown = measure(x, y, classes=2, kinds=kinds), measure(x, y, classes=2)
    assert known.passed.all()
    assert known.strength.mean() > unknown.strength.mean() + 0.3


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_that_a_cell_is_missing_tells_too(share: float) -> None:
    generator = torch.Generator().manual_seed(0)
    gone = torch.rand((COUNT, ROWS), generator=generator) < share
    x = numbers()
    x[:, 0] = x[:, 0].masked_fill(gone, math.nan)
    assert measure(x, gone.float(), classes=2).passed.all()


def test_strange_cells_and_constant_answers_give_finite_strengths() -> None:
    x = numbers()
    x[:, 0] = math.nan
    x[:, 1] = 3.0
    x[:, 2] = torch.where(x[:, 2] > 1, math.inf, torch.where(x[:, 2] < -1, -math.inf, x[:, 2]))
    x[:, 3] *= 1e30
    y = (x[:, 4] > 0).float()
    found = measure(x, y, classes=2)
    assert found.passed.all() and found.strength.isfinite().all()
    for classes in (0, 2, 7):
        flat = measure(x, torch.ones_like(y), classes=classes)
        assert not flat.passed.any() and flat.strength.isfinite().all()


def test_a_strength_depends_on_no_other_task_of_the_batch() -> None:
    x, other = numbers(), numbers(1)
    y = (x[:, 0] + x[:, 1] > 0).float()
    alone = measure(x, y, classes=2).strength
    x[1:], y[1:] = other[1:], torch.zeros(ROWS)
    assert measure(x, y, classes=2).strength[0] == alone[0]


def test_parity_of_two_classes_passes_beside_tasks_of_many_classes() -> None:
    x = numbers(features=20)
    y = ((x[:, 0] > 0) ^ (x[:, 1] > 0)).float()
    number = torch.full((COUNT,), 2)
    number[-1] = 9
    kinds = torch.zeros((COUNT, 20), dtype=torch.int8)
    mixed = measure_signal(Draws(0), ON, x=x, y=y, column_kinds=kinds, num_classes=number)
    assert torch.equal(mixed.passed[:-1], measure(x, y, classes=2).passed[:-1])


def test_the_unit_of_a_target_does_not_matter() -> None:
    x = numbers()
    y = x[:, 0] + x[:, 1] * x[:, 2]
    assert torch.equal(measure(x, y, classes=0).strength, measure(x, y * 1024, classes=0).strength)
    torch.testing.assert_close(
        measure(x, y, classes=0).strength, measure(x, y + 64, classes=0).strength, atol=0.05, rtol=0
    )


def test_rows_beyond_the_limit_are_not_looked_at() -> None:
    x = torch.cat([numbers(), numbers(1)], dim=-1)
    y = torch.cat([numbers(2)[:, 0], x[:, 0, ROWS:]], dim=-1)
    few = dataclasses.replace(ON, max_rows=ROWS)
    kinds, number = torch.zeros((COUNT, FEATURES), dtype=torch.int8), torch.zeros(COUNT, dtype=torch.int32)
    table = {"column_kinds": kinds, "num_classes": number}
    cut = measure_signal(Draws(0), few, x=x[..., :ROWS], y=y[:, :ROWS], **table)
    assert torch.equal(measure_signal(Draws(0), few, x=x, y=y, **table).strength, cut.strength)


def test_equal_seeds_measure_equally() -> None:
    x = numbers()
    y = (x[:, 0] > 0).float()
    assert torch.equal(measure(x, y, classes=2).strength, measure(x, y, classes=2).strength)
    assert not torch.equal(measure(x, y, classes=2).strength, measure(x, y, classes=2, seed=1).strength)


def test_a_filter_that_is_off_lets_everything_pass_and_draws_nothing() -> None:
    draws, x = Draws(0), numbers()
    kinds, number = torch.zeros((COUNT, FEATURES), dtype=torch.int8), torch.full((COUNT,), 2)
    found = measure_signal(draws, OFF, x=x, y=torch.zeros((COUNT, ROWS)), column_kinds=kinds, num_classes=number)
    assert found.passed.all() and found.strength.isnan().all()
    assert torch.equal(draws.uniform((3,)), Draws(0).uniform((3,)))


@pytest.mark.parametrize("field", ["trees", "depth", "questions", "max_rows"])
def test_numbers_that_no_tree_can_be_made_of_are_refused(field: str) -> None:
    x = numbers()
    kinds, number = torch.zeros((COUNT, FEATURES), dtype=torch.int8), torch.full((COUNT,), 2)
    wrong = dataclasses.replace(ON, **{field: 0})
    with pytest.raises(BadInput, match=f"--filter.{field.replace('_', '-')} 0 is impossible"):
        measure_signal(Draws(0), wrong, x=x, y=torch.zeros((COUNT, ROWS)), column_kinds=kinds, num_classes=number)
