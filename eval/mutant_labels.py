"""Mutants through which query labels get in: by the gate, the records, the class vocabulary, the scorer (seed 5.E).

Each function takes a clean subject and returns one with the mistake.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from eval.icl_predictor import ICLPredictor
from eval.mutant_masks import with_network
from eval.subject import Outcome, Prediction, Subject, outcomes
from model.classification_head import LabelMemory
from model.label_injection import LabelInjection
from model.network import Hidden, Network, NetworkInputs
from model.target_scaling import target_statistics
from priors.shards import ShardSet
from priors.task import ColumnKind, Episode, TaskBatch, TaskKind


@dataclasses.dataclass(frozen=True, kw_only=True)
class LeakyInputs(NetworkInputs):
    """Inputs with the field that must not exist. Args: y_query [B, M]."""

    y_query: Tensor


def _leaky_gate(subject: Subject) -> Callable[[TaskBatch], LeakyInputs]:
    def gate(batch: TaskBatch) -> LeakyInputs:
        inputs = subject.gate(batch)
        values = {field.name: getattr(inputs, field.name) for field in dataclasses.fields(inputs)}
        return LeakyInputs(**values, y_query=torch.from_numpy(batch.y_query))

    return gate


class _LabelledInjection(LabelInjection):
    """Adds the true label to query rows, where one was left in `query_labels`."""

    query_labels: Tensor | None = None

    def forward(
        self, context_rows: Tensor, context_labels: Tensor, query_rows: Tensor, label_mask: Tensor | None = None
    ) -> Tensor:
        z = super().forward(context_rows, context_labels, query_rows, label_mask)
        if self.query_labels is None or not query_rows.shape[1]:
            return z
        z[:, context_rows.shape[1] :] += self.encoder(self.query_labels.to(z.dtype)) - self.unknown_label
        return z


class _InjectingNetwork(Network):
    def forward(self, inputs: NetworkInputs) -> Prediction:
        self.icl.injection.query_labels = self._query_labels(inputs)
        return super().forward(inputs)

    def _query_labels(self, inputs: NetworkInputs) -> Tensor | None:
        if not isinstance(inputs, LeakyInputs):
            return None
        _, location, scale = self._labels(inputs)
        return inputs.y_query if location is None else (inputs.y_query - location) / scale


def label_at_query(subject: Subject) -> Subject:
    """The true label is injected at the query."""

    def change(network: Network) -> None:
        network.__class__ = _InjectingNetwork
        network.icl.injection.__class__ = _LabelledInjection

    return with_network(subject, change, gate=_leaky_gate(subject))


class _QueryScaledTargets(Network):
    def _labels(self, inputs: NetworkInputs) -> tuple[Tensor, Tensor | None, Tensor | None]:
        labels, location, scale = super()._labels(inputs)
        if not isinstance(inputs, LeakyInputs):
            return labels, location, scale
        y = torch.cat([inputs.y_context, inputs.y_query], dim=1)
        location, scale = target_statistics(y, torch.ones(y.shape, dtype=torch.bool))
        return ((inputs.y_context - location) / scale).to(inputs.x_context.dtype), location, scale


def targets_scaled_with_query(subject: Subject) -> Subject:
    """Targets are normalised with query targets."""

    def change(network: Network) -> None:
        network.__class__ = _QueryScaledTargets

    return with_network(subject, change, gate=_leaky_gate(subject))


class _SelfRetrieval(Network):
    """The head looks the query's own row up, label included."""

    def label_memory(self, inputs: NetworkInputs, hidden: Hidden) -> LabelMemory:
        if not isinstance(inputs, LeakyInputs) or not hidden.query.shape[1]:
            return super().label_memory(inputs, hidden)
        masks = [
            torch.ones(hidden.shape[:2], dtype=torch.bool) if mask is None else mask
            for mask, hidden in ((inputs.context_mask, hidden.context), (inputs.query_mask, hidden.query))
        ]
        return self.head.remember(
            torch.cat([hidden.context, hidden.query], dim=1),
            torch.cat([inputs.y_context, inputs.y_query], dim=1),
            inputs.num_classes,
            torch.cat(masks, dim=1),
        )


def retrieval_of_own_row(subject: Subject) -> Subject:
    """The head retrieves the query's own row and label."""

    def change(network: Network) -> None:
        network.__class__ = _SelfRetrieval

    return with_network(subject, change, gate=_leaky_gate(subject))


