"""The retrieval head: kernel regression over context labels behind the course's interface."""

import inspect
import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from model import classification_head
from model.attention import split_heads
from model.class_distribution import ClassLogProbabilities
from model.classification_head import (
    ClassificationHeadConfig,
    ClassificationHeadKind,
    LengthScaling,
    RetrievalClassificationHead,
    log_probabilities,
    make_classification_head,
)
from model.specimens import distance, redraw
from tools.failure import BadInput, ExitCode, Failure

B, M, N, K, WIDTH = 2, 4, 7, 3, 16


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _head(
    *, num_heads: int = 2, head_width: int = 8, length_scaling: LengthScaling = LengthScaling.LOG
) -> RetrievalClassificationHead:
    config = ClassificationHeadConfig(num_heads=num_heads, head_width=head_width, length_scaling=length_scaling)
    head = RetrievalClassificationHead(WIDTH, config)
    redraw(head)
    return head.double()


def _inputs() -> tuple[Tensor, Tensor, Tensor]:
    """Query hidden states, context hidden states, context labels."""
    return _random(B, M, WIDTH, seed=1), _random(B, N, WIDTH, seed=2), torch.arange(B * N).view(B, N) % K


@pytest.mark.parametrize("kind", list(ClassificationHeadKind))
def test_the_interface_is_the_course_s(kind: ClassificationHeadKind) -> None:
    """6.0 and 5.8: the exact signature of every head; no query label."""
    head = make_classification_head(ClassificationHeadConfig(kind=kind), width=WIDTH, max_classes=5).double()
    signature = inspect.signature(type(head).forward)
    expected = ["self", "query_hidden", "context_hidden", "context_labels", "num_classes", "context_mask"]
    assert list(signature.parameters) == expected
    assert signature.parameters["context_mask"].default is None
    probabilities, extra = head(*_inputs(), K)
    assert probabilities.shape == (B, M, K)
    assert distance(probabilities.sum(-1), torch.ones(B, M)) < 1e-12
    if kind in (ClassificationHeadKind.RETRIEVAL, ClassificationHeadKind.KERNEL):
        assert list(extra) == ["read_weights"] and extra["read_weights"].shape == (B, M, N)
    else:
        assert extra == {}


@pytest.mark.parametrize("kind", list(ClassificationHeadKind))
def test_remembering_and_reading_gives_what_forward_gives(kind: ClassificationHeadKind) -> None:
    """6.0: `read` returns probabilities, or exact log-probabilities as a type of their own."""
    head = make_classification_head(ClassificationHeadConfig(kind=kind), width=WIDTH, max_classes=5).double()
    query, context, labels = _inputs()
    mask = torch.arange(N).expand(B, -1) < N - 2
    read = head.read(query, head.remember(context, labels, K, mask))
    rows = kind in (ClassificationHeadKind.RETRIEVAL, ClassificationHeadKind.KERNEL)
    assert isinstance(read, Tensor if rows else ClassLogProbabilities)
    found = read if isinstance(read, Tensor) else read.probabilities()
    assert torch.equal(found, head(query, context, labels, K, mask)[0])


def test_read_weights_sum_to_one_over_context_rows() -> None:
    """6.4, 6.A, first assertion: attention sums to 1 over the N = 7 context rows."""
    weights = _head()(*_inputs(), K)[1]["read_weights"]
    assert weights.shape == (2, 4, 7)
    assert distance(weights.sum(-1), torch.ones(B, M)) < 1e-12


def test_probabilities_sum_to_one_over_classes() -> None:
    """6.4, 6.A, second assertion: p sums to 1 over the K = 3 classes; it is the read weights' mass on each class."""
    probabilities, extra = _head()(*_inputs(), K)
    assert probabilities.shape == (2, 4, 3)
    assert distance(probabilities.sum(-1), torch.ones(B, M)) < 1e-12
    for k in range(K):
        mass = (extra["read_weights"] * (_inputs()[2] == k)[:, None]).sum(-1)
        assert distance(probabilities[..., k], mass) < 1e-12


