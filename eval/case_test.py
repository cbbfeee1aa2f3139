"""The measured noise floor, and what is refused because of it."""

import dataclasses

import pytest
import torch

from eval.audits import AUDITS, judge
from eval.case import Case, Noise, blamed_stage, visibility_truth
from eval.mutants import mutated
from eval.small_network import rerandomised_network
from eval.specimens import specimens
from eval.subject import Subject
from eval.tracing import Difference, Stage
from priors.task import TaskKind, collate


@pytest.mark.parametrize("kind", list(TaskKind))
def test_equal_runs_are_equal_and_rounding_is_small(kind: TaskKind) -> None:
    """5.A: measured before anything is judged."""
    noise = Case.of(Subject(network=rerandomised_network(kind))).noise
    assert noise.repeat is None
    assert 0 < noise.rounding < 1e-5
    assert noise.tolerance >= 2e-6 and not noise.too_loud


def test_a_subject_that_differs_from_itself_fails_every_audit() -> None:
    """5.F: dropout or other randomness, before any other stage is suspected."""
    case = Case.of(mutated("dropout_at_prediction", Subject(network=rerandomised_network(TaskKind.CLASSIFICATION))))
    results = [judge(name, case) for name in AUDITS]
    assert {(result.passed, result.stage) for result in results} == {(False, Stage.RANDOMNESS)}


def test_a_subject_whose_rounding_hides_leaks_fails_every_audit() -> None:
    """5.A: a tolerance that grows with the noise must have an end."""
    case = Case.of(Subject(network=rerandomised_network(TaskKind.CLASSIFICATION)))
    loud = dataclasses.replace(case)
    loud.__dict__["noise"] = Noise(repeat=None, rounding=1e-3)
    result = judge("query_set", loud)
    assert not result.passed and "drown" in result.message


def test_the_true_picture_is_four_blocks_without_padded_rows() -> None:
    """5.5, 5.7: the toy 3+2 matrix cell by cell, and padded context rows that nobody reads."""
    batch = collate(specimens(TaskKind.CLASSIFICATION))
    real = torch.zeros(1, 3, dtype=torch.bool)
    real[0, :2] = True
    toy = dataclasses.replace(batch, context_mask=real.numpy(), x_query=batch.x_query[:1, :2])
    assert visibility_truth(toy, num_thinking=0).int().tolist() == [[[1, 1, 0, 0, 0]] * 5]
    assert visibility_truth(toy, num_thinking=1).int().tolist() == [[[1, 1, 1, 0, 0, 0]] * 6]


def test_a_moved_block_is_the_masks_fault_only_where_the_mask_is_wrong() -> None:
    """5.F: query→query attention shows in the blocks and comes from the mask."""
    subject = Subject(network=rerandomised_network(TaskKind.CLASSIFICATION))
    moved = Difference(stage=Stage.BLOCKS, name="icl.blocks.0", absolute=1.0, relative=1.0)
    tables = specimens(TaskKind.CLASSIFICATION)
    assert blamed_stage(moved, subject.fresh().run(tables)) is Stage.BLOCKS
    broken = mutated("query_reads_query", subject).fresh().run(tables)
    assert blamed_stage(moved, broken) is Stage.MASK
    assert blamed_stage(dataclasses.replace(moved, stage=Stage.HEAD), broken) is Stage.HEAD
