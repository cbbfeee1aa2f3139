"""What an audit judges: a network together with everything between the records and the scores.

A `Subject` is the whole way from tasks that hold all answers to what is scored: collate → gate → network → scorer,
and the estimator through which final scores are made. Shapes: B tables, M query rows, K classes, Q buckets.
"""

import copy
import dataclasses
import hashlib
import inspect
import pathlib
import types
from collections.abc import Callable

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn

from eval import icl_predictor, records
from eval.icl_predictor import ICLPredictor
from eval.scores import TAUS
from eval.tracing import Axis, Reading, Stage, Trace, read_fields, tracing
from model import (
    attention,
    bar_distribution,
    bucket_borders,
    cell_embedding,
    class_distribution,
    classification_head,
    column_codes,
    column_embedding,
    estimator,
    icl_transformer,
    input_checks,
    label_injection,
    length_scaling,
    levels,
    network,
    point_attention,
    precision,
    quantile_prediction,
    regression_heads,
    row_embedding,
    table_columns,
    table_labels,
    target_scaling,
)
from model.class_distribution import ClassLogProbabilities
from model.icl_transformer import AttentionPath
from model.network import Network, NetworkInputs
from model.quantile_prediction import QuantilePrediction
from model.regression_heads import PointPrediction, RegressionPrediction
from priors import batches, group, shards, task
from priors.batches import BatchPlan
from priors.shards import ShardSet
from priors.task import Episode, TaskBatch, TaskKind
from tools import config as configs

Prediction = ClassLogProbabilities | RegressionPrediction

CODE: tuple[types.ModuleType, ...] = (
    attention,
    bar_distribution,
    batches,
    bucket_borders,
    cell_embedding,
    class_distribution,
    classification_head,
    column_codes,
    column_embedding,
    estimator,
    group,
    icl_predictor,
    icl_transformer,
    input_checks,
    label_injection,
    length_scaling,
    levels,
    network,
    point_attention,
    precision,
    quantile_prediction,
    records,
    regression_heads,
    row_embedding,
    shards,
    table_columns,
    table_labels,
    target_scaling,
    task,
)
"""The modules whose sources the code digest covers: all that stands between a record and a prediction."""

JUDGES = (
    "ablation_audit.py",
    "audits.py",
    "case.py",
    "certificate.py",
    "label_audits.py",
    "loader_audit.py",
    "path_audit.py",
    "query_audits.py",
    "specimens.py",
    "structure_audits.py",
    "subject.py",
    "taint.py",
    "taint_escapes.py",
    "taint_rules.py",
    "taint_sources.py",
    "tracing.py",
)
"""What the code digest covers besides: the audits, as files, since they import this module."""

SCORING = ("comparison.py", "scores.py", "tables.py")
"""The files that turn predictions into the scores that an audit vouches for: real tables, comparisons, metrics."""

_FOLDER = pathlib.Path(__file__).parent


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the scores of one table are computed from.

    Args:
        prediction: [M, K] probabilities, or [M, 1 + 99] the mean and the quantiles at `eval.scores.TAUS`, or [M, 1] the
            mean alone, of a head that predicts points.
        answers: [M] query labels.
    """

    prediction: np.ndarray
    answers: np.ndarray


def outcomes(prediction: Prediction, batch: TaskBatch) -> list[Outcome]:
    """Cuts a batch's prediction into tables and pairs each with its answers; the one reader of `y_query` here."""
    if isinstance(prediction, ClassLogProbabilities):
        values = prediction.probabilities()
    elif isinstance(prediction, PointPrediction):
        values = prediction.mean()[..., None]
    else:
        values = torch.cat([prediction.mean()[..., None], prediction.icdf(torch.from_numpy(TAUS))], dim=-1)
    out = []
    for index, real in enumerate(batch.query_mask):
        width = int(batch.num_classes[index]) or values.shape[-1]
        own = values[index, torch.from_numpy(real), :width].double().numpy()
        out.append(Outcome(prediction=own, answers=batch.y_query[index, real].copy()))
    return out


