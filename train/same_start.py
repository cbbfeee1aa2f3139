"""Workers that go on together begin at one step, or not at all."""

import torch
from torch import distributed

from train.job import Place


class DifferentStarts(Exception):
    """Workers found different checkpoints: a shared folder does not show all of them the same yet.

    It is no refusal: started again, workers look again.
    """


def check_same_start(step: int, *, place: Place) -> None:
    """Compares where every worker stands before its first step; one worker alone always agrees.

    Without this, workers at different steps would average the gradients of different batches, or wait for one that is
    done already.

    Raises:
        DifferentStarts: on every worker, naming the first and the last step.
    """
    if place.world_size == 1:
        return
    ends = torch.tensor([step, -step], device=place.device)
    distributed.all_reduce(ends, distributed.ReduceOp.MAX)
    last, first = int(ends[0]), -int(ends[1])
    if first != last:
        raise DifferentStarts(f"workers found checkpoints of steps {first} to {last} in one folder")
