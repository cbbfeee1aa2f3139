"""What sets the heads apart: equivariance in the classes, sizes, vocabulary; and the controls."""

import dataclasses
import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from model.class_distribution import ClassLogProbabilities, LogForm
from model.classification_head import (
    ClassificationHead,
    ClassificationHeadConfig,
    ClassificationHeadKind,
    KernelClassificationHead,
    LengthScaling,
    LinearClassificationHead,
    MLPClassificationHead,
    RetrievalClassificationHead,
    log_probabilities,
    make_classification_head,
)
from model.specimens import distance, redraw
from tools.failure import BadInput

B, M, N, K, WIDTH, SLOTS = 2, 4, 7, 3, 16, 5
EQUIVARIANT = (ClassificationHeadKind.RETRIEVAL, ClassificationHeadKind.KERNEL)
KINDS = list(ClassificationHeadKind)


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _head(kind: ClassificationHeadKind) -> ClassificationHead:
    head = make_classification_head(ClassificationHeadConfig(kind=kind), width=WIDTH, max_classes=SLOTS)
    redraw(head)
    return head.double()


def _inputs() -> tuple[Tensor, Tensor, Tensor]:
    """Query hidden states, context hidden states, context labels."""
    return _random(B, M, WIDTH, seed=1), _random(B, N, WIDTH, seed=2), torch.arange(B * N).view(B, N) % K


def _distribution(
    head: ClassificationHead, inputs: tuple[Tensor, Tensor, Tensor], *, num_classes: int, mask: Tensor | None = None
) -> ClassLogProbabilities:
    query, context, labels = inputs
    memory = head.remember(context, labels, num_classes, mask)
    return log_probabilities(head.read(query, memory), memory.present, config=ClassificationHeadConfig())


def test_a_configuration_names_its_head() -> None:
    """6.0, 6.6: every kind makes its own."""
    made = {kind: type(_head(kind)) for kind in KINDS}
    assert list(made.values()) == [
        RetrievalClassificationHead, KernelClassificationHead, LinearClassificationHead, MLPClassificationHead
    ]  # fmt: skip


@pytest.mark.parametrize("kind", EQUIVARIANT)
def test_permuting_classes_permutes_probabilities(kind: ClassificationHeadKind) -> None:
    """6.3: at fixed hidden states heads that read rows are equivariant, bit by bit, and in the log form too."""
    query, context, labels = _inputs()
    slots, head = torch.tensor([2, 0, 1]), _head(kind)
    before, after = head(query, context, labels, K)[0], head(query, context, slots[labels], K)[0]
    assert torch.equal(after[..., slots], before) and distance(after, before) > 1e-2
    typed = [_distribution(head, (query, context, ids), num_classes=K).log_p for ids in (labels, slots[labels])]
    assert distance(typed[1][..., slots], typed[0]) < 1e-14


@pytest.mark.parametrize("kind", [ClassificationHeadKind.LINEAR, ClassificationHeadKind.MLP])
def test_linear_and_mlp_heads_are_not_equivariant(kind: ClassificationHeadKind) -> None:
    """6.3, 6.6: their outputs belong to slots, so new class numbers at the same hidden states move nothing."""
    query, context, labels = _inputs()
    slots, head = torch.tensor([2, 0, 1]), _head(kind)
    before, after = head(query, context, labels, K)[0], head(query, context, slots[labels], K)[0]
    assert torch.equal(after, before) and distance(after[..., slots], before) > 1e-2


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_do_not_depend_on_classes_unless_a_head_has_slots(kind: ClassificationHeadKind) -> None:
    """6.3: counted for K_max of 2 and 160."""
    counts = [
        sum(p.numel() for p in make_classification_head(_full(kind), width=WIDTH, max_classes=slots).parameters())
        for slots in (2, 160)
    ]
    expected = {
        ClassificationHeadKind.RETRIEVAL: [(2 * WIDTH + 1) * 6 * 64] * 2,
        ClassificationHeadKind.KERNEL: [0, 0],
        ClassificationHeadKind.LINEAR: [(WIDTH + 1) * slots for slots in (2, 160)],
        ClassificationHeadKind.MLP: [(WIDTH + 1) * 2 * WIDTH + (2 * WIDTH + 1) * slots for slots in (2, 160)],
    }
    assert counts == expected[kind]


def _full(kind: ClassificationHeadKind) -> ClassificationHeadConfig:
    return ClassificationHeadConfig(kind=kind, num_heads=6, head_width=64, length_scaling=LengthScaling.NONE)


def test_six_heads_of_64_are_no_class_limit() -> None:
    """6.1, 6.G: the full-size head takes K = 160, 200 and 500 (6·64 = 384), each class retrievable."""
    head = make_classification_head(_full(ClassificationHeadKind.RETRIEVAL), width=WIDTH, max_classes=160).double()
    query = _random(1, M, WIDTH, seed=1)
    for num_classes in (160, 200, 500):
        context, labels = _random(1, num_classes, WIDTH, seed=2), torch.arange(num_classes)[None]
        probabilities, extra = head(query, context, labels, num_classes)
        assert probabilities.shape == (1, M, num_classes) and (probabilities > 0).all()
        assert distance(probabilities, extra["read_weights"]) < 1e-15  # class n is row n


