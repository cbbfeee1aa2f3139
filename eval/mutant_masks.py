"""Mutants of visibility: who may read whom, in the printed mask, in the fast path's keys, and under padding (seed 5.E).

Each function takes a clean subject and returns one with the mistake. A mistake in the printed mask uses the reference
path, which is the one that has a mask.
"""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from eval.subject import Subject
from model.column_embedding import ColumnBlock
from model.icl_transformer import AttentionPath, ContextView, ICLBlock, Visibility
from model.network import Network, NetworkInputs
from priors.task import TaskBatch


def with_network(subject: Subject, change: Callable[[Network], None], **others: Any) -> Subject:
    """The subject with a changed copy of its network (and other fields)."""
    network = copy.deepcopy(subject.network)
    change(network)
    return dataclasses.replace(subject, network=network, **others)


class _ChangedVisibility(Visibility):
    """Adds to or takes from the legal picture; subclasses say how."""

    hidden_value = -torch.inf

    def forward(self, context_mask: Tensor, num_query: int) -> Tensor:
        num_context = context_mask.shape[1]
        visible = self.changed(super().forward(context_mask, num_query) == 0, num_context)
        return torch.zeros(visible.shape).masked_fill(~visible, self.hidden_value)

    def changed(self, visible: Tensor, num_context: int) -> Tensor:
        return visible


class _Causal(_ChangedVisibility):
    def changed(self, visible: Tensor, num_context: int) -> Tensor:
        return torch.ones_like(visible).tril()


class _QueryReadsQuery(_ChangedVisibility):
    def changed(self, visible: Tensor, num_context: int) -> Tensor:
        visible[..., num_context:, num_context:] = True
        return visible


class _ContextReadsQuery(_ChangedVisibility):
    def changed(self, visible: Tensor, num_context: int) -> Tensor:
        visible[..., :num_context, num_context:] = True
        return visible


class _Inverted(_ChangedVisibility):
    def changed(self, visible: Tensor, num_context: int) -> Tensor:
        return ~visible


class _FiniteFill(_ChangedVisibility):
    hidden_value = -1e9


def _seeing(subject: Subject, visibility: Visibility) -> Subject:
    def change(network: Network) -> None:
        network.icl.visibility = visibility

    return with_network(subject, change, path=AttentionPath.REFERENCE)


def causal_mask(subject: Subject) -> Subject:
    """A triangular mask instead of the four blocks."""
    return _seeing(subject, _Causal())


def query_reads_query(subject: Subject) -> Subject:
    """The mask lets queries read queries."""
    return _seeing(subject, _QueryReadsQuery())


def context_reads_query(subject: Subject) -> Subject:
    """The mask lets context rows read queries."""
    return _seeing(subject, _ContextReadsQuery())


def inverted_polarity(subject: Subject) -> Subject:
    """The mask's true and false are exchanged."""
    return _seeing(subject, _Inverted())


def finite_fill(subject: Subject) -> Subject:
    """-1e9 instead of minus infinity."""
    return _seeing(subject, _FiniteFill())


class _AllRowsBlock(ICLBlock):
    """The fast path with every row as a key."""

    def forward(self, z: Tensor, *, view: ContextView) -> Tensor:
        if view.path is AttentionPath.REFERENCE:
            return super().forward(z, view=view)
        bias = None if view.bias is None else F.pad(view.bias, (0, z.shape[1] - view.num_context))
        return super().forward(z, view=dataclasses.replace(view, num_context=z.shape[1], bias=bias))


def all_rows_are_keys(subject: Subject) -> Subject:
    """The fast path takes keys from all rows."""

    def change(network: Network) -> None:
        for block in network.icl.blocks:
            block.__class__ = _AllRowsBlock

    return with_network(subject, change, path=AttentionPath.FAST)


def padding_inverted(subject: Subject) -> Subject:
    """The padding mask's true and false are exchanged."""

    def gate(batch: TaskBatch) -> NetworkInputs:
        inputs = subject.gate(batch)
        if inputs.context_mask is None:
            return inputs
        padded = ~inputs.context_mask.all(1, keepdim=True)  # inverted elsewhere, a table would have no context at all
        return dataclasses.replace(inputs, context_mask=inputs.context_mask ^ padded)

    return dataclasses.replace(subject, gate=gate)


class _PaddingBlindColumns(ColumnBlock):
    def forward(self, cells: Tensor, labels: Tensor | None, *, num_context: int, bias: Tensor | None) -> Tensor:
        return super().forward(cells, labels, num_context=num_context, bias=None)


def padding_read_by_columns(subject: Subject) -> Subject:
    """The column stage reads padded rows."""

    def change(network: Network) -> None:
        for block in network.column_blocks:
            block.__class__ = _PaddingBlindColumns

    return with_network(subject, change)
