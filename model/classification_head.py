"""Classification read-out: a query's class distribution is a soft retrieval of context labels (seeds 6.0, 6.1).

p_m = mean over heads of Σ_n softmax_n(q_m·k_n / √D_h) onehot(y_n), then logits = log(clip(p)). The number of parameters
does not depend on K; a class that the context does not hold has probability exactly 0 by structure, which says nothing
about calibration. Read weights are rows read by a prediction mechanism, neither causal neighbours nor an explanation.
"""

import dataclasses
import enum

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.attention import at_least_fp32, attention_weights, key_bias, split_heads
from model.input_checks import check_labels


class ClassificationHeadKind(enum.StrEnum):
    """How hidden states become class probabilities."""

    RETRIEVAL = "retrieval"


class LogForm(enum.StrEnum):
    """How probabilities become log-probabilities."""

    COURSE = "course"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassificationHeadConfig:
    """Form and sizes of the classification head."""

    kind: ClassificationHeadKind = ClassificationHeadKind.RETRIEVAL
    """Which head."""
    num_heads: int = 4
    """H of the retrieval head; the full size has 6 (with head_width 64; "6×64" is no class limit)."""
    head_width: int = 32
    """D_h of the retrieval head."""
    log_form: LogForm = LogForm.COURSE
    """How probabilities become log-probabilities."""
    clip: float = 1e-5
    """Probabilities below this are raised to it before the logarithm (course form)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassLogProbabilities:
    """A distribution over the classes of each query, as logarithms: never logits, never probabilities.

    Args:
        log_p: [B, M, K] fp32 or fp64; Σ_k exp(log_p) = 1; minus infinity for a class that the context does not hold.
    """

    log_p: Tensor

    def probabilities(self) -> Tensor:
        """[B, M, K], summing to 1 over classes."""
        return self.log_p.exp()

    def nll(self, labels: Tensor) -> Tensor:
        """-log p of labels [B, M] in nats; infinite where the class is not in the context."""
        return -self.log_p.gather(-1, labels.long()[..., None])[..., 0]


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


def present_classes(context_labels: Tensor, num_classes: int, *, context_mask: Tensor | None = None) -> Tensor:
    """[B, K] bool: which classes the real rows of context_labels [B, N] hold."""
    onehot = F.one_hot(context_labels.long(), num_classes).bool()
    if context_mask is not None:
        onehot = onehot & context_mask[:, :, None]
    return onehot.any(1)


def log_probabilities(
    probabilities: Tensor, present: Tensor, *, config: ClassificationHeadConfig
) -> ClassLogProbabilities:
    """log(clip(p)), normalised over the classes present in the context (over all K where there is no context).

    Args:
        probabilities: [B, M, K].
        present: [B, K] bool.
        config: names the form and its clip.
    """
    allowed = (present | ~present.any(-1, keepdim=True))[:, None, :]
    logits = at_least_fp32(probabilities).clamp_min(config.clip).log().masked_fill(~allowed, -torch.inf)
    return ClassLogProbabilities(log_p=torch.log_softmax(logits, dim=-1))


class RetrievalClassificationHead(nn.Module):
    """Multi-head retrieval over context rows (TabPFN-3's many-class decoder, with a learned length scale).

    Attention over n rows spreads its mass as n grows, so each head's logits are multiplied by base + slope·log(n/128).
    """

    def __init__(self, width: int, config: ClassificationHeadConfig) -> None:
        super().__init__()
        self.config = config
        inner = config.num_heads * config.head_width
        self.query = nn.Linear(width, inner)
        self.key = nn.Linear(width, inner, bias=False)  # a bias of all keys cancels in the softmax
        self.scale_base = nn.Parameter(torch.ones(config.num_heads))
        self.scale_slope = nn.Parameter(torch.full((config.num_heads,), 0.1))

    def forward(
        self,
        query_hidden: Tensor,
        context_hidden: Tensor,
        context_labels: Tensor,
        num_classes: int,
        context_mask: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Retrieves context labels (the order of arguments is the course's).

        Args:
            query_hidden: [B, M, D].
            context_hidden: [B, N, D].
            context_labels: [B, N] task-local class ids 0..num_classes-1.
            num_classes: K, width of the one-hot labels.
            context_mask: [B, N] bool, True where a row is real.

        Returns:
            probabilities [B, M, K] and {"read_weights": [B, M, N]}, the mean over heads; both sum to 1 (seed 6.4), and
            are 0 for a table without real context rows.

        Raises:
            BadInput: OVER_LIMIT for a label outside 0..num_classes-1.
        """
        memory = self.remember(context_hidden, context_labels, num_classes, context_mask)
        weights = self._weights(query_hidden, memory)
        return self._retrieved(weights, memory), {"read_weights": weights}

    # style: the order of arguments is the course's
    def remember(
        self, context_hidden: Tensor, context_labels: Tensor, num_classes: int, context_mask: Tensor | None
    ) -> LabelMemory:
        """What queries read; arguments as in `forward`."""
        labels = context_labels if context_mask is None else torch.where(context_mask, context_labels, 0.0)
        check_labels(labels, num_classes)
        key = split_heads(at_least_fp32(self.key(context_hidden)), self.config.num_heads)
        present = present_classes(labels, num_classes, context_mask=context_mask)
        return LabelMemory(keys=key, labels=labels, mask=context_mask, present=present)

    def read(self, query_hidden: Tensor, memory: LabelMemory) -> Tensor:
        """The probabilities of `forward` [B, M, K]."""
        return self._retrieved(self._weights(query_hidden, memory), memory)

    def _weights(self, query_hidden: Tensor, memory: LabelMemory) -> Tensor:
        query = split_heads(at_least_fp32(self.query(query_hidden)), self.config.num_heads)
        with torch.autocast(query.device.type, enabled=False):
            query = query * self._scale(memory.labels, memory.mask).to(query.dtype)
            return attention_weights(query, memory.keys, bias=key_bias(memory.mask)).mean(1)

    def _retrieved(self, weights: Tensor, memory: LabelMemory) -> Tensor:
        with torch.autocast(weights.device.type, enabled=False):
            return weights @ F.one_hot(memory.labels.long(), memory.present.shape[-1]).to(weights.dtype)

    def _scale(self, context_labels: Tensor, context_mask: Tensor | None) -> Tensor:
        """[B or 1, H, 1, 1] factor of the logits."""
        if context_mask is None:
            count = torch.full((1,), context_labels.shape[1], device=context_labels.device)
        else:
            count = context_mask.sum(1)
        length = torch.log(count.clamp_min(1).to(self.scale_base.dtype) / 128.0)[:, None]
        return (self.scale_base + self.scale_slope * length)[:, :, None, None]


def make_classification_head(config: ClassificationHeadConfig, *, width: int, max_classes: int) -> nn.Module:
    """The head that a configuration names, for hidden states of `width`; its classes are at most `max_classes`."""
    return RetrievalClassificationHead(width, config)
