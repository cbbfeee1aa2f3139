"""Which context rows are read, and with which weight: by the head, and by attention in the first and last ICL block.

Seed 6.D. Read weights are rows that a prediction mechanism reads: neither causal neighbours nor a conclusion about
mechanism (seed 6.F). Shapes: N context rows, M query rows, T = N + M.
"""

import enum
from typing import Any

import numpy as np
import torch
from torch import Tensor

from eval.subject import Run, Subject
from eval.views import read_weights
from model.classification_head import RowReadingHead
from model.icl_transformer import AttentionPath
from model.network import Network
from priors.task import Episode, TaskKind


class Reader(enum.StrEnum):
    """What reads context rows for a query, last before the prediction."""

    HEAD = "head"  # a classification head that retrieves labels
    LAST_BLOCK = "last block"  # attention of the last ICL block: other heads read no rows


def reader_of(network: Network) -> Reader:
    """The last part of the network that reads context rows."""
    return Reader.HEAD if isinstance(network.head, RowReadingHead) else Reader.LAST_BLOCK


def block_weights(subject: Subject, run: Run, *, block: int) -> Tensor:
    """Attention weights [H, S, S] of one ICL block for the first table of a run, thinking rows included (S = P + T)."""
    call = run.trace.attention[block]
    with torch.no_grad():
        return subject.network.icl.blocks[block].attention.weights(call.x, call.source, view=call.view)[0]


def query_weights(subject: Subject, run: Run) -> Tensor:
    """Weights [M, N] with which queries read context rows at `reader_of`, mean over heads, first table of a run."""
    if reader_of(subject.network) is Reader.HEAD:
        return read_weights(subject, run)
    cut = run.inputs.x_context.shape[1]
    return _rows(block_weights(subject, run, block=-1).mean(0), run)[cut:, :cut]


def _rows(square: Tensor, run: Run) -> Tensor:
    """The part [T, T] of a square [S, S] that belongs to context and query rows."""
    return square[run.trace.num_thinking :, run.trace.num_thinking :]


def reading(network: Network, episode: Episode) -> dict[str, Any]:
    """All that is drawn of one episode, computed on the reference path, whose attention weights can be printed.

    Args:
        network: in evaluation mode; not changed.
        episode: of the network's kind.

    Returns:
        JSON values: kind, reader (see `Reader`), num_context, x_context [N][C], y_context [N], x_query [M][C], y_query
        [M] (what the model never saw), weights [M][N], attention_first and attention_last [T][T] (means over heads),
        and order_context [N], order_query [M]: rows by class (regression: by the first feature).
    """
    subject = Subject(network=network, path=AttentionPath.REFERENCE).fresh()
    run, evidence, answers = subject.run([episode]), episode.evidence(), episode.answers()
    keys = [evidence.y_context, answers]
    if evidence.kind is TaskKind.REGRESSION:
        keys = [evidence.x_context[:, 0], evidence.x_query[:, 0]]
    order_context, order_query = (np.argsort(key, kind="stable").tolist() for key in keys)
    return {
        "kind": evidence.kind.value,
        "reader": reader_of(network).value,
        "num_context": episode.num_context,
        "x_context": evidence.x_context.tolist(),
        "y_context": evidence.y_context.tolist(),
        "x_query": evidence.x_query.tolist(),
        "y_query": answers.tolist(),
        "weights": query_weights(subject, run).tolist(),
        "attention_first": _rows(block_weights(subject, run, block=0).mean(0), run).tolist(),
        "attention_last": _rows(block_weights(subject, run, block=-1).mean(0), run).tolist(),
        "order_context": order_context,
        "order_query": order_query,
    }