def test_with_identity_projections_retrieval_is_the_kernel_head() -> None:
    """1.2: both equal Nadaraya–Watson with kernel exp(q·k/√d), one head, no scaling, with a mask and without."""
    config = ClassificationHeadConfig(num_heads=1, head_width=WIDTH, length_scaling=LengthScaling.NONE)
    head, kernel = RetrievalClassificationHead(WIDTH, config).double(), KernelClassificationHead()
    with torch.no_grad():
        for projection in (head.query, head.key):
            projection.weight.copy_(torch.eye(WIDTH))
        head.query.bias.zero_()
    query, context, labels = _inputs()
    for real in (N, N - 2):
        mask = None if real == N else torch.arange(N).expand(B, -1) < real
        found = head(query, context, labels, K, mask)
        same = kernel(query, context, labels, K, mask)
        assert distance(same[0], found[0]) < 1e-12
        assert distance(same[1]["read_weights"], found[1]["read_weights"]) < 1e-12
        for b in range(B):
            for m in range(M):
                mass = [math.exp(float(query[b, m] @ context[b, n]) / math.sqrt(WIDTH)) for n in range(real)]
                for k in range(K):
                    share = sum(value for n, value in enumerate(mass) if labels[b, n] == k) / sum(mass)
                    assert found[0][b, m, k].item() == pytest.approx(share, abs=1e-12)


def test_slot_heads_are_a_softmax_over_the_first_slots_of_present_classes() -> None:
    """6.6: exact log softmax of the layer's outputs, without a clip, restricted to what the context holds."""
    query, context, _ = _inputs()
    labels = torch.tensor([[0, 1, 2, 0, 1, 2, 0], [0, 2, 2, 0, 0, 2, 2]])
    for kind in (ClassificationHeadKind.LINEAR, ClassificationHeadKind.MLP):
        head = _head(kind)
        logits = head.layers(40 * query)  # far apart: probabilities below any clip
        typed = _distribution(head, (40 * query, context, labels), num_classes=K)
        assert distance(typed.log_p[0], logits[0, :, :K].log_softmax(-1)) < 1e-12
        assert distance(typed.log_p[1][:, [0, 2]], logits[1][:, [0, 2]].log_softmax(-1)) < 1e-12
        assert (typed.log_p[1, :, 1] == -math.inf).all()
        assert typed.log_p[0].min() < math.log(1e-5) - 1


def test_slot_heads_refuse_more_classes_than_slots() -> None:
    """6.1, 6.6: unlike the retrieval head they have a limit; the message names both numbers."""
    for kind in (ClassificationHeadKind.LINEAR, ClassificationHeadKind.MLP):
        with pytest.raises(BadInput, match="num_classes is 6 and the head has 5 slots"):
            _head(kind)(*_inputs(), 6)


@pytest.mark.parametrize("kind", KINDS)
def test_classes_that_the_context_lacks_have_probability_zero_by_structure(kind: ClassificationHeadKind) -> None:
    """6.5: exactly 0 and minus infinity; a result of structure, not a statement about calibration."""
    query, context, _ = _inputs()
    labels, head = torch.full((B, N), 1), _head(kind)
    assert (head(query, context, labels, K)[0][..., [0, 2]] == 0).all()
    typed = _distribution(head, (query, context, labels), num_classes=K)
    assert typed.log_p.tolist() == [[[-math.inf, 0.0, -math.inf]] * M] * B
    assert typed.nll(torch.zeros(B, M)).tolist() == [[math.inf] * M] * B
    assert typed.losses(torch.zeros(B, M)).tolist() == [[0.0] * M] * B


@pytest.mark.parametrize("kind", KINDS)
def test_tasks_with_different_classes_share_a_batch(kind: ClassificationHeadKind) -> None:
    """6.5: the batch is as wide as its largest task; each task's own slice equals the task alone, the rest is 0."""
    query, context, _ = _inputs()
    labels, head = torch.tensor([[0, 1, 1, 0, 1, 1, 0], [0, 1, 2, 3, 4, 1, 0]]), _head(kind)
    together = _distribution(head, (query, context, labels), num_classes=5)
    for table, num_classes in ((0, 2), (1, 5)):
        part = slice(table, table + 1)
        alone = _distribution(head, (query[part], context[part], labels[part]), num_classes=num_classes)
        assert distance(together.log_p[part, :, :num_classes], alone.log_p) < 1e-12
        assert (together.log_p[part, :, num_classes:] == -math.inf).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_context_without_readable_labels_is_uniform_and_finite_in_its_gradients(kind: ClassificationHeadKind) -> None:
    """5.B: what label dropout may leave; every head answers, reading nothing."""
    query, context, labels = _inputs()
    mask, head = torch.tensor([[True] * N, [False] * N]), _head(kind)
    typed = _distribution(head, (query, context, labels), num_classes=K, mask=mask)
    assert distance(typed.probabilities()[1], torch.full((M, K), 1 / K, dtype=torch.float64)) < 1e-12
    assert distance(typed.probabilities()[0], torch.full((M, K), 1 / K, dtype=torch.float64)) > 1e-2
    inside = query.clone().requires_grad_()
    _distribution(head, (inside, context, labels), num_classes=K, mask=mask).losses(torch.zeros(B, M)).sum().backward()
    assert inside.grad.isfinite().all()


def test_the_log_form_is_not_applied_to_exact_log_probabilities() -> None:
    """6.0: what `read` of a linear head returns has its own type and passes unchanged, whatever the form."""
    query, context, labels = _inputs()
    head = _head(ClassificationHeadKind.LINEAR)
    memory = head.remember(context, labels, K, None)
    read = head.read(query, memory)
    for form in LogForm:
        config = dataclasses.replace(ClassificationHeadConfig(), log_form=form)
        assert log_probabilities(read, memory.present, config=config) is read
    assert not isinstance(read, Tensor)
    with pytest.raises((TypeError, AttributeError)):
        F.softmax(read, dim=-1)