def test_read_weights_are_not_taken_for_class_probabilities() -> None:
    """6.G: they are refused by their width; and with N = K, where both sum to 1, only p follows a context label."""
    head, config = _head(), ClassificationHeadConfig()
    query, context, labels = _inputs()
    memory = head.remember(context, labels, K, None)
    weights = head(query, context, labels, K)[1]["read_weights"]
    with pytest.raises(BadInput, match=r"probabilities of 7 classes with 3 in the task: give what .*`read` returns"):
        log_probabilities(weights, memory.present, config=config)
    before, after = (head(query, context[:, :K], torch.tensor([order] * B), K) for order in ([0, 1, 2], [0, 2, 1]))
    assert torch.equal(before[1]["read_weights"], after[1]["read_weights"])
    assert distance(before[0], after[0]) > 1e-3
    assert torch.equal(before[0][..., [0, 2, 1]], after[0])


def test_probabilities_are_the_mean_over_heads() -> None:
    """6.1 and 6.2: multi-head softmax over context rows, mean over heads; one head is the Mini teaching form."""
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
    assert distance(parts[0], parts[1]) > 1e-2
    assert distance(both(query, context, labels, K)[0], torch.stack(parts).mean(0)) < 1e-12


def test_a_single_head_is_called_mini_and_not_the_official_one() -> None:
    """6.2, 6.G: where it is made, with what the official decoder does instead."""
    text = " ".join((RetrievalClassificationHead.__doc__ or "").split())
    assert "One head is the Mini teaching form" in text and "the official decoder has 6 of width 64" in text


def test_a_bias_of_all_keys_would_change_nothing() -> None:
    """6.1: so the head has none; a decoder that has one gives the same numbers."""
    head = _head(length_scaling=LengthScaling.NONE)
    query, context, labels = _inputs()
    before = head(query, context, labels, K)[0]
    biased = torch.nn.Linear(WIDTH, 16, dtype=torch.float64)
    with torch.no_grad():
        biased.weight.copy_(head.key.weight)
    head.key = biased
    assert biased.bias.abs().max() > 0.1
    assert distance(head(query, context, labels, K)[0], before) < 1e-12


def test_logits_sharpen_with_the_logarithm_of_the_context_length() -> None:
    """6.1: each head's logits are multiplied by base + slope·log(n/128), n counting real rows."""
    head = _head()
    query, context, labels = _inputs()
    wide = torch.cat([context, context[:, :1]], dim=1), F.pad(labels, (0, 1))
    mask = torch.arange(N + 1).expand(B, -1) < N
    assert distance(head(query, *wide, K, mask)[0], head(query, context, labels, K)[0]) < 1e-12
    factor = head.scale_base + head.scale_slope * math.log(N / 128)
    plain = _head(length_scaling=LengthScaling.NONE)
    with torch.no_grad():
        for name in ("query", "key"):
            getattr(plain, name).weight.copy_(getattr(head, name).weight)
        plain.query.bias.copy_(head.query.bias)
        for part in (plain.query.weight, plain.query.bias):
            part.mul_(factor.repeat_interleave(8).view(-1, *[1] * (part.dim() - 1)))
    assert distance(plain(query, context, labels, K)[0], head(query, context, labels, K)[0]) < 1e-12


def test_queries_scaled_by_qassmax_are_those_of_its_module() -> None:
    """5.10 at the head: a fresh one changes nothing; a random one equals scaled queries, n counting real rows."""
    head, plain = (_head(length_scaling=scaling) for scaling in (LengthScaling.QASSMAX, LengthScaling.NONE))
    query, context, labels = _inputs()
    with torch.no_grad():
        for name in ("query", "key"):
            getattr(plain, name).weight.copy_(getattr(head, name).weight)
        plain.query.bias.copy_(head.query.bias)
    mask = torch.tensor([[True] * 5 + [False] * 2, [True] * N])
    found = head(query, context, labels, K, mask)[0]
    assert distance(found, plain(query, context, labels, K, mask)[0]) > 1e-3
    memory = head.remember(context, labels, K, mask)
    scaled = head.scaling(split_heads(head.query(query), 2), torch.tensor([5, 7]))
    logits = (scaled @ memory.keys.mT / math.sqrt(8)).masked_fill(~mask[:, None, None], -math.inf)
    assert distance(found, logits.softmax(-1).mean(1) @ F.one_hot(labels, K).double()) < 1e-12
    fresh = RetrievalClassificationHead(WIDTH, head.config).double()
    with torch.no_grad():
        for name in ("query", "key"):
            getattr(fresh, name).weight.copy_(getattr(plain, name).weight)
        fresh.query.bias.copy_(plain.query.bias)
    assert distance(fresh(query, context, labels, K)[0], plain(query, context, labels, K)[0]) < 1e-12


