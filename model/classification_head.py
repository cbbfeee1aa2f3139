"""Classification read-out: hidden states of labelled context rows and of queries → class distributions (6.0, 6.1, 6.6).

The main head is a soft retrieval of context labels: p_m = mean over heads of Σ_n softmax_n(q_m·k_n / √D_h) onehot(y_n),
then log-probabilities in one of three forms. Its number of parameters does not depend on K. Read weights are rows read
by a prediction mechanism, neither causal neighbours nor an explanation. Controls: Nadaraya–Watson on the hidden states,
and linear and MLP heads, whose outputs belong to class slots.
"""

import dataclasses
import enum
from collections.abc import Callable
from typing import assert_never

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from model import input_checks
from model.attention import at_least_fp32, attention_weights, key_bias, mlp, split_heads
from model.class_distribution import (
    ClassLogProbabilities,
    LogForm,
    logarithm,
    present_classes,
    softmax_over_present,
)
from model.length_scaling import QASSMax
from model.precision import full_precision
from tools.failure import BadInput, ExitCode, Failure

# Retrieval computes this many logits at a time (40 MB in fp32), so that [B, H, M, N] is never held for large inputs.
LOGITS_PER_CHUNK = 10_000_000


class ClassificationHeadKind(enum.StrEnum):
    """How hidden states become class probabilities."""

    RETRIEVAL = "retrieval"  # of one head: a Mini teaching form; the official decoder takes the mean over 6 heads
    KERNEL = "kernel"  # Nadaraya–Watson on the hidden states, without parameters
    LINEAR = "linear"
    MLP = "mlp"


class LengthScaling(enum.StrEnum):
    """What keeps the retrieval's mass together as the context grows."""

    NONE = "none"
    LOG = "log"  # each head's logits × (base + slope·log(n/128)), both learned, n labelled context rows
    QASSMAX = "qassmax"  # queries scaled by model/length_scaling.py


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassificationHeadConfig:
    """Form and sizes of the classification head."""

    kind: ClassificationHeadKind = ClassificationHeadKind.RETRIEVAL
    """Which head."""
    num_heads: int = 4
    """H of the retrieval head; the full size has 6 (with head_width 64; "6×64" is no class limit)."""
    head_width: int = 32
    """D_h of the retrieval head."""
    length_scaling: LengthScaling = LengthScaling.LOG
    """What keeps the retrieval head's mass together as the context grows."""
    log_form: LogForm = LogForm.COURSE
    """How retrieved probabilities become log-probabilities; linear and MLP heads have exact ones."""
    clip: float = 1e-5
    """Probabilities below this are raised to it before the logarithm (course and tabpfn3 forms)."""
    mixing: float = 1e-3
    """ε of the mixed form: this share of the mass is spread over the classes present."""

    def __post_init__(self) -> None:
        """Refuses sizes and shares that mean nothing.

        Raises:
            Failure: BAD_FLAG, naming field and value.
        """
        for name, size in (("num_heads", self.num_heads), ("head_width", self.head_width)):
            if size < 1:
                raise Failure(ExitCode.BAD_FLAG, f"classification.{name} is {size}: give 1 or more")
        for name, share in (("clip", self.clip), ("mixing", self.mixing)):
            if not 0 < share < 1:
                raise Failure(ExitCode.BAD_FLAG, f"classification.{name} is {share}: give a number between 0 and 1")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelMemory:
    """What a classification head keeps of a context.

    Args:
        keys: [B, H, N, D_h] of heads that read rows; [B, 0, N, 0] of others.
        labels: [B, N] task-local class ids.
        mask: [B, N] bool, True where a row is read, or None when all are.
        present: [B, K] bool, the classes that it holds.
    """

    keys: Tensor
    labels: Tensor
    mask: Tensor | None
    present: Tensor


