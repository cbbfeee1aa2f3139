"""The certificate holds for whole networks of every head and option, on every path that they differ on."""

import dataclasses

import pytest
import torch

from eval.certificate import certificate_episodes, certify
from eval.subject import Subject, rerandomise
from model.attention import Norm
from model.class_distribution import LogForm
from model.classification_head import ClassificationHeadConfig, ClassificationHeadKind, LengthScaling
from model.icl_transformer import AttentionPath, ICLConfig
from model.label_injection import LabelKind
from model.network import CellConfig, Network, NetworkConfig
from model.regression_heads import RegressionHeadConfig, RegressionHeadKind
from priors.task import TaskKind


def _config(kind: TaskKind) -> NetworkConfig:
    cell = CellConfig(width=8, num_rounds=2, num_heads=2, num_inducing=3, num_tokens=2)
    return NetworkConfig(
        kind=LabelKind(kind.value),
        cell=cell,
        icl=ICLConfig(width=16, num_blocks=2, num_heads=2),
        classification=ClassificationHeadConfig(num_heads=2, head_width=8),
    )


def _with_head(head: ClassificationHeadConfig | RegressionHeadConfig) -> NetworkConfig:
    if isinstance(head, RegressionHeadConfig):
        return dataclasses.replace(_config(TaskKind.REGRESSION), regression=head)
    return dataclasses.replace(_config(TaskKind.CLASSIFICATION), classification=head)


def _with_options(kind: TaskKind) -> NetworkConfig:
    icl = ICLConfig(
        width=16,
        num_blocks=2,
        num_heads=2,
        num_kv_heads_query=1,
        length_scaling=True,
        num_thinking_rows=2,
        norm=Norm.RMS,
        role_embeddings=False,
    )
    plain = dataclasses.replace(_config(kind).cell, target_aware=False)
    return dataclasses.replace(_config(kind), icl=icl, cell=plain)


_RETRIEVAL = ClassificationHeadConfig(num_heads=2, head_width=8)
_CONFIGS = {
    **{f"{kind} head": _with_head(dataclasses.replace(_RETRIEVAL, kind=kind)) for kind in ClassificationHeadKind},
    **{f"{form} form": _with_head(dataclasses.replace(_RETRIEVAL, log_form=form)) for form in LogForm},
    **{f"{kind} scaling": _with_head(dataclasses.replace(_RETRIEVAL, length_scaling=kind)) for kind in LengthScaling},
    **{f"{kind} head": _with_head(RegressionHeadConfig(kind=kind)) for kind in RegressionHeadKind},
    **{f"{kind} with options": _with_options(kind) for kind in TaskKind},
}
_ON_ALL_PATHS = ("retrieval head", "linear head", "bar head", *(f"{kind} with options" for kind in TaskKind))


def _subject(config: NetworkConfig, path: AttentionPath) -> Subject:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # style: layers initialise themselves from the global generator, restored after this
        return Subject(network=rerandomise(Network(config).eval(), seed=0), path=path)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        (name, path)
        for name in _CONFIGS
        for path in AttentionPath
        if path is AttentionPath.FAST or name in _ON_ALL_PATHS
    ],
)
def test_every_prediction_depends_on_its_row_and_its_context_alone(name: str, path: AttentionPath) -> None:
    """5.1, 5.5, 5.9, 5.B: whole networks of every head and option, padded and not, with a hidden label and without.

    Not one operation is without a rule, and no branch is taken on a value.
    """
    subject = _subject(_CONFIGS[name], path)
    tables = certificate_episodes(subject)
    for group, hides_labels in ((tables, False), (tables, True), (tables[:1], False)):
        found = certify(subject, group, hides_labels=hides_labels)
        assert found.violation is None and found.missing is None
        assert not found.branches and not found.mixed
        for table, row in enumerate(found.predictions):
            for query in range(len(group[table].answers())):
                context = f"the weights, the context features of table {table}, the context labels of table {table}"
                assert row[query] == f"{context}, query row {query} of table {table}"
