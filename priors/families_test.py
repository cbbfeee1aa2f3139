"""Tests of priors.families: every family has a file, a weight, a config and one way to draw from it."""

import dataclasses
import importlib

import pytest

from priors.causes import CauseConfig
from priors.columns import ColumnConfig
from priors.draft import TableRequest
from priors.draws import Draws
from priors.exact import ExactFamily
from priors.families import Family, FamilyConfigs, FamilyWeights, sample_draft, sample_finished
from priors.task import TaskKind

COUNT, ROWS, FEATURES = 6, 40, 5
FINISHED = [family for family in Family if family.exact]
UNFINISHED = [family for family in Family if not family.exact]


def request(kind: TaskKind) -> TableRequest:
    """Six small tables."""
    return TableRequest(
        kind=kind,
        count=COUNT,
        rows=ROWS,
        features=FEATURES,
        max_classes=2,
        causes=CauseConfig(),
        columns=ColumnConfig(),
    )


@pytest.mark.parametrize("family", Family)
def test_every_family_has_a_file_of_its_name_that_says_what_it_stands_for(family: Family) -> None:
    assert (importlib.import_module(f"priors.{family}").__doc__ or "").strip().endswith(".")


def test_every_family_has_one_weight_above_zero_and_one_config() -> None:
    assert {field.name for field in dataclasses.fields(FamilyWeights)} == {family.value for family in Family}
    assert all(weight > 0 for weight in dataclasses.asdict(FamilyWeights()).values())
    configs = {field.name for field in dataclasses.fields(FamilyConfigs)}
    assert configs == {family.value for family in UNFINISHED} | {"exact"}


def test_every_exact_family_is_a_family() -> None:
    """5.I: none of the families whose posterior is known is left out, or taken for another."""
    assert [family.exact for family in FINISHED] == [ExactFamily(family.value) for family in FINISHED]
    assert {family.exact for family in FINISHED} == set(ExactFamily)


def test_both_kinds_have_families_and_every_family_a_kind() -> None:
    made = {kind: {family for family in Family if family.makes(kind)} for kind in TaskKind}
    assert made[TaskKind.CLASSIFICATION] | made[TaskKind.REGRESSION] == set(Family)
    alone = made[TaskKind.REGRESSION] - made[TaskKind.CLASSIFICATION]
    assert alone == {Family.HETEROSCEDASTIC, Family.LINEAR_GAUSSIAN, Family.GAUSSIAN_PROCESS}
    assert made[TaskKind.CLASSIFICATION] - made[TaskKind.REGRESSION] == {Family.DIRICHLET_TABLE, Family.SMALL_TREE}


@pytest.mark.parametrize(
    ("family", "kind"), [(family, kind) for family in UNFINISHED for kind in TaskKind if family.makes(kind)]
)
def test_drafts_of_every_family_have_the_size_that_was_asked_for(family: Family, kind: TaskKind) -> None:
    draft = sample_draft(Draws(1), FamilyConfigs(), family=family, request=request(kind))
    assert draft.columns.values.shape == (COUNT, FEATURES, ROWS)
    assert draft.scores.shape[::2] == draft.classes.shape == (COUNT, ROWS)
    assert draft.facts["relevant"].shape == (COUNT,) and draft.scores.isfinite().all()


@pytest.mark.parametrize("family", FINISHED)
def test_finished_tasks_of_every_exact_family_stay_within_what_was_asked_for(family: Family) -> None:
    (kind,) = (kind for kind in TaskKind if family.makes(kind))
    assert family.exact
    made = sample_finished(Draws(1), FamilyConfigs(), family=family.exact, request=request(kind))
    assert made.x.shape == (COUNT, ROWS, FEATURES) and made.y.shape == (COUNT, ROWS)
    assert (made.num_classes > 0).all() == (kind is TaskKind.CLASSIFICATION)
    assert made.num_classes.max() <= 2 and {"relevant", "noise_share"} <= set(made.facts)
