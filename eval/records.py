"""From records that hold answers to inputs that cannot: the one gate between data and network."""

import numpy as np
import torch

from model.network import NetworkInputs
from priors.task import TaskBatch


def network_inputs(batch: TaskBatch, device: torch.device | None = None) -> NetworkInputs:
    """Takes from a batch what a prediction may depend on. `batch.y_query` is not read.

    Masks that hide nothing are left out, so that unpadded batches run without mask tensors.
    """

    def tensor(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(device)

    return NetworkInputs(
        x_context=tensor(batch.x_context),
        y_context=tensor(batch.y_context),
        x_query=tensor(batch.x_query),
        column_kinds=tensor(batch.column_kinds),
        num_classes=int(batch.num_classes.max(initial=0)),
        context_mask=None if batch.context_mask.all() else tensor(batch.context_mask),
        query_mask=None if batch.query_mask.all() else tensor(batch.query_mask),
        has_padding=bool((batch.column_kinds < 0).any()),
    )