def test_without_length_scaling_there_is_no_parameter_for_it() -> None:
    """6.1: the published decoder's two projections and nothing else."""
    assert set(_head(length_scaling=LengthScaling.NONE).state_dict()) == {"query.weight", "query.bias", "key.weight"}


def test_context_order_does_not_matter() -> None:
    """1.4: rows carry no position; read weights move with their rows."""
    query, context, labels = _inputs()
    order = torch.tensor([6, 3, 0, 5, 1, 4, 2])
    before, after = _head()(query, context, labels, K), _head()(query, context[:, order], labels[:, order], K)
    assert distance(after[0], before[0]) < 1e-14
    assert distance(after[1]["read_weights"], before[1]["read_weights"][..., order]) < 1e-14


def test_padded_context_rows_have_weight_exactly_zero() -> None:
    """5.7: and a table without a readable label gives zeros instead of NaN, which become the uniform distribution."""
    query, context, labels = _inputs()
    mask = torch.tensor([[True] * 5 + [False] * 2, [False] * N])
    head = _head()
    memory = head.remember(context, labels, K, mask)
    probabilities = head.read(query, memory)
    assert (head(query[:1], context[:1], labels[:1], K, mask[:1])[1]["read_weights"][0, :, 5:] == 0).all()
    assert (probabilities[1] == 0).all()
    probabilities.square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in head.parameters())
    alone = _head()(query[:1], context[:1, :5], labels[:1, :5], K)[0]
    assert distance(probabilities[:1], alone) < 1e-12
    typed = log_probabilities(probabilities, memory.present, config=head.config)
    assert distance(typed.probabilities()[1], torch.full((M, K), 1 / K, dtype=torch.float64)) < 1e-12


def test_reading_stays_in_fp32_under_autocast() -> None:
    """The softmax over context rows and its sums are an fp32 island."""
    head = _head().float()
    query, context, labels = _inputs()
    with torch.autocast("cpu", torch.bfloat16):
        probabilities, extra = head(query.float(), context.float(), labels, K)
    assert probabilities.dtype is torch.float32
    assert distance(probabilities.sum(-1), torch.ones(B, M)) < 1e-6
    assert distance(extra["read_weights"].sum(-1), torch.ones(B, M)) < 1e-6


@pytest.mark.parametrize("scaling", list(LengthScaling))
def test_bf16_hidden_states_are_read_by_an_fp32_softmax(scaling: LengthScaling) -> None:
    """Half precision is left before the logits: sums hold to fp32 rounding, and long contexts do not collapse."""
    head, rows = _head(length_scaling=scaling), 3000
    redraw(head, gain=1.0)  # weights of their initial size
    head = head.bfloat16()
    context, labels = _random(1, rows, WIDTH, seed=3).bfloat16(), torch.arange(rows)[None] % K
    probabilities, extra = head(_inputs()[0][:1].bfloat16(), context, labels, K)
    assert probabilities.dtype is extra["read_weights"].dtype is torch.float32
    assert distance(probabilities.sum(-1), torch.ones(1, M)) < 1e-5
    assert distance(extra["read_weights"].sum(-1), torch.ones(1, M)) < 1e-5
    wide = head.double()(_inputs()[0][:1].bfloat16().double(), context.double(), labels, K)[0]
    assert distance(probabilities.double(), wide) < 2e-2


