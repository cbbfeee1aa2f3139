"""The typed class distribution: which classes it is over, its logarithm, its losses and where they have a gradient."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from model.class_distribution import ClassLogProbabilities, LogForm, present_classes, softmax_over_present
from model.classification_head import ClassificationHeadConfig, log_probabilities
from model.specimens import distance
from tools.failure import BadInput, ExitCode

B, M, K = 2, 4, 3


def _typed(probabilities: Tensor, *, form: LogForm, present: Tensor | None = None) -> ClassLogProbabilities:
    if present is None:
        present = torch.ones(len(probabilities), probabilities.shape[-1], dtype=torch.bool)
    config = ClassificationHeadConfig(log_form=form, clip=1e-5, mixing=0.01)
    return log_probabilities(probabilities, present, config=config)


def _random(*, seed: int = 0) -> Tensor:
    """Probabilities [B, M, K]."""
    logits = torch.randn(B, M, K, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (2 * logits).softmax(-1)


def test_present_classes_come_from_real_rows() -> None:
    """6.5: task-local vocabulary; padding does not bring class 0 into being."""
    labels = torch.tensor([[1, 2, 2, 0], [2, 2, 2, 2]])
    assert present_classes(labels, 4).tolist() == [[True, True, True, False], [False, False, True, False]]
    mask = torch.tensor([[True, True, False, False], [True, False, False, False]])
    present = present_classes(labels, 4, context_mask=mask)
    assert present.tolist() == [[False, True, True, False], [False, False, True, False]]


@pytest.mark.parametrize("form", list(LogForm))
def test_every_form_is_normalised_over_the_classes_present(form: LogForm) -> None:
    """6.1, 6.5: Σp = 1 over classes, minus infinity where the context has none, near p where p is not small."""
    present = torch.tensor([[True, True, False], [True, True, True]])
    probabilities = _random() * present[:, None]
    probabilities = probabilities / probabilities.sum(-1, keepdim=True)
    typed = _typed(probabilities, form=form, present=present)
    assert distance(typed.probabilities().sum(-1), torch.ones(B, M)) < 1e-12
    assert (typed.log_p[0, :, 2] == -math.inf).all()
    assert distance(typed.probabilities(), probabilities) < 0.01
    assert typed.log_p.dtype is torch.float64 and _typed(probabilities.half(), form=form).log_p.dtype is torch.float32


@pytest.mark.parametrize(
    ("form", "unnormalised"),
    [
        (LogForm.COURSE, lambda p, _: max(p, 1e-5)),
        (LogForm.TABPFN3, lambda p, _: max(p, 1e-5) + 3e-5),
        (LogForm.MIXED, lambda p, count: 0.99 * p + 0.01 / count),
    ],
)
def test_each_form_is_its_formula(form: LogForm, unnormalised: Callable[[float, int], float]) -> None:
    """6.1: log(clip(p)); log(max(p, 1e-5) + 3e-5); log((1 - ε)p + ε/K), K counting the classes present."""
    rows = [[0.7, 0.3, 0.0, 0.0], [1 - 1e-9, 1e-9, 0.0, 0.0], [0.2, 0.8 - 2e-5, 2e-5, 0.0]]
    present = [True, True, True, False]
    found = _typed(torch.tensor([rows], dtype=torch.float64), form=form, present=torch.tensor([present]))
    for m, row in enumerate(rows):
        masses = [unnormalised(p, 3) for p in row[:3]]
        expected = [math.log(mass / sum(masses)) for mass in masses]
        assert found.log_p[0, m, :3].tolist() == pytest.approx(expected, abs=1e-12)


def test_only_the_mixed_form_teaches_a_class_that_is_hardly_retrieved() -> None:
    """6.1: the gradient of the NLL at p_true ≈ 0 is exactly 0 under the clip, and steep with mixing."""
    slopes = {}
    for form in LogForm:
        p = torch.tensor([[[1e-7, 1 - 1e-7]]], dtype=torch.float64, requires_grad=True)
        _typed(p, form=form).losses(torch.zeros(1, 1)).sum().backward()
        slopes[form] = float(p.grad[0, 0, 0])
    assert slopes[LogForm.COURSE] == slopes[LogForm.TABPFN3] == 0.0
    floor = 0.01 / 2
    assert slopes[LogForm.MIXED] == pytest.approx(-0.99 / (0.99e-7 + floor) + 0.99, rel=1e-9)  # sum of masses is 1


def test_nll_is_the_cross_entropy() -> None:
    """1.5: cross-entropy of log-probabilities with labels equals -log p of the label, and so does the loss."""
    typed, answers = ClassLogProbabilities(log_p=_random().log()), torch.tensor([[0, 1, 2, 0], [2, 2, 1, 0]])
    expected = F.cross_entropy(typed.log_p.flatten(0, 1), answers.flatten(), reduction="none").view(B, M)
    assert distance(typed.nll(answers.float()), expected) < 1e-12
    assert distance(typed.nll(answers), -_random().gather(-1, answers[..., None])[..., 0].log()) < 1e-12
    assert torch.equal(typed.losses(answers), typed.nll(answers))


def test_smoothing_is_over_the_classes_present() -> None:
    """1.5: target (1 - s)·onehot + s/K; with all classes present it is the usual smoothed cross-entropy."""
    answers = torch.tensor([[0, 1, 1, 0], [2, 2, 1, 0]])
    typed = softmax_over_present(_random().log(), torch.tensor([[True, True, False], [True, True, True]]))
    losses = typed.losses(answers, smoothing=0.1)
    full = F.cross_entropy(typed.log_p[1], answers[1], reduction="none", label_smoothing=0.1)
    two = F.cross_entropy(typed.log_p[0, :, :2], answers[0], reduction="none", label_smoothing=0.1)
    assert distance(losses, torch.stack([two, full])) < 1e-12
    assert distance(losses, typed.nll(answers)) > 0.01


@pytest.mark.parametrize("num_present", [2, 3])
def test_what_smoothing_costs_in_nll(num_present: int) -> None:
    """1.5: trained to its optimum where labels are certain, it pays log(1 / (1 - s + s/K)); without it, nothing."""
    present, answers, paid = torch.arange(K)[None] < num_present, torch.zeros(1, 1, dtype=torch.long), {}
    for smoothing in (0.0, 0.1):
        logits = torch.zeros(1, 1, K, dtype=torch.float64, requires_grad=True)
        for _ in range(1000):
            loss = softmax_over_present(logits, present).losses(answers, smoothing=smoothing).sum()
            (slope,) = torch.autograd.grad(loss, logits)
            with torch.no_grad():
                logits -= 2.0 * slope
        paid[smoothing] = softmax_over_present(logits, present).nll(answers).item()
    assert paid[0.0] < 1e-3
    assert paid[0.1] == pytest.approx(-math.log(0.9 + 0.1 / num_present), abs=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("form", list(LogForm))
def test_queries_whose_class_the_context_lacks_are_masked_in_the_loss(form: LogForm, smoothing: float) -> None:
    """6.5: their NLL is infinite, their loss and its gradient 0; other queries are untouched and all is finite."""
    p = torch.tensor([[[1.0, 0.0, 0.0], [0.4, 0.6, 0.0]]], dtype=torch.float64, requires_grad=True)
    typed = _typed(p, form=form, present=torch.tensor([[True, True, False]]))
    answers = torch.tensor([[2, 1]])
    assert typed.nll(answers)[0, 0] == math.inf
    losses = typed.losses(answers, smoothing=smoothing)
    assert losses[0, 0] == 0.0 and 0.4 < losses[0, 1] < 0.7
    losses.sum().backward()
    assert p.grad.isfinite().all()
    assert (p.grad[0, 0] == 0).all() and (p.grad[0, 1, :2] != 0).all()


@pytest.mark.parametrize("form", list(LogForm))
def test_without_context_the_distribution_is_uniform(form: LogForm) -> None:
    """5.7, 5.B: tables of which no label is read stay finite."""
    typed = _typed(torch.zeros(1, M, 4), form=form, present=torch.zeros(1, 4, dtype=torch.bool))
    assert distance(typed.probabilities(), torch.full((1, M, 4), 0.25)) < 1e-6


@pytest.mark.parametrize("smoothing", [-0.1, 1.0, math.nan])
def test_smoothing_outside_its_range_is_refused(smoothing: float) -> None:
    """1.5: the message names the value."""
    typed = ClassLogProbabilities(log_p=_random().log())
    with pytest.raises(BadInput, match=f"smoothing is {smoothing}: give 0 or more, below 1") as caught:
        typed.losses(torch.zeros(B, M), smoothing=smoothing)
    assert caught.value.code is ExitCode.BAD_FLAG


def test_log_probabilities_cannot_be_taken_for_a_tensor() -> None:
    """6.0: outputs are typed; p handed over as logits is an error, not a silent softmax."""
    typed = ClassLogProbabilities(log_p=torch.zeros(1, 1, 1))
    assert not isinstance(typed, Tensor)
    with pytest.raises((TypeError, AttributeError)):
        F.softmax(typed, dim=-1)