def estimate(judged: Network, episode: Episode) -> Outcome:
    """The same through the estimators, which make the final scores."""
    evidence, predictor = episode.evidence(), ICLPredictor(name="veritab", network=judged, num_estimators=2)
    if evidence.kind is TaskKind.CLASSIFICATION:
        return Outcome(prediction=predictor.classify(evidence), answers=episode.answers())
    forecast = predictor.forecast(evidence)
    parts = [forecast.mean[:, None]] + ([] if forecast.quantiles is None else [forecast.quantiles])
    return Outcome(prediction=np.concatenate(parts, axis=1), answers=episode.answers())


def load_batch(records_: ShardSet, index: int) -> TaskBatch:
    """Batch `index` of a shard set as training reads it."""
    return BatchPlan(records_, batch_size=records_.groups[0].count, seed=0).batch(index)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One pass of a subject over a list of tables.

    Args:
        batch: what collate made.
        inputs: what the gate let through.
        readout: [B, M, W] the prediction as bounded numbers (see `readout`).
        outcomes: what is scored, per table.
        trace: every stage's output.
    """

    batch: TaskBatch
    inputs: NetworkInputs
    readout: Tensor
    outcomes: list[Outcome]
    trace: Trace


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subject:
    """What is judged.

    Args:
        network: the model; audits work on copies of it.
        path: how its attention is computed.
        dtype: fp32 or fp64.
        collate: episodes to a batch that still holds answers.
        gate: the batch to what the network may see.
        scorer: prediction and batch to what is scored.
        estimate: the estimator path for one table.
        load: the training loader: shard set and index to a batch.
    """

    network: Network
    path: AttentionPath = AttentionPath.FAST
    dtype: torch.dtype = torch.float32
    collate: Callable[[list[Episode]], TaskBatch] = task.collate
    gate: Callable[[TaskBatch], NetworkInputs] = records.network_inputs
    scorer: Callable[[Prediction, TaskBatch], list[Outcome]] = outcomes
    estimate: Callable[[Network, Episode], Outcome] = estimate
    load: Callable[[ShardSet, int], TaskBatch] = load_batch

    @property
    def kind(self) -> TaskKind:
        """What it predicts."""
        return TaskKind(self.network.config.kind.value)

    def fresh(self, *, path: AttentionPath | None = None, dtype: torch.dtype | None = None) -> "Subject":
        """A subject with a copy of the network on the CPU, set to a path and a precision; it remembers no table."""
        path, dtype = path or self.path, dtype or self.dtype
        own = copy.deepcopy(self.network).cpu().to(dtype)
        own.icl.path = path
        return dataclasses.replace(self, network=own, path=path, dtype=dtype)

    def run(self, episodes: list[Episode]) -> Run:
        """Collates, gates, predicts and scores, noting every stage on the way."""
        return self.run_batch(self.collate(episodes))

    @torch.no_grad()
    def run_batch(self, batch: TaskBatch) -> Run:
        """The same for a batch that is there."""
        inputs = in_precision(self.gate(batch), self.dtype)
        declared = frozenset(field.name for field in dataclasses.fields(NetworkInputs))
        entry = tuple(read_fields(inputs, stage=Stage.COLLATE, name="inputs", only=declared))
        with tracing(self.network) as trace:
            prediction = self.network(inputs)
        found = trace()
        exit_ = Reading(stage=Stage.HEAD, name="prediction", value=readout(prediction, batch), axes={1: Axis.QUERY})
        readings = (*entry, *found.readings, *read_fields(prediction, stage=Stage.HEAD, name="prediction"), exit_)
        return Run(
            batch=batch,
            inputs=inputs,
            readout=exit_.value,
            outcomes=self.scorer(prediction, batch),
            trace=dataclasses.replace(found, readings=readings),
        )


def readout(prediction: Prediction, batch: TaskBatch) -> Tensor:
    """[B, M, W] fp64: class probabilities; or the head's numbers with mean, location and scale in context deviations.

    The unit of a target is measured here from the batch's context, not taken from the prediction, so that a wrong
    location or scale shows.
    """
    if isinstance(prediction, ClassLogProbabilities):
        return prediction.probabilities().double()
    real = batch.context_mask
    y = np.where(real, batch.y_context.astype(np.float64), 0.0)
    mean = y.sum(1) / real.sum(1)
    deviation = np.sqrt((np.where(real, y - mean[:, None], 0.0) ** 2).sum(1) / real.sum(1))
    location = torch.from_numpy(mean)[:, None]
    scale = torch.from_numpy(np.where(deviation > 0, deviation, 1.0))[:, None]
    numbers = _head_numbers(prediction)
    measured = (
        (prediction.mean().double() - location) / scale,
        (prediction.location.double() - location) / scale,
        prediction.scale.double() / scale,
    )
    return torch.cat([numbers, *(part.expand(numbers.shape[:2])[..., None] for part in measured)], dim=-1)


def _head_numbers(prediction: RegressionPrediction) -> Tensor:
    """[B, M, ·] fp64, on the scaled axis: bucket masses, quantiles as the network gave them, or the point."""
    if isinstance(prediction, PointPrediction):
        return prediction.value.double()[..., None]
    if isinstance(prediction, QuantilePrediction):
        return prediction.values.double()
    return prediction.log_mass.double().exp()


def in_precision(inputs: NetworkInputs, dtype: torch.dtype) -> NetworkInputs:
    """The inputs with every floating-point field in `dtype`."""
    values = {field.name: getattr(inputs, field.name) for field in dataclasses.fields(inputs)}
    floats = {name: v.to(dtype) for name, v in values.items() if isinstance(v, Tensor) and v.is_floating_point()}
    return dataclasses.replace(inputs, **floats)


def subject_record(subject: Subject, *, weights_sha256: str) -> dict[str, str]:
    """Names the subject of a verdict: scores are verified only where all of this is equal (seed 5.G)."""
    return {
        "weights_sha256": weights_sha256,
        "config_sha256": configs.digest(subject.network.config),
        "code_sha256": code_sha256(),
        "path": subject.path.value,
        "dtype": str(subject.dtype).removeprefix("torch."),
        "scorer": scorer_sha256(),
    }


def code_sha256() -> str:
    """sha256 over the names and sources of `CODE` and `JUDGES`."""
    return _sources_sha256({module.__name__: inspect.getsource(module) for module in CODE} | _sources(JUDGES))


def scorer_sha256() -> str:
    """sha256 over the names and sources of `SCORING`."""
    return _sources_sha256(_sources(SCORING))


def _sources(names: tuple[str, ...]) -> dict[str, str]:
    return {name: (_FOLDER / name).read_text(encoding="utf-8") for name in names}


def _sources_sha256(sources: dict[str, str]) -> str:
    digest = hashlib.sha256()
    for name, source in sources.items():
        digest.update(f"{name}\0{source}\0".encode())
    return digest.hexdigest()


def zero_tensors(judged: nn.Module) -> list[str]:
    """Names of the weight matrices that are entirely zero: an untrained network ignores its own mask through them."""
    return [name for name, value in judged.named_parameters() if value.ndim > 1 and not value.any()]


def rerandomise(judged: Network, *, seed: int) -> Network:
    """A copy whose all-zero tensors are drawn anew (Glorot for matrices, small values for vectors); others are kept."""
    own, generator = copy.deepcopy(judged), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in own.parameters():
            if value.any():
                continue
            bound = (6.0 / sum(value.shape)) ** 0.5 if value.ndim > 1 else 0.1
            value.copy_((2 * torch.rand(value.shape, generator=generator) - 1) * bound)
    return own


def weights_digest(judged: nn.Module) -> str:
    """sha256 of the weights as a checkpoint would hold them."""
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in judged.state_dict().items()}
    return hashlib.sha256(safetensors.torch.save(weights)).hexdigest()