def test_the_factor_of_a_long_context_is_not_rounded_to_half_precision() -> None:
    """6.1: base + slope·log(n/128) is taken in fp32 where the parameters are bf16: log n there has two digits."""
    head, rows = _head().bfloat16(), 3000
    query, context = _inputs()[0][:1].bfloat16(), _random(1, rows, WIDTH, seed=3).bfloat16()
    labels = torch.arange(rows)[None] % K
    factor = head.scale_base.float() + head.scale_slope.float() * math.log(rows / 128)
    scaled = split_heads(head.query(query).float(), 2) * factor[:, None, None]
    logits = scaled @ split_heads(head.key(context).float(), 2).mT / math.sqrt(8)
    expected = logits.softmax(-1).mean(1) @ F.one_hot(labels, K).float()
    assert distance(head(query, context, labels, K)[0], expected) < 1e-5


def test_labels_of_hidden_rows_are_not_read() -> None:
    """5.7: whatever stands there, a missing value or a class that the task has not."""
    query, context, labels = _inputs()
    mask, wild = torch.arange(N).expand(B, -1) < N - 2, labels.double()
    wild[:, -2:] = torch.tensor([math.nan, 99.0])
    assert torch.equal(_head()(query, context, wild, K, mask)[0], _head()(query, context, labels, K, mask)[0])


def test_queries_read_in_chunks_get_the_same_answers_and_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """5.9 at the head: however many queries are taken at a time, with a mask and without."""
    query, context, labels = _inputs()
    for mask in (None, torch.arange(N).expand(B, -1) < N - 2):
        found = []
        for limit in (10_000_000, 2 * B * 2 * N, 1):
            monkeypatch.setattr(classification_head, "LOGITS_PER_CHUNK", limit)
            head = _head()
            inputs = [part.clone().requires_grad_() for part in (query, context)]
            probabilities = head.read(inputs[0], head.remember(inputs[1], labels, K, mask))
            probabilities.square().sum().backward()
            weights = head(*inputs, labels, K, mask)[1]["read_weights"]
            leaves = [*inputs, *head.parameters()]
            found.append([probabilities, weights, *[leaf.grad for leaf in leaves]])
        for chunked in found[1:]:
            assert all(distance(part, whole) < 1e-12 for part, whole in zip(chunked, found[0], strict=True))


@pytest.mark.parametrize("wrong", [float(K), -1.0, math.nan])
def test_labels_outside_the_classes_are_refused(wrong: float) -> None:
    """6.5, 6.G: a one-hot width too small for the labels; the message names the label and the number of classes."""
    labels = torch.zeros(B, N)
    labels[1, 2] = wrong
    with pytest.raises(ValueError, match=f"label is {wrong:g} with 3 classes") as caught:
        _head()(_inputs()[0], _inputs()[1], labels, K)
    assert caught.value.code is ExitCode.OVER_LIMIT


def test_bad_rows_and_masks_are_refused() -> None:
    """Each a `ValueError` of one line that names argument and value."""
    query, context, labels = _inputs()
    mask = torch.ones(B, N, dtype=torch.bool)
    blind = mask.clone()
    blind[1] = False
    cases = {
        "context has 0 rows": (query, context[:, :0], labels[:, :0], None),
        "query has 0 rows": (query[:, :0], context, labels, None),
        "context_mask has dtype torch.float32": (query, context, labels, mask.float()),
        r"context_mask has shape \(2, 6\): give \(2, 7\)": (query, context, labels, mask[:, 1:]),
        "context_mask hides all rows of table 1": (query, context, labels, blind),
        r"context_labels has shape \(1, 7\): give \(2, 7\)": (query, context, labels[:1], None),
    }
    for message, (*parts, wrong) in cases.items():
        with pytest.raises(BadInput, match=message) as caught:
            _head()(*parts, K, wrong)
        assert isinstance(caught.value, ValueError) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"), [("num_heads", 0), ("head_width", -1), ("clip", 0.0), ("mixing", 1.0), ("mixing", math.nan)]
)
def test_sizes_and_shares_that_mean_nothing_are_refused(field: str, value: float) -> None:
    """The message names the field and its value."""
    with pytest.raises(Failure, match=rf"classification\.{field} is {value}: give") as caught:
        ClassificationHeadConfig(**{field: value})
    assert caught.value.code is ExitCode.BAD_FLAG
