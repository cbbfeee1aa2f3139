"""Which bit of a taint stands for what, and what each row of a network may depend on (see `eval.certificate`).

Shapes: B tables, N context rows, M query rows, C columns.
"""

import dataclasses

import torch
from torch import Tensor

from eval.taint import WEIGHTS, TaintTracker
from eval.taint_rules import union
from eval.tracing import Reading, Stage
from model.network import NetworkInputs
from priors.task import TaskBatch

_WITH_COLUMNS = frozenset((Stage.NORMALISATION, Stage.CELL, Stage.COLUMN, Stage.ROW))


class Sources:
    """Which bit stands for what.

    Args:
        batch: whose tables, rows and masks there are.
    """

    def __init__(self, batch: TaskBatch) -> None:
        self.names = ["the weights", "a tensor that is neither input nor weight"]
        tables, num_query = batch.query_mask.shape
        self.features, self.labels, self.hidden, self.padding = (
            torch.tensor([self._new(f"the {what} of table {b}") for b in range(tables)])
            for what in ("context features", "context labels", "hidden context labels", "padding")
        )
        self.query, self.answer = (
            torch.tensor([[self._new(f"{what} {i} of table {b}") for i in range(num_query)] for b in range(tables)])
            for what in ("query row", "query label")
        )
        self.context = WEIGHTS | self.features | self.labels
        self.real_context = torch.from_numpy(batch.context_mask)
        self.real_query = torch.from_numpy(batch.query_mask)
        self.real_column = torch.from_numpy(batch.column_kinds >= 0)

    def _new(self, name: str) -> int:
        self.names.append(name)
        if len(self.names) > 62:
            raise ValueError(f"{len(self.names)} sources do not fit into 62 bits: certify fewer or smaller tables")
        return 1 << (len(self.names) - 1)

    def described(self, taint: int) -> str:
        """The sources in a set, in words."""
        return ", ".join(name for bit, name in enumerate(self.names) if taint >> bit & 1)

    def mark(self, tracker: TaintTracker, inputs: NetworkInputs) -> None:
        """Gives every input its sources; masks and column kinds are known, and what is undeclared is a query label."""
        pad, real_context, real_query = self.padding[:, None], self.real_context, self.real_query
        column = self.real_column[:, None, :]
        context = torch.where(real_context[..., None] & column, self.features[:, None, None], pad[..., None])
        query = torch.where(real_query[..., None] & column, self.query[..., None], pad[..., None])
        labels = torch.where(real_context, self.labels[:, None], pad)
        if inputs.label_mask is not None:
            labels = torch.where(inputs.label_mask, labels, self.hidden[:, None])
        known = torch.zeros((), dtype=torch.int64)
        taints = {"x_context": context, "y_context": labels, "x_query": query}
        declared = {field.name for field in dataclasses.fields(NetworkInputs)}
        for field in dataclasses.fields(inputs):
            value = getattr(inputs, field.name)
            if not isinstance(value, Tensor):
                continue
            if field.name in declared:
                tracker.mark(value, taints.get(field.name, known))
            else:
                tracker.mark(value, self.answer if value.shape == self.answer.shape else union(self.answer))

    def allowed(self, reading: Reading) -> Tensor:
        """The sets that a reading's elements may have, broadcastable to its value."""
        value = reading.value
        if value.dim() == 0 or len(value) != len(self.context):
            return torch.tensor(WEIGHTS)
        extras = {dimension: self._rows(value.shape[dimension]) for dimension in reading.axes}
        width = self.real_column.shape[1]
        columns = [d for d in range(1, value.dim()) if d not in extras and value.shape[d] == width]
        if columns and reading.stage in _WITH_COLUMNS:
            extras[columns[0]] = torch.where(self.real_column, 0, self.padding[:, None])
        is_label = reading.name.endswith("injection.labels")  # as they come in: hidden ones are replaced inside
        context = self.context | self.hidden if is_label else self.context
        total = context.reshape(-1, *(1,) * (value.dim() - 1))
        for dimension, extra in extras.items():
            if extra is not None and value.shape[dimension] > 1:
                shape = [1] * value.dim()
                shape[0], shape[dimension] = extra.shape
                total = total | extra.reshape(shape)
        return total

    def _rows(self, size: int) -> Tensor | None:
        """[B, size] what rows of a sequence may have besides their context: the last M are queries."""
        context = torch.where(self.real_context, 0, self.padding[:, None])
        query = torch.where(self.real_query, self.query, self.query | self.padding[:, None])
        num_context, num_query = context.shape[1], query.shape[1]
        if size in (num_context, num_query):
            return context if size == num_context else query
        if size < num_context + num_query:
            return None
        thinking = torch.zeros((len(context), size - num_context - num_query), dtype=torch.int64)
        return torch.cat([thinking, context, query], dim=1)