def log_probabilities(
    probabilities: Tensor | ClassLogProbabilities, present: Tensor, *, config: ClassificationHeadConfig
) -> ClassLogProbabilities:
    """What a head's `read` gave, as log-probabilities over the classes present (over all K where there is no context).

    Args:
        probabilities: [B, M, K], to be brought into config.log_form; or what already is exact, which is returned.
        present: [B, K] bool.
        config: names the form, its clip and its mixing.

    Raises:
        BadInput: OVER_LIMIT where the last dimension is not K, as that of read weights, which also sum to 1.
    """
    if isinstance(probabilities, ClassLogProbabilities):
        return probabilities
    width, num_classes = probabilities.shape[-1], present.shape[-1]
    if width != num_classes:
        mend = "give what the head's `read` returns, not its read weights"
        raise BadInput(ExitCode.OVER_LIMIT, f"probabilities of {width} classes with {num_classes} in the task: {mend}")
    logits = logarithm(probabilities, present, form=config.log_form, clip=config.clip, mixing=config.mixing)
    return softmax_over_present(logits, present)


class ClassificationHead(nn.Module):
    """A head: `forward` is the course's interface; `remember` once and `read` often is the fast path."""

    def forward(
        self,
        query_hidden: Tensor,
        context_hidden: Tensor,
        context_labels: Tensor,
        num_classes: int,
        context_mask: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Class probabilities of queries (the order of arguments is the course's).

        Args:
            query_hidden: [B, M, D].
            context_hidden: [B, N, D].
            context_labels: [B, N] task-local class ids 0..num_classes-1.
            num_classes: K, width of the one-hot labels; of several tasks, the largest.
            context_mask: [B, N] bool, True where a row is real.

        Returns:
            probabilities [B, M, K], summing to 1 over classes; and {"read_weights": [B, M, N]}, the mean over heads,
            summing to 1 over context rows (seed 6.4), or {} from heads that read no rows.

        Raises:
            BadInput: TABLE_EMPTY for N = 0 or M = 0; BAD_MASK for a mask of another shape or dtype, or one that hides
                a whole context; TABLE_LABELS for labels of another shape; OVER_LIMIT for a label outside
                0..num_classes-1, or more classes than a linear or MLP head has slots.
        """
        rows = (context_hidden.shape[0], context_hidden.shape[1])
        input_checks.check_rows(rows[1], query_hidden.shape[1])
        input_checks.check_context_mask(context_mask, shape=rows)
        if tuple(context_labels.shape) != rows:
            what = f"context_labels has shape {tuple(context_labels.shape)}"
            raise BadInput(ExitCode.TABLE_LABELS, f"{what}: give {rows}, one label for each row")
        return self._answer(query_hidden, self.remember(context_hidden, context_labels, num_classes, context_mask))

    # style: the order of arguments is the course's
    def remember(
        self, context_hidden: Tensor, context_labels: Tensor, num_classes: int, context_mask: Tensor | None
    ) -> LabelMemory:
        """What queries read; arguments as in `forward`, but the mask may hide a whole table: it then has no classes."""
        labels = context_labels if context_mask is None else torch.where(context_mask, context_labels, 0.0)
        input_checks.check_labels(labels, num_classes)
        present = present_classes(labels, num_classes, context_mask=context_mask)
        if context_mask is not None:  # a key of weight 0 must be finite
            context_hidden = torch.where(context_mask[:, :, None], context_hidden, 0.0)
        return LabelMemory(keys=self._keys(context_hidden), labels=labels, mask=context_mask, present=present)

    def read(self, query_hidden: Tensor, memory: LabelMemory) -> Tensor | ClassLogProbabilities:
        """Of queries [B, M, D]: probabilities [B, M, K], or exact log-probabilities, which are a type of their own."""
        raise NotImplementedError

    def _answer(self, query_hidden: Tensor, memory: LabelMemory) -> tuple[Tensor, dict[str, Tensor]]:
        raise NotImplementedError

    def _keys(self, context_hidden: Tensor) -> Tensor:
        raise NotImplementedError


class RowReadingHead(ClassificationHead):
    """A head whose probabilities are the read weights' mass on each class: equivariant in the classes (seed 6.3)."""

    def read(self, query_hidden: Tensor, memory: LabelMemory) -> Tensor:
        """Probabilities [B, M, K]; 0 for a table of which no row is read.

        Queries are taken in chunks of `LOGITS_PER_CHUNK` logits. Where there are several and gradients are wanted, each
        is computed again in the backward pass, so that [B, H, M, N] is not held there either.
        """
        query = self._queries(query_hidden, memory)
        values = _onehot(memory).to(query.dtype)
        return _by_chunks(lambda part: _retrieved(_mean_weights(part, memory), values), query=query, memory=memory)

    def _answer(self, query_hidden: Tensor, memory: LabelMemory) -> tuple[Tensor, dict[str, Tensor]]:
        query = self._queries(query_hidden, memory)
        weights = _by_chunks(lambda part: _mean_weights(part, memory), query=query, memory=memory)
        return _retrieved(weights, _onehot(memory).to(query.dtype)), {"read_weights": weights}

    def _queries(self, query_hidden: Tensor, memory: LabelMemory) -> Tensor:
        """[B, H, M, D_h] in fp32 or wider."""
        raise NotImplementedError


class RetrievalClassificationHead(RowReadingHead):
    """Multi-head retrieval over context rows: TabPFN-3's many-class decoder, with length scaling where it is wanted.

    Attention over n rows spreads its mass as n grows; `LengthScaling` says what is done about it. One head is the
    Mini teaching form (seed 6.2); the official decoder has 6 of width 64 and no length scaling.
    """

    def __init__(self, width: int, config: ClassificationHeadConfig) -> None:
        super().__init__()
        self.config = config
        inner = config.num_heads * config.head_width
        self.query = nn.Linear(width, inner)
        self.key = nn.Linear(width, inner, bias=False)  # a bias of all keys cancels in the softmax
        if config.length_scaling is LengthScaling.LOG:
            self.scale_base = nn.Parameter(torch.ones(config.num_heads))
            self.scale_slope = nn.Parameter(torch.full((config.num_heads,), 0.1))
        elif config.length_scaling is LengthScaling.QASSMAX:
            self.scaling = QASSMax(num_heads=config.num_heads, head_width=config.head_width)

    def _keys(self, context_hidden: Tensor) -> Tensor:
        return split_heads(at_least_fp32(self.key(context_hidden)), self.config.num_heads)

    def _queries(self, query_hidden: Tensor, memory: LabelMemory) -> Tensor:
        query = split_heads(at_least_fp32(self.query(query_hidden)), self.config.num_heads)
        with full_precision(query.device):
            match self.config.length_scaling:
                case LengthScaling.NONE:
                    return query
                case LengthScaling.LOG:
                    return query * self._factor(memory).to(query.dtype)
                case LengthScaling.QASSMAX:
                    return self.scaling(query, _row_count(memory))
                case unknown:
                    assert_never(unknown)

    def _factor(self, memory: LabelMemory) -> Tensor:
        """[B or 1, H, 1, 1] factor of the logits."""
        base, slope = at_least_fp32(self.scale_base), at_least_fp32(self.scale_slope)
        length = torch.log(_row_count(memory).clamp_min(1).to(base.dtype) / 128.0)[:, None]
        return (base + slope * length)[:, :, None, None]


class KernelClassificationHead(RowReadingHead):
    """Nadaraya–Watson estimator on the hidden states, kernel exp(q·k/√D): retrieval with identity projections (1.2)."""

    def _keys(self, context_hidden: Tensor) -> Tensor:
        return at_least_fp32(context_hidden)[:, None]

    def _queries(self, query_hidden: Tensor, memory: LabelMemory) -> Tensor:
        return at_least_fp32(query_hidden)[:, None]


class SlotClassificationHead(ClassificationHead):
    """A control that maps a query's hidden state to class slots: not equivariant, and as wide as K_max (seed 6.6).

    The softmax is over the slots of classes that the context holds, and exact: there is no clip.
    """

    def __init__(self, layers: nn.Module, max_classes: int) -> None:
        super().__init__()
        self.layers = layers
        self.max_classes = max_classes

    # style: the order of arguments is the course's
    def remember(
        self, context_hidden: Tensor, context_labels: Tensor, num_classes: int, context_mask: Tensor | None
    ) -> LabelMemory:
        """Which classes the context holds; its hidden states are not kept.

        Raises:
            BadInput: OVER_LIMIT for more classes than slots, or a label outside 0..num_classes-1.
        """
        if num_classes > self.max_classes:
            what = f"num_classes is {num_classes} and the head has {self.max_classes} slots"
            raise BadInput(ExitCode.OVER_LIMIT, f"{what}: merge some classes, or take the retrieval head")
        return super().remember(context_hidden, context_labels, num_classes, context_mask)

    def read(self, query_hidden: Tensor, memory: LabelMemory) -> ClassLogProbabilities:
        """Exact log-probabilities [B, M, K] over the classes present; a table that has none gets the uniform one."""
        logits = at_least_fp32(self.layers(query_hidden))[..., : memory.present.shape[-1]]
        known = memory.present.any(-1)[:, None, None]
        return softmax_over_present(torch.where(known, logits, 0.0), memory.present)

    def _answer(self, query_hidden: Tensor, memory: LabelMemory) -> tuple[Tensor, dict[str, Tensor]]:
        return self.read(query_hidden, memory).probabilities(), {}

    def _keys(self, context_hidden: Tensor) -> Tensor:
        batch, rows, _ = context_hidden.shape
        return context_hidden.new_empty(batch, 0, rows, 0)


class LinearClassificationHead(SlotClassificationHead):
    """Linear D → K_max, then a softmax over the classes present."""

    def __init__(self, width: int, max_classes: int) -> None:
        super().__init__(nn.Linear(width, max_classes), max_classes)


class MLPClassificationHead(SlotClassificationHead):
    """MLP D → 2D → K_max, then a softmax over the classes present."""

    def __init__(self, width: int, max_classes: int) -> None:
        super().__init__(mlp(width, 2 * width, max_classes), max_classes)


def make_classification_head(config: ClassificationHeadConfig, *, width: int, max_classes: int) -> ClassificationHead:
    """The head that a configuration names, for hidden states of `width`; slots for `max_classes` where it has slots."""
    match config.kind:
        case ClassificationHeadKind.RETRIEVAL:
            return RetrievalClassificationHead(width, config)
        case ClassificationHeadKind.KERNEL:
            return KernelClassificationHead()
        case ClassificationHeadKind.LINEAR:
            return LinearClassificationHead(width, max_classes)
        case ClassificationHeadKind.MLP:
            return MLPClassificationHead(width, max_classes)
        case unknown:
            assert_never(unknown)


def _mean_weights(query: Tensor, memory: LabelMemory) -> Tensor:
    """[B, M, N] read weights of queries [B, H, M, D_h], in fp32 or wider: the mean over heads."""
    with full_precision(query.device):
        return attention_weights(query, memory.keys, bias=key_bias(memory.mask)).mean(1)


def _onehot(memory: LabelMemory) -> Tensor:
    """[B, N, K] what is retrieved: the labels."""
    return F.one_hot(memory.labels.long(), memory.present.shape[-1])


def _retrieved(weights: Tensor, values: Tensor) -> Tensor:
    """[B, M, K] the mass of weights [B, M, N] on the rows of each class."""
    with full_precision(weights.device):
        return weights @ values


def _by_chunks(compute: Callable[[Tensor], Tensor], *, query: Tensor, memory: LabelMemory) -> Tensor:
    """compute(query [B, H, M, D_h]) [B, M, ·], for as many queries at a time as `LOGITS_PER_CHUNK` allows."""
    batch, heads, rows, _ = memory.keys.shape
    parts = query.split(max(1, LOGITS_PER_CHUNK // max(1, batch * heads * rows)), dim=2)
    if len(parts) == 1:
        return compute(query)
    if torch.is_grad_enabled():
        kept = [checkpoint(compute, part, use_reentrant=False, preserve_rng_state=False) for part in parts]
    else:
        kept = [compute(part) for part in parts]
    return torch.cat(kept, dim=1)


def _row_count(memory: LabelMemory) -> Tensor:
    """[B or 1] how many rows are read."""
    if memory.mask is None:
        return torch.full((1,), memory.labels.shape[1], device=memory.labels.device)
    return memory.mask.sum(1)
