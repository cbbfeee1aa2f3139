"""What a classification head says of a query: a distribution over task-local classes, as a type of its own (seed 6.0).

Every distribution is over the classes that the context holds. A class that it lacks has probability 0 by structure: a
result of structure, not a statement about calibration (seed 6.5).
"""

import dataclasses
import enum

import torch
from torch import Tensor
from torch.nn import functional as F

from model.attention import at_least_fp32
from tools.failure import BadInput, ExitCode

_TABPFN3_OFFSET = 3e-5


class LogForm(enum.StrEnum):
    """How retrieved probabilities become log-probabilities (each is normalised over the classes present afterwards)."""

    COURSE = "course"  # log(max(p, clip)): no gradient to a class whose p is below the clip
    TABPFN3 = "tabpfn3"  # log(max(p, clip) + 3e-5), the published decoder's; it needs clip = 1e-5
    MIXED = "mixed"  # log((1 - ε)p + ε/K), K classes present: a gradient however small p is


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

    def losses(self, labels: Tensor, *, smoothing: float = 0.0) -> Tensor:
        """What training minimises [B, M], in nats: cross-entropy with labels [B, M], which is the NLL (seed 1.5).

        With smoothing s the target distribution is (1 - s)·onehot + s/K over the K classes present (Szegedy et al.
        2016, section 7, there over all classes). The best prediction then pays NLL log(1 / (1 - s + s/K)) where labels
        are certain. A query whose class the context lacks is masked: its loss is 0.

        Raises:
            BadInput: BAD_FLAG for smoothing outside 0..1.
        """
        if not 0 <= smoothing < 1:
            raise BadInput(ExitCode.BAD_FLAG, f"smoothing is {smoothing}: give 0 or more, below 1")
        losses = self.nll(labels)
        absent = losses.isinf()
        if smoothing:
            missing = self.log_p.isneginf()
            mean = self.log_p.masked_fill(missing, 0.0).sum(-1) / (~missing).sum(-1)
            losses = (1 - smoothing) * losses - smoothing * mean
        return losses.masked_fill(absent, 0.0)


def present_classes(context_labels: Tensor, num_classes: int, *, context_mask: Tensor | None = None) -> Tensor:
    """[B, K] bool: which classes the real rows of context_labels [B, N] hold."""
    onehot = F.one_hot(context_labels.long(), num_classes).bool()
    if context_mask is not None:
        onehot = onehot & context_mask[:, :, None]
    return onehot.any(1)


def softmax_over_present(logits: Tensor, present: Tensor) -> ClassLogProbabilities:
    """log softmax of logits [B, M, K] over the classes present [B, K] (over all K where a table has none)."""
    return ClassLogProbabilities(log_p=torch.log_softmax(logits.masked_fill(~_allowed(present), -torch.inf), dim=-1))


def logarithm(probabilities: Tensor, present: Tensor, *, form: LogForm, clip: float, mixing: float) -> Tensor:
    """Unnormalised log-probabilities [B, M, K] of probabilities [B, M, K].

    Args:
        probabilities: 0 for classes that are not present.
        present: [B, K] bool.
        form: of the logarithm.
        clip: probabilities are raised to it (course and tabpfn3).
        mixing: ε of the mixed form.
    """
    probabilities = at_least_fp32(probabilities)
    if form is LogForm.MIXED:
        share = mixing / _allowed(present).sum(-1, keepdim=True).to(probabilities.dtype)
        return ((1 - mixing) * probabilities + share).log()
    clipped = probabilities.clamp_min(clip)
    return (clipped + _TABPFN3_OFFSET).log() if form is LogForm.TABPFN3 else clipped.log()


def _allowed(present: Tensor) -> Tensor:
    """[B, 1, K] classes that may have probability: those present, or all where a table has none."""
    return (present | ~present.any(-1, keepdim=True))[:, None, :]
