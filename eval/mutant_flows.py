"""Mutants whose leak has no effect on any specimen: only the data flow shows it (see `eval.certificate`).

Each function takes a clean subject and returns one with the mistake, on the fast path, where the mistake sits.
"""

import torch
from torch import Tensor, nn

from eval.mutant_masks import with_network
from eval.subject import Subject
from model.icl_transformer import AttentionPath
from model.network import Hidden, Network, NetworkInputs


class _BorrowingNetwork(Network):
    def rows(self, inputs: NetworkInputs, labels: Tensor) -> Tensor:
        rows, cut = super().rows(inputs, labels), inputs.x_context.shape[1]
        empty = inputs.x_query.isnan().all(-1, keepdim=True)
        query = torch.where(empty, rows[:, cut:].mean(1, keepdim=True), rows[:, cut:])
        return torch.cat([rows[:, :cut], query], dim=1)


def empty_rows_borrow_from_queries(subject: Subject) -> Subject:
    """A query row without a single value is imputed: it takes the mean of the queries asked with it."""

    def change(network: Network) -> None:
        network.__class__ = _BorrowingNetwork

    return with_network(subject, change, path=AttentionPath.FAST)


class _QueryAdapter(nn.Module):
    """Adds to every query the mean of all queries, times a gate that starts at 0."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(()))

    def forward(self, parts: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        context, query = parts
        return context, query + self.gate.to(query.dtype) * query.mean(1, keepdim=True)


class _AdaptedNetwork(Network):
    def forward(self, inputs: NetworkInputs) -> object:
        handle = self.icl.register_forward_hook(lambda module, args, parts: self.adapter(parts))
        try:
            return super().forward(inputs)
        finally:
            handle.remove()


def dormant_query_adapter(subject: Subject) -> Subject:
    """An adapter between queries whose gate is still 0: nothing flows until its first training step."""

    def change(network: Network) -> None:
        network.__class__ = _AdaptedNetwork
        network.adapter = _QueryAdapter()

    return with_network(subject, change, path=AttentionPath.FAST)


class _SmoothingNetwork(Network):
    def hidden(self, inputs: NetworkInputs, labels: Tensor | None = None) -> Hidden:
        found, time = super().hidden(inputs, labels), inputs.x_query[..., 0]
        flags = torch.tensor([(time.diff(dim=1) > 0).all()])  # 0-d tensors become numbers, out of a watcher's sight
        if time.shape[1] < 3 or not flags[0]:
            return found
        smooth = torch.cat([found.query[:, :1], found.query[:, :-1]], dim=1)
        return Hidden(context=found.context, query=(found.query + smooth) / 2)


def sorted_queries_are_smoothed(subject: Subject) -> Subject:
    """A branch on a wrapped value smooths queries: those in order of their first column pass for a time series."""

    def change(network: Network) -> None:
        network.__class__ = _SmoothingNetwork

    return with_network(subject, change, path=AttentionPath.FAST)
