"""Legality of a network: the list of audits, and `audit.json` (seed section 5; the gate of 5.G).

An audit that cannot fail is worthless, so every one has a positive control, and `eval.mutants` holds networks that leak
on purpose. Verdicts are taken in eager mode on the CPU against a measured noise floor.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch

from eval.ablation_audit import context_ablation
from eval.case import AuditResult, Case
from eval.certificate import certificate
from eval.label_audits import history, leakage, unknown_label
from eval.loader_audit import loader
from eval.path_audit import paths
from eval.query_audits import context_order, padding, query_permutation, query_set
from eval.structure_audits import mask_graph, probabilities, slices
from eval.subject import Subject, subject_record
from eval.tracing import Stage
from model.icl_transformer import AttentionPath
from model.network import Network
from tools.failure import BadInput, ExitCode

FORMAT_VERSION = 1

AUDITS: dict[str, Callable[[Case], AuditResult]] = {
    "leakage": leakage,
    "loader": loader,
    "query_set": query_set,
    "query_permutation": query_permutation,
    "context_order": context_order,
    "mask_graph": mask_graph,
    "slices": slices,
    "padding": padding,
    "unknown_label": unknown_label,
    "history": history,
    "probabilities": probabilities,
    "context_ablation": context_ablation,
    "paths": paths,
    "certificate": certificate,
}
"""Every audit by name, in the order in which they are shown."""


def run_audits(subject: Subject, *, seed: int = 0) -> list[AuditResult]:
    """All verdicts on one subject, on one CPU thread.

    Raises:
        BadInput: BAD_FLAG for the cached path, which has no verdict of its own.
    """
    if subject.path is AttentionPath.CACHED:
        mend = "the audit `paths` holds it to the fast one: judge the reference or the fast path"
        raise BadInput(ExitCode.BAD_FLAG, f"path cached is not judged by itself, {mend}")
    with _one_thread():
        case = Case.of(subject, seed=seed)
        return [judge(name, case) for name in AUDITS]


def judge(name: str, case: Case) -> AuditResult:
    """One verdict. A subject that differs from itself, or rounds too coarsely to be judged, fails every audit."""
    noise = case.noise
    if noise.repeat is not None:
        what = f"{noise.repeat.name} moved by {noise.repeat.absolute:.3g} between two equal runs"
        figures = {"repeat": noise.repeat.absolute}
        return AuditResult(name=name, passed=False, stage=Stage.RANDOMNESS, figures=figures, message=what)
    if noise.too_loud:
        what = f"rounding moves predictions by {noise.rounding:.3g}: leaks would drown in it; judge in fp64"
        figures = {"rounding": noise.rounding}
        return AuditResult(name=name, passed=False, stage=None, figures=figures, message=what)
    return AUDITS[name](case)


def audit_subject(subject: Subject, *, weights_sha256: str, seed: int = 0) -> dict[str, Any]:
    """The content of `audit.json` for one subject."""
    results = run_audits(subject, seed=seed)
    return {
        "format_version": FORMAT_VERSION,
        "subject": subject_record(subject, weights_sha256=weights_sha256),
        "passed": all(result.passed for result in results),
        "audits": [_as_json(result) for result in results],
    }


def audit_network(
    network: Network, *, weights_sha256: str, path: AttentionPath = AttentionPath.FAST, seed: int = 0
) -> dict[str, Any]:
    """The content of `audit.json` for a network as it is; the network itself is not changed.

    Args:
        network: in the mode in which it predicts.
        weights_sha256: names its weights.
        path: the attention path that its scores are made with.
        seed: of the specimens.
    """
    return audit_subject(Subject(network=network, path=path), weights_sha256=weights_sha256, seed=seed)


def _as_json(result: AuditResult) -> dict[str, Any]:
    """JSON has no infinity: an infinite figure is written as 1e308."""
    figures = {name: min(value, 1e308) if value == value else 1e308 for name, value in result.figures.items()}
    stage = None if result.stage is None else str(result.stage)
    return {**dataclasses.asdict(result), "figures": figures, "stage": stage}


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
