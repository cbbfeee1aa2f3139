"""The retrieval head: kernel regression over context labels, and its typed output."""

import inspect
import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from model.classification_head import (
    ClassLogProbabilities,
    RetrievalClassificationHead,
    RetrievalConfig,
    check_labels,
    log_probabilities,
    present_classes,
)
from model.specimens import distance, redraw
from tools.failure import ExitCode, Failure

B, M, N, K, WIDTH = 2, 4, 7, 3, 16


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _head(*, num_heads: int = 2, head_width: int = 8) -> RetrievalClassificationHead:
    head = RetrievalClassificationHead(WIDTH, RetrievalConfig(num_heads=num_heads, head_width=head_width))
    redraw(head)
    return head.double()


def _inputs() -> tuple[Tensor, Tensor, Tensor]:
    """Query hidden states, context hidden states, context labels."""
    return _random(B, M, WIDTH, seed=1), _random(B, N, WIDTH, seed=2), torch.arange(B * N).view(B, N) % K


def test_the_interface_is_the_course_s() -> None:
    """6.0 and 5.8: the exact signature, (probabilities [B, M, K], {"read_weights": [B, M, N]}); no query label."""
    names = list(inspect.signature(RetrievalClassificationHead.forward).parameters)
    expected = ["self", "query_hidden", "context_hidden", "context_labels", "num_classes", "context_mask"]
    assert names == expected
    assert inspect.signature(RetrievalClassificationHead.forward).parameters["context_mask"].default is None
    probabilities, extra = _head()(*_inputs(), K)
    assert probabilities.shape == (B, M, K)
    assert list(extra) == ["read_weights"]
    assert extra["read_weights"].shape == (B, M, N)


def test_read_weights_sum_to_one_over_context_rows() -> None:
    """6.4, first assertion: attention sums to 1 over the N = 7 context rows."""
    weights = _head()(*_inputs(), K)[1]["read_weights"]
    assert distance(weights.sum(-1), torch.ones(B, M)) < 1e-12


def test_probabilities_sum_to_one_over_classes() -> None:
    """6.4, second assertion: p sums to 1 over the K = 3 classes; it is not the read weights."""
    probabilities, extra = _head()(*_inputs(), K)
    assert distance(probabilities.sum(-1), torch.ones(B, M)) < 1e-12
    for k in range(K):
        mass = (extra["read_weights"] * (_inputs()[2] == k)[:, None]).sum(-1)
        assert distance(probabilities[..., k], mass) < 1e-12


def test_with_identity_projections_it_is_a_nadaraya_watson_estimator() -> None:
    """1.2: kernel exp(q·k/√d), one head, scale 1."""
    head = RetrievalClassificationHead(WIDTH, RetrievalConfig(num_heads=1, head_width=WIDTH)).double()
    with torch.no_grad():
        for projection in (head.query, head.key):
            projection.weight.copy_(torch.eye(WIDTH))
        head.query.bias.zero_()
        head.scale_base.fill_(1.0)
        head.scale_slope.zero_()
    query, context, labels = _inputs()
    found = head(query, context, labels, K)[0]
    for b in range(B):
        for m in range(M):
            kernel = [math.exp(float(query[b, m] @ context[b, n]) / math.sqrt(WIDTH)) for n in range(N)]
            for k in range(K):
                share = sum(value for n, value in enumerate(kernel) if labels[b, n] == k) / sum(kernel)
                assert found[b, m, k].item() == pytest.approx(share, abs=1e-12)


def test_probabilities_are_the_mean_over_heads() -> None:
    """6.1: multi-head softmax over context rows, mean over heads."""
    query, context, labels = _inputs()
    both, parts = _head(), []
    for h in range(2):
        single = _head(num_heads=1)
        rows = slice(8 * h, 8 * h + 8)
        with torch.no_grad():
            for name in ("query", "key"):
                getattr(single, name).weight.copy_(getattr(both, name).weight[rows])
            single.query.bias.copy_(both.query.bias[rows])
            single.scale_base.copy_(both.scale_base[h : h + 1])
            single.scale_slope.copy_(both.scale_slope[h : h + 1])
        parts.append(single(query, context, labels, K)[0])
    assert distance(both(query, context, labels, K)[0], torch.stack(parts).mean(0)) < 1e-12


