"""Tests of priors.mlp_scm: what the three modes promise."""

import dataclasses

import pytest
import torch

from priors.causes import CauseConfig
from priors.columns import ColumnConfig
from priors.draft import Draft, TableRequest
from priors.draws import Draws, standardised
from priors.mlp_scm import MLPSCMConfig, sample_mlp_scm
from priors.task import TaskKind

NUMBERS = ColumnConfig(numbers_share=1.0, discrete_share=0.0, literal_share=0.0, copied_share=0.0, constant_share=0.0)
DIRECT = MLPSCMConfig(direct_share=1.0, linear_share=0.0, blended_share=0.0)
HIDDEN = MLPSCMConfig(direct_share=0.0)


def make(config: MLPSCMConfig, *, kind: TaskKind = TaskKind.REGRESSION, seed: int = 0) -> Draft:
    """48 tasks of 300 rows and 6 number columns."""
    request = TableRequest(
        kind=kind, count=48, rows=300, features=6, max_classes=10, causes=CauseConfig(), columns=NUMBERS
    )
    return sample_mlp_scm(Draws(seed), config, request=request)


def explained(draft: Draft) -> torch.Tensor:
    """[B] share of the first score's variance that least squares on the columns' signals explains."""
    x = draft.columns.signal.transpose(1, 2).double()
    x = torch.cat([x, torch.ones_like(x[..., :1])], -1)
    y = draft.scores[:, 0].unsqueeze(-1).double()
    gram = x.transpose(1, 2) @ x + 1e-6 * torch.eye(x.shape[-1], dtype=torch.float64)
    rest = y - x @ torch.linalg.solve(gram, x.transpose(1, 2) @ y)
    return 1 - rest.square().mean((1, 2)).float()


def test_scores_are_standardised_and_drafts_complete() -> None:
    for config in (MLPSCMConfig(), DIRECT, HIDDEN):
        for kind in TaskKind:
            draft = make(config, kind=kind)
            assert draft.scores.shape == (48, 3, 300) and draft.columns.values.shape == (48, 6, 300)
            assert draft.scores.isfinite().all() and draft.columns.values.isfinite().all()
            assert draft.scores.mean(-1).abs().max() < 1e-4
            assert (draft.scores.square().mean(-1) - 1).abs().median() < 1e-3


def test_linear_tasks_are_linear_and_the_others_bend() -> None:
    assert explained(make(dataclasses.replace(DIRECT, linear_share=1.0))).min() > 0.999
    bent = explained(make(DIRECT))
    assert bent.quantile(0.25) < 0.8 and bent.quantile(0.75) > 0.5
    blended = explained(make(dataclasses.replace(DIRECT, blended_share=1.0)))
    assert bent.median() < blended.median() < 0.999


def test_direct_targets_follow_from_the_features_without_noise_of_their_own() -> None:
    """Equal causes give equal targets: twins in the table of signals are twins in the score."""
    draft = make(dataclasses.replace(DIRECT, max_depth=1))
    signal = draft.columns.signal
    distance = torch.cdist(signal.transpose(1, 2), signal.transpose(1, 2)) + 1e3 * torch.eye(300)
    gap = (draft.scores[:, 0].unsqueeze(1) - draft.scores[:, 0].unsqueeze(2)).abs()
    nearest = distance.flatten(1).argsort(-1)[:, :10]
    assert gap.flatten(1).gather(1, nearest).mean() < 0.5 * gap.mean()


def test_irrelevant_columns_do_not_matter() -> None:
    draft = make(dataclasses.replace(DIRECT, linear_share=1.0))
    few = draft.facts["relevant"] <= 2
    assert few.sum() >= 4 and (draft.facts["relevant"] == 6).sum() >= 10
    x = standardised(draft.columns.signal[few]).transpose(1, 2)
    weights = torch.linalg.lstsq(x, draft.scores[few, 0].unsqueeze(-1)).solution.squeeze(-1).abs()
    assert ((weights > 1e-2).sum(-1) <= draft.facts["relevant"][few]).all()


def test_tasks_of_one_batch_differ_in_mode_depth_and_mechanism() -> None:
    draft = make(MLPSCMConfig(), kind=TaskKind.CLASSIFICATION)
    assert set(draft.facts["mode"].tolist()) == {0, 1, 2}
    assert len(set(draft.facts["depth"].tolist())) >= 4
    assert explained(draft).std() > 0.15


def test_clusters_fix_classes_and_separate_them() -> None:
    draft = make(dataclasses.replace(HIDDEN, cluster_share=1.0), kind=TaskKind.CLASSIFICATION)
    assert (draft.classes >= 0).all() and draft.classes.max() < 10
    raw = draft.columns.signal
    between = torch.zeros(48)
    for code in range(10):
        member = (draft.classes == code).unsqueeze(1)
        size = member.sum(-1)
        centre = (raw * member).sum(-1) / size.clamp(min=1)
        between += ((size * centre.square()) / 300).mean(-1)
    assert between.median() > 0.1


def test_regression_has_no_clusters() -> None:
    draft = make(HIDDEN)
    assert (draft.classes == -1).all() and set(draft.facts["mode"].tolist()) == {1}


def test_hidden_targets_are_related_to_the_features_where_asked_for() -> None:
    free = explained(make(dataclasses.replace(HIDDEN, related_share=0.0)))
    related = explained(make(dataclasses.replace(HIDDEN, related_share=1.0)))
    assert related.mean() > free.mean() + 0.05


def test_nodes_may_be_products() -> None:
    additive = explained(make(dataclasses.replace(DIRECT, product_share=0.0)))
    products = explained(make(dataclasses.replace(DIRECT, product_share=1.0)))
    assert products.mean() < additive.mean()


@pytest.mark.parametrize("features", [50, 100, 200])
def test_wide_tables_of_shallow_networks_have_enough_nodes(features: int) -> None:
    config = dataclasses.replace(HIDDEN, max_depth=1)
    request = TableRequest(
        kind=TaskKind.REGRESSION,
        count=12,
        rows=64,
        features=features,
        max_classes=10,
        causes=CauseConfig(),
        columns=NUMBERS,
    )
    draft = sample_mlp_scm(Draws(0), config, request=request)
    varies = draft.columns.values.std(-1) > 0
    assert draft.columns.values.shape == (12, features, 64) and varies.float().mean() > 0.95
    assert (draft.scores[:, 0].square().mean(-1) > 0.5).all()
