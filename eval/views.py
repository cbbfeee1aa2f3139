"""What the report draws of one episode: mask, attention weights, influence, read weights, a predicted curve.

The content of `views.json`. Read weights are rows that a prediction mechanism reads, neither causal neighbours nor a
conclusion about mechanism. Shapes: N context rows, M query rows, T = N + M, K classes.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from eval.influence import influence_map
from eval.subject import Run, Subject, zero_tensors
from model.icl_transformer import AttentionPath
from model.network import Network
from model.regression_heads import PointPrediction
from priors.task import ColumnKind, Episode, Task, TaskKind

CURVE_LEVELS = (0.05, 0.5, 0.95)
_GRID = 121
_DIGITS = 6
_PROBES = 2


def sample_episode(kind: TaskKind, *, num_context: int = 32, num_query: int = 16, seed: int = 0) -> Episode:
    """A small episode that reads well in a picture, independent of the prior.

    Classification: three blobs in the plane. Regression: one feature, a sine whose context targets have noise that
    grows with x; its query targets have none, so that they are the truth.
    """
    generator = np.random.default_rng(np.random.SeedSequence([seed, 77]))
    rows = num_context + num_query
    if kind is TaskKind.CLASSIFICATION:
        y = generator.permutation(np.arange(rows) % 3).astype(np.float32)
        centres = 2.0 * np.stack([np.cos(np.arange(3) * 2.1), np.sin(np.arange(3) * 2.1)], axis=1)
        x = centres[y.astype(int)] + generator.normal(size=(rows, 2))
    else:
        x = np.concatenate([generator.uniform(-3, 3, num_context), np.linspace(-3, 3, num_query)])[:, None]
        noise = generator.normal(size=rows) * (0.05 + 0.1 * (x[:, 0] + 3)) * (np.arange(rows) < num_context)
        y = np.sin(1.5 * x[:, 0]) + noise
    columns = x.shape[1]
    task = Task(
        x=x.astype(np.float32),
        y=y.astype(np.float32),
        column_kinds=np.full(columns, ColumnKind.NUMBER, np.int8),
        level_counts=np.zeros(columns, np.int32),
        kind=kind,
        num_classes=3 if kind is TaskKind.CLASSIFICATION else 0,
        family="picture",
        seed=seed,
    )
    return Episode(task=task, num_context=num_context)


def views(network: Network, episode: Episode) -> dict[str, Any]:
    """`views.json` of a network on one episode, computed on the reference path, whose mask can be printed.

    Args:
        network: in evaluation mode; not changed.
        episode: of the network's kind; in regression it has one feature.

    Returns:
        JSON values: num_context, num_query, mask [T][T] (1 = visible), weights [T][T] (first block, mean over heads),
        influence [T][T] (see `influence`) and how many tensors were drawn anew for it, context_labels [N]; in
        classification read_weights [N] of the first query, query_label, probabilities [K]; in regression context_x
        [N], curve_x, curve_quantiles by level (a head that predicts points has none), and curve_truth: the query
        targets, interpolated between query rows.

    Raises:
        ValueError: for a regression episode with more than one feature.
    """
    subject = Subject(network=network, path=AttentionPath.REFERENCE).fresh()
    run, evidence = subject.run([episode]), episode.evidence()
    common = {
        "num_context": episode.num_context,
        "num_query": len(evidence.x_query),
        "mask": _sequence(run.trace.attention[0].visible()[0], run).int().tolist(),
        "weights": _rounded(first_block_weights(subject, run)),
        "influence": influence(network, episode),
        "influence_redrawn": len(zero_tensors(network)),
        "context_labels": _rounded(torch.from_numpy(evidence.y_context)),
    }
    if evidence.kind is TaskKind.CLASSIFICATION:
        return common | {
            "read_weights": _rounded(read_weights(subject, run)[0]),
            "query_label": int(episode.answers()[0]),
            "probabilities": _rounded(run.readout[0, 0]),
        }
    return common | _curve(subject, episode)


def read_weights(subject: Subject, run: Run) -> Tensor:
    """Weights [M, N] with which the head reads context rows, mean over heads, for the first table of a run (seed 6.D).

    A head that reads no rows (a linear or MLP control) has weights of 0.
    """
    inputs, find = run.inputs, run.trace.find
    context, query = find("icl.h_context"), find("icl.h_query")
    with torch.no_grad():
        _, extra = subject.network.head(query, context, inputs.y_context, inputs.num_classes, inputs.context_mask)
    return extra.get("read_weights", torch.zeros(1, query.shape[1], context.shape[1]))[0]


def first_block_weights(subject: Subject, run: Run) -> Tensor:
    """Attention weights [T, T] of the first ICL block, mean over heads, for the first table of a run.

    What thinking rows read, and what is read from them, is left out.
    """
    call = run.trace.attention[0]
    with torch.no_grad():
        weights = subject.network.icl.blocks[0].attention.weights(call.x, call.source, view=call.view)
    return _sequence(weights[0].mean(0), run)


def _sequence(square: Tensor, run: Run) -> Tensor:
    """The part [T, T] of a square over all rows that belongs to context and query rows."""
    return square[run.trace.num_thinking :, run.trace.num_thinking :]


def influence(network: Network, episode: Episode) -> list[list[float]]:
    """Sizes [T][T] of the ICL stage's Jacobian blocks (`eval.influence`) to 4 significant digits: 0 stays exactly 0."""
    sizes = influence_map(network, episode, num_probes=_PROBES)
    return [[float(f"{size:.4g}") for size in row] for row in sizes]


def _curve(subject: Subject, episode: Episode) -> dict[str, Any]:
    evidence = episode.evidence()
    if evidence.x_context.shape[1] != 1:
        raise ValueError(f"the episode has {evidence.x_context.shape[1]} features: a curve is drawn over exactly one")
    x = evidence.x_context[:, 0]
    grid = np.linspace(np.nanmin(x), np.nanmax(x), _GRID, dtype=np.float32)
    task = Task(
        x=np.concatenate([evidence.x_context, grid[:, None]]),
        y=np.concatenate([evidence.y_context, np.zeros(_GRID, np.float32)]),
        column_kinds=evidence.column_kinds,
        level_counts=evidence.level_counts,
        kind=evidence.kind,
        num_classes=0,
        family=episode.task.family,
    )
    with torch.no_grad():
        inputs = subject.gate(subject.collate([Episode(task=task, num_context=episode.num_context)]))
        prediction = subject.network(inputs)
    order = np.argsort(evidence.x_query[:, 0])
    truth = np.interp(grid, evidence.x_query[order, 0], episode.answers()[order])
    curve = {
        "context_x": _rounded(torch.from_numpy(x)),
        "curve_x": _rounded(torch.from_numpy(grid)),
        "curve_truth": _rounded(torch.from_numpy(truth)),
    }
    if isinstance(prediction, PointPrediction):
        return curve
    quantiles = prediction.icdf(torch.tensor(CURVE_LEVELS, dtype=torch.float64))[0]
    by_level = {f"{level:g}": _rounded(quantiles[:, i]) for i, level in enumerate(CURVE_LEVELS)}
    return curve | {"curve_quantiles": by_level}


def _rounded(values: Tensor) -> Any:
    return np.round(values.double().numpy(), _DIGITS).tolist()
