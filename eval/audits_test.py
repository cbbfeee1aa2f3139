"""Every audit on a trained checkpoint: one trained here, or the user's own.

bazel test //eval:audits --test_env=VERITAB_CHECKPOINT=/absolute/path/of/a/run/or/step/folder
"""

import json
import os
import pathlib

import pytest
import torch

from eval.audits import AUDITS, audit_network, audit_subject, judge
from eval.case import Case
from eval.checkpoints import find_checkpoints
from eval.mutants import MUTANTS, mutated
from eval.small_network import small_network, trained_network
from eval.subject import Subject
from eval.tracing import Stage
from model.checkpoint import Checkpoint, save_checkpoint
from model.icl_transformer import AttentionPath
from priors.task import TaskKind

_PROMISED = ("causal_mask", "query_reads_query", "label_at_query", "normalise_with_query")


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> list[Checkpoint]:
    """The user's checkpoints where VERITAB_CHECKPOINT is set, else one of each kind, trained for some seconds."""
    torch.set_num_threads(1)
    given = os.environ.get("VERITAB_CHECKPOINT")
    if given:
        assert os.path.isabs(given), f"VERITAB_CHECKPOINT={given} is relative and tests run elsewhere: make it absolute"
        return find_checkpoints(pathlib.Path(given))
    run = tmp_path_factory.mktemp("run")
    for kind in TaskKind:
        network, losses = trained_network(kind)
        assert sum(losses[-10:]) < sum(losses[:10]), "the network did not learn, so its audit would mean little"
        save_checkpoint(run / kind.value / "checkpoints", step=len(losses), network=network)
    return find_checkpoints(run)


@pytest.mark.parametrize("path", [AttentionPath.REFERENCE, AttentionPath.FAST])
@pytest.mark.parametrize("name", list(AUDITS))
def test_each_audit_passes_on_a_trained_checkpoint(
    name: str, path: AttentionPath, checkpoints: list[Checkpoint]
) -> None:
    """5.A, 5.C, 5.D, 5.4, 5.7, 6.4: on both attention paths."""
    for checkpoint in checkpoints:
        result = judge(name, Case.of(Subject(network=checkpoint.network(), path=path)))
        assert result.passed, f"{checkpoint.folder}: stage {result.stage}: {result.message} {result.figures}"


@pytest.mark.parametrize("name", _PROMISED)
def test_each_promised_mutant_of_a_trained_checkpoint_fails(name: str, checkpoints: list[Checkpoint]) -> None:
    """5.E, 5.F: broken on purpose, the same checkpoint fails at the stage that was broken."""
    for checkpoint in checkpoints:
        result = judge(MUTANTS[name].audit, Case.of(mutated(name, Subject(network=checkpoint.network()))))
        assert (result.passed, result.stage) == (False, MUTANTS[name].stage), result.message


def test_the_verdict_names_its_subject_and_is_plain_json(checkpoints: list[Checkpoint]) -> None:
    """5.G: weights, configuration, code, path, precision and scorer."""
    checkpoint = checkpoints[0]
    verdict = audit_network(checkpoint.network(), weights_sha256=checkpoint.weights_sha256)
    assert json.loads(json.dumps(verdict, allow_nan=False)) == verdict
    assert verdict["passed"] and verdict["format_version"] == 1
    assert [audit["name"] for audit in verdict["audits"]] == list(AUDITS)
    assert all(set(audit) == {"name", "passed", "stage", "figures", "message"} for audit in verdict["audits"])
    subject = verdict["subject"]
    assert set(subject) == {"weights_sha256", "config_sha256", "code_sha256", "path", "dtype", "scorer"}
    assert subject["weights_sha256"] == checkpoint.weights_sha256
    assert (subject["path"], subject["dtype"]) == ("fast", "float32")


def test_the_judged_network_is_left_as_it_was(checkpoints: list[Checkpoint]) -> None:
    """Audits work on copies: weights, path and hooks stay."""
    network = checkpoints[0].network()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    audit_network(network, weights_sha256="", path=AttentionPath.REFERENCE)
    assert network.icl.path is AttentionPath.FAST
    assert not any(module._forward_hooks for module in network.modules())
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


@pytest.mark.parametrize("kind", list(TaskKind))
def test_an_untrained_network_is_called_blind_not_legal(kind: TaskKind) -> None:
    """5.A: with zero output projections nothing can leak, so passing would say nothing."""
    results = {name: judge(name, Case.of(Subject(network=small_network(kind)))) for name in ("leakage", "mask_graph")}
    assert not any(result.passed for result in results.values())
    assert all("blind" in result.message and result.stage is None for result in results.values())


def test_a_failed_verdict_is_json_too() -> None:
    """JSON has no infinity: a field that must not exist is infinitely wrong."""
    network = small_network(TaskKind.CLASSIFICATION)
    gate = mutated("label_at_query", Subject(network=network)).gate
    verdict = audit_subject(Subject(network=network, gate=gate), weights_sha256="")
    json.dumps(verdict, allow_nan=False)
    leakage = verdict["audits"][0]
    assert not verdict["passed"] and leakage["stage"] == Stage.COLLATE.value
    assert leakage["figures"]["largest_move"] == 1e308