def test_logits_sharpen_with_the_logarithm_of_the_context_length() -> None:
    """6.1: each head's logits are multiplied by base + slope·log(n/128), n counting real rows."""
    head = _head()
    query, context, labels = _inputs()
    wide = torch.cat([context, context[:, :1]], dim=1), F.pad(labels, (0, 1))
    mask = torch.arange(N + 1).expand(B, -1) < N
    assert distance(head(query, *wide, K, mask)[0], head(query, context, labels, K)[0]) < 1e-12
    factor = head.scale_base + head.scale_slope * math.log(N / 128)
    sharper = _head()
    with torch.no_grad():
        sharper.scale_base.copy_(factor)
        sharper.scale_slope.zero_()
    assert distance(sharper(query, context, labels, K)[0], head(query, context, labels, K)[0]) < 1e-12


def test_permuting_classes_permutes_probabilities() -> None:
    """6.3: at fixed hidden states the head is class-permutation equivariant."""
    query, context, labels = _inputs()
    slots = torch.tensor([2, 0, 1])
    before, after = _head()(query, context, labels, K)[0], _head()(query, context, slots[labels], K)[0]
    assert distance(after[..., slots], before) < 1e-14


def test_the_number_of_parameters_does_not_depend_on_classes() -> None:
    """6.3: one head serves 2 and 160 classes; "6×64" is no class limit."""
    head = RetrievalClassificationHead(WIDTH, RetrievalConfig(num_heads=6, head_width=64))
    assert sum(parameter.numel() for parameter in head.parameters()) == (2 * WIDTH + 1) * 6 * 64 + 2 * 6
    query, context, _ = (part.float() for part in _inputs())
    labels = torch.arange(B * N).view(B, N) + 140
    for num_classes in (154, 160, 500):
        assert head(query, context, labels, num_classes)[0].shape == (B, M, num_classes)


def test_context_order_does_not_matter() -> None:
    """1.4: rows carry no position; read weights move with their rows."""
    query, context, labels = _inputs()
    order = torch.tensor([6, 3, 0, 5, 1, 4, 2])
    before, after = _head()(query, context, labels, K), _head()(query, context[:, order], labels[:, order], K)
    assert distance(after[0], before[0]) < 1e-14
    assert distance(after[1]["read_weights"], before[1]["read_weights"][..., order]) < 1e-14


def test_padded_context_rows_have_weight_exactly_zero() -> None:
    """5.7: and a table without real rows gives zeros instead of NaN."""
    query, context, labels = _inputs()
    mask = torch.tensor([[True] * 5 + [False] * 2, [False] * N])
    probabilities, extra = _head()(query, context, labels, K, mask)
    assert (extra["read_weights"][0, :, 5:] == 0).all()
    assert (extra["read_weights"][1] == 0).all()
    assert (probabilities[1] == 0).all()
    head = _head()
    head(query, context, labels, K, mask)[0].square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in head.parameters())
    alone = _head()(query[:1], context[:1, :5], labels[:1, :5], K)[0]
    assert distance(probabilities[:1], alone) < 1e-12


def test_reading_stays_in_fp32_under_autocast() -> None:
    """The softmax over context rows and its sums are an fp32 island."""
    head = _head().float()
    query, context, labels = _inputs()
    with torch.autocast("cpu", torch.bfloat16):
        probabilities, extra = head(query.float(), context.float(), labels, K)
    assert probabilities.dtype is torch.float32
    assert distance(probabilities.sum(-1), torch.ones(B, M)) < 1e-6
    assert distance(extra["read_weights"].sum(-1), torch.ones(B, M)) < 1e-6


@pytest.mark.parametrize("wrong", [float(K), -1.0, math.nan])
def test_labels_outside_the_classes_are_refused(wrong: float) -> None:
    """6.5: the message names the label and the number of classes."""
    labels = torch.zeros(B, N)
    labels[1, 2] = wrong
    with pytest.raises(Failure, match=f"label is {wrong:g} with 3 classes") as caught:
        _head()(_inputs()[0], _inputs()[1], labels, K)
    assert caught.value.code is ExitCode.OVER_LIMIT
    check_labels(torch.zeros(2, 0), K)


