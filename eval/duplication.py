"""One context row, put into the context again and again: how much of it is read, and what becomes of predictions.

Seed 6.B. A phenomenon, not a bias and not a cause: a copied row is also a different data set, of which a model may
rightly think differently. Shapes: N context rows, M query rows, K classes, L numbers of copies.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from eval.row_reading import Reader, block_weights, query_weights, reader_of
from eval.subject import Run, Subject
from model.icl_transformer import AttentionPath
from model.network import Network
from priors.task import Episode, TaskKind
from tools.failure import BadInput, ExitCode

COPIES = (0, 1, 2, 4, 8, 16)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Duplication:
    """One row of one episode; arrays are [L, M].

    Args:
        row: its position in the context.
        label: its class, or its target.
        copies: L numbers of copies, beside the row itself; the first is 0.
        reader: what reads rows (see `eval.row_reading.Reader`).
        mass: weight on the row and its copies together, of each query.
        frozen_mass: the same if only the reader met the copies: hidden states as without copies.
        prediction: probability of the row's class, or the predicted mean in units of y.
        towards: by how much the prediction went towards the row's label: the gain in that probability, or the way to
            its target in standard deviations of the context's targets (negative: away).
        moved: total variation distance to the prediction without copies, or |way| in the same deviations.
    """

    row: int
    label: float
    copies: tuple[int, ...]
    reader: Reader
    mass: np.ndarray
    frozen_mass: np.ndarray
    prediction: np.ndarray
    towards: np.ndarray
    moved: np.ndarray

    def record(self) -> dict[str, Any]:
        """JSON values: the fields, arrays as lists."""
        values = dataclasses.asdict(self) | {"copies": list(self.copies), "reader": self.reader.value}
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()}


def duplicated(episode: Episode, *, row: int, copies: int) -> Episode:
    """The episode with `copies` more of context row `row`, at the end of its context; its queries stay."""
    task, cut = episode.task, episode.num_context
    order = np.concatenate([np.arange(cut), np.full(copies, row), np.arange(cut, len(task.y))])
    return Episode(task=dataclasses.replace(task, x=task.x[order], y=task.y[order]), num_context=cut + copies)


def duplication(network: Network, episode: Episode, *, row: int, copies: Sequence[int] = COPIES) -> Duplication:
    """Copies one context row and looks at every query.

    Args:
        network: in evaluation mode; not changed.
        episode: of the network's kind.
        row: which context row.
        copies: how many copies, ascending from 0.

    Raises:
        BadInput: BAD_FLAG for a row that is not in the context, or numbers of copies that do not ascend from 0.
    """
    if not 0 <= row < episode.num_context:
        raise BadInput(ExitCode.BAD_FLAG, f"row is {row}: give 0 to {episode.num_context - 1}, a row of the context")
    if list(copies) != sorted(set(copies)) or not copies or copies[0] != 0:
        raise BadInput(ExitCode.BAD_FLAG, f"copies are {list(copies)}: give ascending numbers that start with 0")
    subject = Subject(network=network, path=AttentionPath.REFERENCE).fresh()
    runs = [subject.run([duplicated(episode, row=row, copies=count)]) for count in copies]
    places = [[row, *range(episode.num_context, episode.num_context + count)] for count in copies]
    masses = [query_weights(subject, run)[:, own].sum(1).numpy() for run, own in zip(runs, places, strict=True)]
    frozen = [_frozen_mass(subject, runs[0], row=row, copies=count).numpy() for count in copies]
    label = float(episode.task.y[row])
    prediction, towards, moved = _movement([run.outcomes[0].prediction for run in runs], episode, label=label)
    return Duplication(
        row=row,
        label=label,
        copies=tuple(copies),
        reader=reader_of(network),
        mass=np.stack(masses),
        frozen_mass=np.stack(frozen),
        prediction=prediction,
        towards=towards,
        moved=moved,
    )


def _frozen_mass(subject: Subject, run: Run, *, row: int, copies: int) -> Tensor:
    """[M] mass on the row and its copies where hidden states are those of a run without copies.

    The head reads each copy's hidden state, which is the row's. Attention with weight w on the row gives the copies
    the same logit, hence (k + 1)w / (1 + kw) in each head, whatever the length scaling.
    """
    num_context = run.inputs.x_context.shape[1]
    if reader_of(subject.network) is Reader.LAST_BLOCK:
        weights = block_weights(subject, run, block=-1)[:, run.trace.num_thinking :, run.trace.num_thinking + row]
        weights = weights[:, num_context:]
        return ((copies + 1) * weights / (1 + copies * weights)).mean(0)
    own = [row] * copies
    context, labels = run.trace.find("icl.h_context"), run.inputs.y_context
    longer, named = torch.cat([context, context[:, own]], dim=1), torch.cat([labels, labels[:, own]], dim=1)
    with torch.no_grad():
        _, extra = subject.network.head(run.trace.find("icl.h_query"), longer, named, run.inputs.num_classes)
    return extra["read_weights"][0][:, [row, *range(num_context, num_context + copies)]].sum(1)


def _movement(
    predictions: list[np.ndarray], episode: Episode, *, label: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`prediction`, `towards` and `moved` of `Duplication`, each [L, M]."""
    if episode.task.kind is TaskKind.CLASSIFICATION:
        values = np.stack(predictions)
        own = values[..., int(label)]
        return own, own - own[0], 0.5 * np.abs(values - values[0]).sum(-1)
    means = np.stack([prediction[:, 0] for prediction in predictions])
    way = (means - means[0]) / max(float(episode.task.y[: episode.num_context].std()), 1e-12)
    return means, way * np.sign(label - means[0]), np.abs(way)
