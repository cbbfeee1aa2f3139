"""Mutants of stages: statistics over queries, stale memory, randomness, shifted rows, wrong read-outs (seed 5.E).

Each function takes a clean subject and returns one with the mistake.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from eval.mutant_masks import with_network
from eval.subject import Subject
from model.cell_embedding import ContextStatistics, context_statistics
from model.class_distribution import ClassLogProbabilities
from model.icl_transformer import ContextView, ICLAttention, ICLBlock, ICLTransformer
from model.label_injection import LabelInjection
from model.network import Network, NetworkInputs


class _AllRowStatistics(Network):
    def statistics(self, inputs: NetworkInputs) -> ContextStatistics:
        masks = [
            torch.ones(x.shape[:2], dtype=torch.bool) if mask is None else mask
            for mask, x in ((inputs.context_mask, inputs.x_context), (inputs.query_mask, inputs.x_query))
        ]
        return context_statistics(torch.cat([inputs.x_context, inputs.x_query], dim=1), torch.cat(masks, dim=1))


def normalise_with_query(subject: Subject) -> Subject:
    """Column statistics over context and query rows."""

    def change(network: Network) -> None:
        network.__class__ = _AllRowStatistics

    return with_network(subject, change)


class _StaleKeys(ICLAttention):
    """Keys and values are kept as long as the shape fits."""

    kept: tuple[Tensor, Tensor] | None = None

    def keys_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        found = super().keys_values(x)
        if self.kept is None or self.kept[0].shape != found[0].shape:
            self.kept = found
        return self.kept


def stale_label_in_cache(subject: Subject) -> Subject:
    """Keys and values of an earlier context are kept."""

    def change(network: Network) -> None:
        for block in network.icl.blocks:
            block.attention.__class__ = _StaleKeys

    return with_network(subject, change)


class _StaleStatistics(Network):
    kept: ContextStatistics | None = None

    def statistics(self, inputs: NetworkInputs) -> ContextStatistics:
        found = super().statistics(inputs)
        if self.kept is None or self.kept.sorted_values.shape != found.sorted_values.shape:
            self.kept = found
        return self.kept


def statistics_of_previous_table(subject: Subject) -> Subject:
    """Column statistics of an earlier table are kept."""

    def change(network: Network) -> None:
        network.__class__ = _StaleStatistics

    return with_network(subject, change)


class _DroppingBlock(ICLBlock):
    def forward(self, z: Tensor, *, view: ContextView) -> Tensor:
        return F.dropout(super().forward(z, view=view), p=0.1, training=True)


def dropout_at_prediction(subject: Subject) -> Subject:
    """Dropout stays on at prediction."""

    def change(network: Network) -> None:
        for block in network.icl.blocks:
            block.__class__ = _DroppingBlock

    return with_network(subject, change)


class _ClassForUnknown(LabelInjection):
    def forward(
        self, context_rows: Tensor, context_labels: Tensor, query_rows: Tensor, label_mask: Tensor | None = None
    ) -> Tensor:
        z = super().forward(context_rows, context_labels, query_rows, label_mask)
        z[:, context_rows.shape[1] :] += self.encoder(torch.zeros_like(query_rows[..., 0])) - self.unknown_label
        return z


def unknown_label_as_class(subject: Subject) -> Subject:
    """The unknown label is class 0 (target 0)."""

    def change(network: Network) -> None:
        network.icl.injection.__class__ = _ClassForUnknown

    return with_network(subject, change)


class _ShiftedSlices(ICLTransformer):
    """`h[:, 1:N]` and `h[:, N+1:T]`, with the last row twice so that shapes fit."""

    def forward(
        self,
        context_rows: Tensor,
        context_labels: Tensor,
        query_rows: Tensor,
        context_mask: Tensor | None = None,
        query_mask: Tensor | None = None,
        *,
        label_mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        parts = super().forward(
            context_rows, context_labels, query_rows, context_mask, query_mask, label_mask=label_mask
        )
        context, query = (torch.cat([part[:, 1:], part[:, -1:]], dim=1) for part in parts)
        return context, query


def off_by_one_slices(subject: Subject) -> Subject:
    """Slices 1:N and N+1:T."""

    def change(network: Network) -> None:
        network.icl.__class__ = _ShiftedSlices

    return with_network(subject, change)


class _ProbabilitiesAsLogits(Network):
    def forward(self, inputs: NetworkInputs) -> ClassLogProbabilities:
        hidden = self.hidden(inputs)
        p = self._classes(hidden.query, self.label_memory(inputs, hidden)).probabilities()
        return ClassLogProbabilities(log_p=torch.log_softmax(p, dim=-1))


def p_as_logits(subject: Subject) -> Subject:
    """Probabilities are used as logits."""

    def change(network: Network) -> None:
        network.__class__ = _ProbabilitiesAsLogits

    return with_network(subject, change)
