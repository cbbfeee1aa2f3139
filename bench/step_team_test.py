"""Teams make steps together, on the batch that was asked for; operations are counted for one task."""

import multiprocessing

import pytest
import torch

from bench.step_team import (
    StepCase,
    StepModel,
    StepPlan,
    StepTeam,
    flops_per_task,
    num_parameters,
    product_flops_per_second,
    speed_batch,
)
from priors.task import TaskKind
from tools.failure import ExitCode, Failure

_CASE = StepCase(rows=16, features=3, batch=4)


def test_a_team_of_two_makes_the_steps_of_every_kind_of_model() -> None:
    with StepTeam(processes=2, threads=1) as team:
        for plan in (
            StepPlan(model=StepModel.TINY, kind=TaskKind.REGRESSION),
            StepPlan(model=StepModel.MODERN, dtype="float32"),
        ):
            assert team.tasks_per_second(plan, _CASE, steps=2) > 0


def test_a_team_that_lost_a_process_fails_in_one_line_that_names_it() -> None:
    with StepTeam(processes=1, threads=1) as team:
        (process,) = multiprocessing.active_children()
        process.kill()
        with pytest.raises(Failure, match=r"a step of tiny on 4 tables .* these ended: 0 \(status -9\)$") as caught:
            team.tasks_per_second(StepPlan(model=StepModel.TINY), _CASE)
    assert caught.value.code is ExitCode.WORKER_FAILED


def test_half_of_the_rows_are_context() -> None:
    batch = speed_batch(StepCase(rows=17, features=3, batch=4), TaskKind.CLASSIFICATION)
    assert batch.x_context.shape == (4, 8, 3) and batch.x_query.shape == (4, 9, 3)
    assert set(batch.y_query.flatten().tolist()) == {0.0, 1.0}


def test_our_networks_are_larger_than_the_published_one() -> None:
    assert num_parameters(StepModel.PUBLISHED) == 357_610
    assert num_parameters(StepModel.TINY) > 357_610


def test_operations_of_a_task_do_not_depend_on_the_batch_and_grow_with_its_size() -> None:
    few = flops_per_task(StepModel.TINY, _CASE)
    assert few == flops_per_task(StepModel.TINY, StepCase(rows=16, features=3, batch=9))
    assert flops_per_task(StepModel.TINY, StepCase(rows=32, features=3, batch=4)) > 1.5 * few


def test_the_rate_of_products_leaves_the_threads_as_they_were() -> None:
    before = torch.get_num_threads()
    assert product_flops_per_second(threads=2, seconds=0.01) > 1e9
    assert torch.get_num_threads() == before