def test_present_classes_come_from_real_rows() -> None:
    """6.5: task-local vocabulary; padding does not bring class 0 into being."""
    labels = torch.tensor([[1, 2, 2, 0], [2, 2, 2, 2]])
    assert present_classes(labels, 4).tolist() == [[True, True, True, False], [False, False, True, False]]
    mask = torch.tensor([[True, True, False, False], [True, False, False, False]])
    present = present_classes(labels, 4, context_mask=mask)
    assert present.tolist() == [[False, True, True, False], [False, False, True, False]]


def test_unseen_classes_have_probability_zero_by_structure() -> None:
    """6.5: exactly 0 and minus infinity; a result of structure, not a statement about calibration."""
    query, context, _ = _inputs()
    labels = torch.full((B, N), 1)
    probabilities = _head()(query, context, labels, K)[0]
    assert (probabilities[..., [0, 2]] == 0).all()
    typed = log_probabilities(probabilities, present_classes(labels, K), clip=1e-5)
    assert typed.log_p.tolist() == [[[-math.inf, 0.0, -math.inf]] * M] * B
    assert typed.probabilities().tolist() == [[[0.0, 1.0, 0.0]] * M] * B
    assert typed.nll(torch.zeros(B, M)).tolist() == [[math.inf] * M] * B


def test_logits_are_the_logarithm_of_clipped_probabilities() -> None:
    """6.1: logits = log(clip(p)), then normalised over the classes present."""
    probabilities = torch.tensor([[[0.7, 0.3, 0.0], [1.0, 1e-9, 0.0]]], dtype=torch.float64)
    typed = log_probabilities(probabilities, torch.tensor([[True, True, False]]), clip=1e-3)
    assert typed.log_p[0, 0, :2].exp().tolist() == pytest.approx([0.7, 0.3])
    assert typed.log_p[0, 1, :2].exp().tolist() == pytest.approx([1 / 1.001, 0.001 / 1.001])
    assert distance(typed.probabilities().sum(-1), torch.ones(1, 2)) < 1e-12


def test_nll_is_the_cross_entropy() -> None:
    """1.5: cross-entropy of log-probabilities equals -log p of the label."""
    probabilities, answers = _head()(*_inputs(), K)[0], torch.tensor([[0, 1, 2, 0], [2, 2, 1, 0]])
    typed = log_probabilities(probabilities, torch.ones(B, K, dtype=torch.bool), clip=1e-5)
    expected = F.cross_entropy(typed.log_p.flatten(0, 1), answers.flatten(), reduction="none").view(B, M)
    assert distance(typed.nll(answers.float()), expected) < 1e-12
    assert distance(typed.nll(answers), -probabilities.gather(-1, answers[..., None])[..., 0].log()) < 1e-4


def test_gradients_stay_finite_where_classes_are_absent_or_clipped() -> None:
    """Minus infinities never reach a parameter."""
    head = _head()
    query, context, labels = _inputs()
    labels = labels.clamp_max(1)
    typed = log_probabilities(head(query * 100, context, labels, K)[0], present_classes(labels, K), clip=1e-5)
    typed.nll(torch.zeros(B, M)).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in head.parameters())


def test_without_context_the_distribution_is_uniform() -> None:
    """5.7: tables that are all padding stay finite."""
    typed = log_probabilities(torch.zeros(1, M, 4), torch.zeros(1, 4, dtype=torch.bool), clip=1e-5)
    assert distance(typed.probabilities(), torch.full((1, M, 4), 0.25)) < 1e-6


def test_log_probabilities_cannot_be_taken_for_a_tensor() -> None:
    """6.0: outputs are typed; p handed over as logits is an error, not a silent softmax."""
    typed = ClassLogProbabilities(log_p=torch.zeros(1, 1, 1))
    assert not isinstance(typed, Tensor)
    with pytest.raises((TypeError, AttributeError)):
        F.softmax(typed, dim=-1)
