"""From records that hold answers to inputs that cannot: the one gate between data and network."""

import torch

from model.network import NetworkInputs
from priors.task import TaskBatch


def network_inputs(batch: TaskBatch) -> NetworkInputs:
    """Takes from a batch what a prediction may depend on. `batch.y_query` is not read.

    Masks that hide nothing are left out, so that unpadded batches run without mask tensors.
    """
    return NetworkInputs(
        x_context=torch.from_numpy(batch.x_context),
        y_context=torch.from_numpy(batch.y_context),
        x_query=torch.from_numpy(batch.x_query),
        column_kinds=torch.from_numpy(batch.column_kinds),
        num_classes=int(batch.num_classes.max(initial=0)),
        context_mask=None if batch.context_mask.all() else torch.from_numpy(batch.context_mask),
        query_mask=None if batch.query_mask.all() else torch.from_numpy(batch.query_mask),
    )
