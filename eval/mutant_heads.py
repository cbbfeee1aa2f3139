"""Mutants of read-outs, of hidden labels and of the memory of a context (seeds 5.B, 5.E, 6.G).

Each function takes a clean subject and returns one with the mistake.
"""

import dataclasses

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from eval.mutant_masks import with_network
from eval.subject import Prediction, Subject
from model.attention import key_bias, scaled_logits
from model.bar_distribution import BarDistribution
from model.classification_head import LabelMemory, RowReadingHead
from model.network import ContextMemory, Hidden, Network, NetworkInputs
from model.regression_heads import BarHead


def _become(module: nn.Module, mistake: type) -> None:
    """Gives a module the mistake, on top of the class that it has."""
    module.__class__ = type(mistake.__name__, (mistake, type(module)), {})


class _NarrowOneHot(RowReadingHead):
    # style: the order of arguments is the course's
    def remember(
        self, context_hidden: Tensor, context_labels: Tensor, num_classes: int, context_mask: Tensor | None
    ) -> LabelMemory:
        return super().remember(context_hidden, context_labels.clamp_max(num_classes - 2), num_classes, context_mask)


def one_hot_too_narrow(subject: Subject) -> Subject:
    """One-hot labels are one class too narrow: the last class counts as the one before."""
    return with_network(subject, lambda network: _become(network.head, _NarrowOneHot))


class _ClassSoftmax(RowReadingHead):
    def read(self, query_hidden: Tensor, memory: LabelMemory) -> Tensor:
        return self._answer(query_hidden, memory)[0]

    def _answer(self, query_hidden: Tensor, memory: LabelMemory) -> tuple[Tensor, dict[str, Tensor]]:
        logits = scaled_logits(self._queries(query_hidden, memory), memory.keys).mean(1)
        bias = key_bias(memory.mask)
        real = torch.ones_like(logits) if bias is None else (bias[:, 0] == 0).to(logits.dtype).expand_as(logits)
        onehot = F.one_hot(memory.labels.long(), memory.present.shape[-1]).to(logits.dtype)
        scores = (logits * real) @ onehot / (real @ onehot).clamp_min(1.0)
        scores = scores.masked_fill(~memory.present[:, None, :], -torch.inf)
        return torch.softmax(scores, dim=-1).nan_to_num(), {"read_weights": logits}


def softmax_over_classes(subject: Subject) -> Subject:
    """The softmax runs over classes instead of context rows."""
    return with_network(subject, lambda network: _become(network.head, _ClassSoftmax))


class _OtherBorders(BarHead):
    def forward(self, query_hidden: Tensor, *, location: Tensor, scale: Tensor) -> BarDistribution:
        bars = super().forward(query_hidden, location=location, scale=scale)
        return bars if self.training else dataclasses.replace(bars, borders=bars.borders * 1.05)


def borders_differ_at_prediction(subject: Subject) -> Subject:
    """Bucket borders at prediction are not those of training."""
    return with_network(subject, lambda network: _become(network.head, _OtherBorders))


class _ColumnsKeepLabels(Network):
    def _column_labels(self, labels: Tensor, label_mask: Tensor | None, *, dtype: torch.dtype) -> Tensor | None:
        return super()._column_labels(labels, None, dtype=dtype)


def columns_keep_hidden_labels(subject: Subject) -> Subject:
    """Target-aware columns read labels that are to be unknown."""
    return with_network(subject, lambda network: _become(network, _ColumnsKeepLabels))


class _HeadKeepsLabels(Network):
    def label_memory(self, inputs: NetworkInputs, hidden: Hidden) -> LabelMemory:
        return super().label_memory(dataclasses.replace(inputs, label_mask=None), hidden)


def head_keeps_hidden_labels(subject: Subject) -> Subject:
    """The head retrieves labels that are to be unknown."""
    return with_network(subject, lambda network: _become(network, _HeadKeepsLabels))


class _ScaleKeepsLabels(Network):
    def _labels(self, inputs: NetworkInputs) -> tuple[Tensor, Tensor | None, Tensor | None]:
        labels, _, _ = super()._labels(inputs)
        _, location, scale = super()._labels(dataclasses.replace(inputs, label_mask=None))
        return labels, location, scale


def scale_keeps_hidden_labels(subject: Subject) -> Subject:
    """The target's location and scale come from labels that are to be unknown."""
    return with_network(subject, lambda network: _become(network, _ScaleKeepsLabels))


class _FirstMemory(Network):
    kept: ContextMemory | None = None

    def remember(self, inputs: NetworkInputs) -> ContextMemory:
        found = super().remember(inputs)
        if self.kept is None or self.kept.icl.h_context.shape != found.icl.h_context.shape:
            self.kept = found
        return dataclasses.replace(found, icl=self.kept.icl, columns=self.kept.columns)


def memory_of_another_table(subject: Subject) -> Subject:
    """A context is answered from the memory of an earlier one of its shape."""
    return with_network(subject, lambda network: _become(network, _FirstMemory))


class _QueriesMeet(Network):
    """Moves queries by a little of what stands beside them."""

    def _moved(self, x_query: Tensor) -> Tensor:
        return x_query - 1e-3 * x_query.nan_to_num(0, 0, 0).mean(1, keepdim=True)


class _MeetInMemory(_QueriesMeet):
    def predict(self, memory: ContextMemory, x_query: Tensor, *, query_mask: Tensor | None = None) -> Prediction:
        return super().predict(memory, self._moved(x_query), query_mask=query_mask)


class _MeetInTraining(_QueriesMeet):
    def forward(self, inputs: NetworkInputs) -> Prediction:
        return super().forward(
            dataclasses.replace(inputs, x_query=self._moved(inputs.x_query)) if self.training else inputs
        )


def queries_meet_in_memory(subject: Subject) -> Subject:
    """Queries that are predicted from a remembered context are centred on each other."""
    return with_network(subject, lambda network: _become(network, _MeetInMemory))


def queries_meet_in_training(subject: Subject) -> Subject:
    """Queries are centred on each other in training mode."""
    return with_network(subject, lambda network: _become(network, _MeetInTraining))