def label_as_feature(subject: Subject) -> Subject:
    """The label is a feature column: the table still holds its target."""

    def collate(episodes: list[Episode]) -> TaskBatch:
        batch = subject.collate(episodes)
        kinds = np.full((len(episodes), 1), ColumnKind.NUMBER, np.int8)
        return dataclasses.replace(
            batch,
            x_context=np.concatenate([batch.y_context[..., None], batch.x_context], axis=2),
            x_query=np.concatenate([batch.y_query[..., None], batch.x_query], axis=2),
            column_kinds=np.concatenate([kinds, batch.column_kinds], axis=1),
        )

    return dataclasses.replace(subject, collate=collate)


def batch_statistics_with_query_labels(subject: Subject) -> Subject:
    """Batch statistics with query labels: each level of the last column becomes the mean label of all its rows."""

    def encoded(episode: Episode) -> Episode:
        x, y = episode.task.x.copy(), episode.task.y
        for level in np.unique(x[:, -1][np.isfinite(x[:, -1])]):
            x[x[:, -1] == level, -1] = y[episode.task.x[:, -1] == level].mean()
        kinds = np.where(np.arange(x.shape[1]) == x.shape[1] - 1, ColumnKind.NUMBER, episode.task.column_kinds)
        task = dataclasses.replace(episode.task, x=x, column_kinds=kinds.astype(np.int8))
        return dataclasses.replace(episode, task=task)

    return dataclasses.replace(subject, collate=lambda episodes: subject.collate([encoded(e) for e in episodes]))


def vocabulary_of_query(subject: Subject) -> Subject:
    """Class ids are places in the sorted labels of the queries."""

    def collate(episodes: list[Episode]) -> TaskBatch:
        batch = subject.collate(episodes)
        y_context = batch.y_context.copy()
        for index, real in enumerate(batch.query_mask):
            known = np.unique(batch.y_query[index, real])
            order = np.concatenate([known, np.setdiff1d(np.arange(batch.num_classes[index]), known)])
            y_context[index] = np.argsort(order)[y_context[index].astype(int)]
        return dataclasses.replace(batch, y_context=y_context)

    return dataclasses.replace(subject, collate=collate)


def encoder_of_all_labels(subject: Subject) -> Subject:
    """The label encoder is fitted on all labels: class ids are places among those of context and queries."""

    def collate(episodes: list[Episode]) -> TaskBatch:
        batch = subject.collate(episodes)
        y_context, y_query = batch.y_context.copy(), batch.y_query.copy()
        for index, (context, query) in enumerate(zip(batch.context_mask, batch.query_mask, strict=True)):
            known = np.unique(np.concatenate([y_context[index, context], y_query[index, query]]))
            y_context[index, context] = np.searchsorted(known, y_context[index, context])
            y_query[index, query] = np.searchsorted(known, y_query[index, query])
        return dataclasses.replace(batch, y_context=y_context, y_query=y_query)

    return dataclasses.replace(subject, collate=collate)


def temperature_from_answers(subject: Subject) -> Subject:
    """Calibration on the final answers: of three temperatures the scorer takes the one with the best NLL."""

    def scorer(prediction: Prediction, batch: TaskBatch) -> list[Outcome]:
        found = []
        for outcome in outcomes(prediction, batch):
            rows, labels = np.arange(len(outcome.answers)), outcome.answers.astype(int)
            powered = [outcome.prediction**sharpness for sharpness in (0.5, 1.0, 2.0)]
            choices = [p / p.sum(1, keepdims=True) for p in powered]
            best = max(choices, key=lambda p: float(np.log(p[rows, labels] + 1e-12).mean()))
            found.append(dataclasses.replace(outcome, prediction=best))
        return found

    return dataclasses.replace(subject, scorer=scorer)


def loader_sorts_queries_by_label(subject: Subject) -> Subject:
    """The training loader hands out query rows in the order of their labels."""

    def load(records: ShardSet, index: int) -> TaskBatch:
        batch = subject.load(records, index)
        order = np.argsort(batch.y_query, axis=1, kind="stable")
        return dataclasses.replace(
            batch,
            x_query=np.take_along_axis(batch.x_query, order[:, :, None], axis=1),
            y_query=np.take_along_axis(batch.y_query, order, axis=1),
        )

    return dataclasses.replace(subject, load=load)


def estimator_fitted_on_all_rows(subject: Subject) -> Subject:
    """The estimator is fitted on all rows of the table, query rows included."""

    def estimate(network: Network, episode: Episode) -> Outcome:
        task = episode.task
        everything = dataclasses.replace(episode.evidence(), x_context=task.x, y_context=task.y)
        predictor = ICLPredictor(name="leaky", network=network, num_estimators=1)
        if task.kind is TaskKind.CLASSIFICATION:
            return Outcome(prediction=predictor.classify(everything), answers=episode.answers())
        return Outcome(prediction=predictor.forecast(everything).mean[:, None], answers=episode.answers())

    return dataclasses.replace(subject, estimate=estimate)
