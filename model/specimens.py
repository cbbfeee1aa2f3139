"""Small networks, inputs and comparisons for tests. Not part of the library: its target is testonly."""

import dataclasses

import torch
from torch import Tensor, nn

from model.bucket_borders import BucketConfig
from model.cell_embedding import CATEGORY, NUMBER, ORDINAL
from model.class_distribution import ClassLogProbabilities
from model.classification_head import ClassificationHeadConfig
from model.icl_transformer import ICLConfig
from model.label_injection import LabelKind
from model.network import CellConfig, Network, NetworkConfig, NetworkInputs
from model.quantile_prediction import QuantilePrediction
from model.regression_heads import PointPrediction, RegressionHeadConfig, RegressionPrediction
from model.row_embedding import ReadoutConfig


def specimen_config(kind: LabelKind) -> NetworkConfig:
    """A complete network of about 10,000 parameters."""
    return NetworkConfig(
        kind=kind,
        max_features=100,
        cell=CellConfig(width=8, num_rounds=2, num_heads=2, num_inducing=4, num_tokens=2),
        readout=ReadoutConfig(num_summaries=3, sketch_width=8),
        icl=ICLConfig(width=16, num_blocks=2, num_heads=2, max_classes=5),
        classification=ClassificationHeadConfig(num_heads=2, head_width=8),
        regression=RegressionHeadConfig(buckets=BucketConfig(num_buckets=16)),
    )


def redraw(module: nn.Module, *, seed: int = 0, gain: float = 1.5) -> None:
    """Gives every parameter a new random value: a fresh network has zeros that hide what it reads.

    Matrices get entries of deviation gain/√(width in): with 1.5, effects are large and so are rounding errors.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            if parameter.dim() > 1:
                parameter.copy_(noise * gain * parameter.shape[-1] ** -0.5)
            else:
                parameter.copy_(parameter.mean().round() + 0.2 * noise)  # around 1 for a norm, else around 0


def specimen_network(kind: LabelKind, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> Network:
    """A small network whose every parameter is random; in fp32 its bucket borders stay fp64, as in training."""
    network = Network(specimen_config(kind))
    redraw(network, seed=seed)
    return (network.double() if dtype is torch.float64 else network).eval()


def specimen_inputs(
    kind: LabelKind,
    *,
    tables: int = 2,
    context: int = 9,
    queries: int = 4,
    columns: int = 5,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> NetworkInputs:
    """Unpadded random tables with numbers, ordinals, categories and missing values; three classes."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(tables, context + queries, columns, generator=generator, dtype=torch.float64)
    kinds = torch.tensor([NUMBER, CATEGORY, NUMBER, ORDINAL, CATEGORY]).repeat(columns)[:columns]
    codes = torch.randint(0, 4, x.shape, generator=generator).double()
    x = torch.where(kinds == NUMBER, x, codes)
    missing = torch.rand(x.shape, generator=generator) < 0.1
    x = x.masked_fill(missing, torch.nan).to(dtype)
    y = torch.randn(tables, context, generator=generator, dtype=torch.float64)
    if kind is LabelKind.CLASSIFICATION:
        y = torch.randint(0, 3, (tables, context), generator=generator).double()
    return NetworkInputs(
        x_context=x[:, :context],
        y_context=y.to(dtype),
        x_query=x[:, context:],
        column_kinds=kinds.expand(tables, -1),
        num_classes=3 if kind is LabelKind.CLASSIFICATION else 0,
    )


def stack_padded(parts: list[NetworkInputs], *, spare: int = 2) -> NetworkInputs:
    """Puts tables of different sizes into one batch.

    Args:
        parts: inputs of one table each, unpadded.
        spare: rows and columns of padding that even the largest table gets.
    """
    rows = max(part.x_context.shape[1] for part in parts) + spare
    queries = max(part.x_query.shape[1] for part in parts) + spare
    columns = max(part.x_context.shape[2] for part in parts) + spare
    return NetworkInputs(
        x_context=torch.cat([_grow(part.x_context, rows, columns) for part in parts]),
        y_context=torch.cat([_grow(part.y_context, rows) for part in parts]),
        x_query=torch.cat([_grow(part.x_query, queries, columns) for part in parts]),
        column_kinds=torch.cat([_grow(part.column_kinds, columns, fill=-1) for part in parts]),
        num_classes=max(part.num_classes for part in parts),
        context_mask=torch.cat([_grow(torch.ones_like(part.y_context).bool(), rows) for part in parts]),
        query_mask=torch.cat([_grow(torch.ones(part.x_query.shape[:2]).bool(), queries) for part in parts]),
        label_mask=_grown_labels(parts, rows),
    )


def _grown_labels(parts: list[NetworkInputs], rows: int) -> Tensor | None:
    if any(part.label_mask is None for part in parts):
        return None
    return torch.cat([_grow(part.label_mask, rows) for part in parts])


def _grow(x: Tensor, *sizes: int, fill: float = 0.0) -> Tensor:
    grown = torch.full((x.shape[0], *sizes), fill, dtype=x.dtype)
    grown[tuple(slice(size) for size in x.shape)] = x
    return grown


def take(inputs: NetworkInputs, *, context: Tensor | None = None, queries: Tensor | None = None) -> NetworkInputs:
    """The same tables with chosen rows (index tensors), in that order."""
    changes = {}
    if context is not None:
        changes |= {"x_context": inputs.x_context[:, context], "y_context": inputs.y_context[:, context]}
        for name in ("context_mask", "label_mask"):
            if getattr(inputs, name) is not None:
                changes[name] = getattr(inputs, name)[:, context]
    if queries is not None:
        changes["x_query"] = inputs.x_query[:, queries]
        if inputs.query_mask is not None:
            changes["query_mask"] = inputs.query_mask[:, queries]
    return dataclasses.replace(inputs, **changes)


def values(prediction: ClassLogProbabilities | RegressionPrediction) -> Tensor:
    """[B, M, ·] numbers that say everything about a prediction."""
    if isinstance(prediction, ClassLogProbabilities):
        return prediction.probabilities()
    placed = torch.stack([prediction.mean(), prediction.location.expand(prediction.mean().shape)], dim=-1)
    if isinstance(prediction, PointPrediction):
        return placed
    if isinstance(prediction, QuantilePrediction):
        return torch.cat([prediction.values, placed], dim=-1)
    return torch.cat([prediction.log_mass.exp(), placed], dim=-1)


def distance(left: Tensor, right: Tensor) -> float:
    """Largest difference; NaN when anything is."""
    assert left.shape == right.shape, (left.shape, right.shape)
    return float((left - right).detach().abs().max())
