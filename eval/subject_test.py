"""The subject of an audit: its whole way from records to scores, its name, and re-drawn weights."""

import dataclasses
import pathlib
import re
import shutil

import numpy as np
import pytest
import torch

from eval import subject as subjects
from eval.small_network import rerandomised_network, small_network
from eval.specimens import specimens
from eval.subject import (
    CODE,
    JUDGES,
    SCORING,
    Subject,
    code_sha256,
    rerandomise,
    subject_record,
    weights_digest,
    zero_tensors,
)
from model import presets
from model.checkpoint import load_checkpoint, save_checkpoint
from model.icl_transformer import AttentionPath
from model.label_injection import LabelKind
from model.network import Network
from priors.task import TaskKind


def test_the_code_digest_covers_every_module_between_records_and_predictions() -> None:
    """5.G: all of model but sizes, first weights, files and what only tests use; gate, collation, loader, predictor."""
    files = pathlib.Path(presets.__file__).parent.glob("*.py")
    ours = {f"model.{file.stem}" for file in files if not file.stem.endswith(("_test", "__init__"))}
    covered = {module.__name__ for module in CODE}
    others = ("checkpoint", "initialisation", "presets", "shared_backbone", "specimens")
    assert ours - {f"model.{name}" for name in others} <= covered
    assert {"eval.records", "eval.icl_predictor", "priors.task", "priors.batches"} <= covered
    assert {"priors.group", "priors.shards"} <= covered


def test_the_digests_cover_the_audits_and_whatever_they_import() -> None:
    """5.G: a verdict of other audits, or of other scores, is a verdict on another subject."""
    covered = {*JUDGES, *SCORING, *(f"{module.__name__.removeprefix('eval.')}.py" for module in CODE)}
    pending, reached = ["audits.py"], {"audits.py"}
    while pending:
        source = (pathlib.Path(subjects.__file__).parent / pending.pop()).read_text()
        names = re.findall(r"^from eval\.(\w+) import", source, re.MULTILINE)
        for line in re.findall(r"^from eval import (.+)$", source, re.MULTILINE):
            names += line.split(", ")
        found = {f"{name}.py" for name in names} - reached
        reached |= found
        pending += sorted(found)
    assert "label_audits.py" in reached and reached <= covered
    assert set(JUDGES) <= reached and set(SCORING) == {"comparison.py", "scores.py", "tables.py"}


@pytest.mark.parametrize("name", [*JUDGES, *SCORING])
def test_a_changed_audit_or_scorer_is_another_subject(
    name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """5.G: audits are in the code digest, scoring in the scorer's."""
    subject = Subject(network=small_network(TaskKind.CLASSIFICATION))
    before = subject_record(subject, weights_sha256="a")
    for file in (*JUDGES, *SCORING):
        shutil.copy(pathlib.Path(subjects.__file__).parent / file, tmp_path)
    monkeypatch.setattr(subjects, "_FOLDER", tmp_path)
    assert subject_record(subject, weights_sha256="a") == before
    (tmp_path / name).write_text((tmp_path / name).read_text() + "\n")
    after = subject_record(subject, weights_sha256="a")
    assert {key for key in before if before[key] != after[key]} == {"scorer" if name in SCORING else "code_sha256"}


def test_the_code_digest_changes_with_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """5.G: a changed module is another subject."""
    before = code_sha256()
    assert before == code_sha256() and len(before) == 64
    monkeypatch.setattr(subjects, "CODE", CODE[1:])
    assert code_sha256() != before


def test_the_record_changes_with_weights_configuration_path_and_precision() -> None:
    """5.G: a pass holds for exactly this subject."""
    one = Subject(network=small_network(TaskKind.CLASSIFICATION))
    others = [
        subject_record(one, weights_sha256="b"),
        subject_record(Subject(network=small_network(TaskKind.REGRESSION)), weights_sha256="a"),
        subject_record(dataclasses.replace(one, path=AttentionPath.REFERENCE), weights_sha256="a"),
        subject_record(dataclasses.replace(one, dtype=torch.float64), weights_sha256="a"),
    ]
    record = subject_record(one, weights_sha256="a")
    assert all(other != record for other in others)
    assert record == subject_record(one.fresh(), weights_sha256="a")


@pytest.mark.parametrize("kind", list(TaskKind))
def test_outcomes_are_cut_to_real_queries_and_own_classes(kind: TaskKind) -> None:
    """5.A, 6.5: what is scored of a padded batch is what is scored of each table alone."""
    subject, tables = Subject(network=rerandomised_network(kind)).fresh(), specimens(kind)
    together = subject.run(tables).outcomes
    for episode, outcome in zip(tables, together, strict=True):
        width = episode.task.num_classes or 100
        assert outcome.prediction.shape == (len(episode.answers()), width)
        assert np.array_equal(outcome.answers, episode.answers())
        alone = subject.run([episode]).outcomes[0]
        assert np.allclose(alone.prediction, outcome.prediction, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("kind", list(TaskKind))
def test_the_estimator_path_predicts_what_the_batch_path_predicts(kind: TaskKind) -> None:
    """6.12: both make forecasts of the same table; orders are averaged, so they agree roughly."""
    subject, episode = Subject(network=rerandomised_network(kind)).fresh(), specimens(kind)[0]
    direct, estimated = subject.run([episode]).outcomes[0], subject.estimate(subject.network, episode)
    assert direct.prediction.shape == estimated.prediction.shape
    unit = 1.0 if kind is TaskKind.CLASSIFICATION else float(np.std(episode.task.y))
    assert np.abs(direct.prediction[:, 0] - estimated.prediction[:, 0]).mean() < 0.5 * unit


def test_a_wrong_scale_shows_in_the_readout() -> None:
    """5.F: the unit is measured from the batch, not taken from the prediction."""
    kind = TaskKind.REGRESSION
    subject, tables = Subject(network=rerandomised_network(kind)).fresh(), specimens(kind)
    run = subject.run(tables)
    assert torch.allclose(run.readout[..., -1], torch.ones_like(run.readout[..., -1]), atol=1e-6)
    assert run.readout[..., -2].abs().max() < 1e-5


@pytest.mark.parametrize("kind", list(LabelKind))
def test_re_drawing_fills_zero_tensors_only(kind: LabelKind) -> None:
    """5.G: the output projections of a fresh network start at zero and would hide every leak."""
    network = Network(presets.tiny(kind))
    zeros = zero_tensors(network)
    assert any("icl.blocks.0.attention.output" in name for name in zeros)
    drawn = rerandomise(network, seed=1)
    assert zero_tensors(drawn) == [] and zero_tensors(network) == zeros
    before = dict(network.named_parameters())
    for name, value in drawn.named_parameters():
        assert torch.equal(value, before[name]) != (not before[name].any())
    again, other = rerandomise(network, seed=1), rerandomise(network, seed=2)
    assert weights_digest(again) == weights_digest(drawn) != weights_digest(other)


def test_the_digest_of_weights_is_the_checkpoints(tmp_path: pathlib.Path) -> None:
    """5.G: a verdict can be tied to a file."""
    network = rerandomised_network(TaskKind.REGRESSION)
    checkpoint = load_checkpoint(save_checkpoint(tmp_path, step=1, network=network))
    assert weights_digest(checkpoint.network()) == checkpoint.weights_sha256 == weights_digest(network)
