"""A timed pretraining on one device: fresh tasks drawn there, validation now and then, until the time is over.

It shows what a chip reaches in minutes; `//train:pretrain` is the real thing, with checkpoints and audits.
"""

import dataclasses
import sys
import time
from collections.abc import Iterator

import torch

from bench.findings import Finding, TimeBudget
from model import presets as networks
from model.initialisation import initial_network
from model.label_injection import LabelKind
from model.network import NetworkConfig
from priors import presets as priors
from priors.batches import BatchPlan
from priors.fresh_tasks import FreshTasks
from priors.generation import held_out_episodes
from priors.group import TaskGroup
from priors.mixture import PriorConfig, sample_group
from priors.recipe import Recipe, ShardConfig
from priors.task import TaskBatch
from train.compilation import can_compile, compile_blocks
from train.device_feed import DeviceFeed
from train.optimizer_config import OptimizerConfig, base_optimizer, schedule
from train.optimizers import make_optimizer
from train.step import compute_dtype, training_step
from train.validation import VALIDATION_SEED, same_shape_batches, validation_figures

_TICKS = 1000  # of the schedule, which here follows the clock
_NUM_GROUPS = 1024  # then the same tasks come again, cut otherwise


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
    """What is trained.

    Args:
        network: its config.
        prior: from which tasks are drawn.
        optimizer: of the training.
        batch_size: tasks of a step.
        group_size: tasks that are drawn together; a multiple of the batch size.
        num_validation_tasks: held-out tasks behind a point of the curve.
        points: of the curve, beside the one before the first step.
    """

    network: NetworkConfig
    prior: PriorConfig
    optimizer: OptimizerConfig
    batch_size: int
    group_size: int
    num_validation_tasks: int
    points: int = 6


def base_trial() -> Trial:
    """The network and the first tasks of the preset `base`, in batches that fill a GPU."""
    return Trial(
        network=networks.base(LabelKind.CLASSIFICATION),
        prior=priors.base().shards.prior,
        optimizer=base_optimizer(),
        batch_size=256,
        group_size=1024,
        num_validation_tasks=256,
    )


def quick_trial() -> Trial:
    """The same code on tasks of a size that a CPU trains on in seconds."""
    prior = dataclasses.replace(priors.tiny().shards.prior, max_rows=64, max_features=4)
    return dataclasses.replace(
        base_trial(),
        network=networks.tiny(LabelKind.CLASSIFICATION),
        prior=prior,
        batch_size=4,
        group_size=16,
        num_validation_tasks=8,
        points=2,
    )


class DeviceTasks(FreshTasks):
    """Fresh tasks drawn on a device; on a GPU, other ones than the CPU draws from the same seeds.

    Args:
        recipe: of the tasks.
        device: where they are drawn.
    """

    def __init__(self, recipe: Recipe, *, device: torch.device) -> None:
        super().__init__(recipe)
        self._prior, self._device = recipe.config.prior, device

    def group(self, index: int) -> TaskGroup:
        """Draws group `index`."""
        entry = self.groups[index]
        size = {"rows": entry.rows, "features": entry.features, "count": entry.count}
        return sample_group(self._prior, seed=self._seed(entry.part, entry.batch), **size, device=str(self._device))


class GroupByGroup:
    """Batches that use up one group before the next is drawn.

    Args:
        tasks: where the groups come from.
        trial: batch size.
    """

    def __init__(self, tasks: FreshTasks, trial: Trial) -> None:
        self._tasks, self._size = tasks, trial.batch_size
        self._split = priors.CURRICULA["base"][0].split
        self._plan: tuple[int, BatchPlan] | None = None

    def batch(self, step: int) -> TaskBatch:
        """The batch of a step."""
        number, place = divmod(step, self._tasks.groups[0].count // self._size)
        number %= len(self._tasks.groups)
        if self._plan is None or self._plan[0] != number:
            alone = _OneGroup(self._tasks, number)
            self._plan = (number, BatchPlan(alone, batch_size=self._size, seed=step, split=self._split))
        return self._plan[1].batch(place)


class _OneGroup:
    """One group of fresh tasks as a set."""

    def __init__(self, tasks: FreshTasks, number: int) -> None:
        self.groups, self.digest = (tasks.groups[number],), tasks.digest
        self._tasks, self._number = tasks, number

    def group(self, index: int) -> TaskGroup:
        return self._tasks.group(self._number + index)


def run_trial(trial: Trial, device: torch.device, *, budget: TimeBudget) -> Iterator[Finding]:
    """Trains until the budget is spent; yields the validation curve, at least its first and its last point."""
    batches = same_shape_batches(held_out_episodes(trial.prior, seed=VALIDATION_SEED, count=trial.num_validation_tasks))
    network = initial_network(trial.network, seed=0).to(device)
    is_compiled = device.type == "cuda" and can_compile()
    if is_compiled:
        compile_blocks(network)
    optimizer, dtype = make_optimizer(network, trial.optimizer), compute_dtype(device)
    clock = TimeBudget(budget.left)
    with _feed(trial, device) as feed:
        step, losses, trained = 0, [], 0.0
        yield _point(validation_figures(network, batches)["nll"], step, trained, trial=trial)
        for point in range(1, trial.points + 1):
            start = time.perf_counter()
            while clock.share < point / (trial.points + 0.5) or not losses:  # half a point is left for validation
                factor = schedule(int(clock.share * _TICKS), num_steps=_TICKS, config=trial.optimizer)
                network.train()
                result = training_step(network, optimizer, batch=feed.batch(step), factor=factor, dtype=dtype)
                losses.append(result.loss)
                step += 1
            trained += time.perf_counter() - start
            found = _point(validation_figures(network, batches)["nll"], step, trained, trial=trial)
            facts = {"train_loss": sum(losses) / len(losses), "compiled": is_compiled}
            losses.clear()
            yield dataclasses.replace(found, facts={**found.facts, **facts})


def _feed(trial: Trial, device: torch.device) -> DeviceFeed:
    config = ShardConfig(prior=trial.prior, group_size=trial.group_size, groups_per_part=1)
    tasks = DeviceTasks(Recipe(config=config, seed=0, num_parts=_NUM_GROUPS), device=device)
    return DeviceFeed(GroupByGroup(tasks, trial).batch, device=device, num_steps=sys.maxsize)


def _point(nll: float, step: int, seconds: float, *, trial: Trial) -> Finding:
    tasks = step * trial.batch_size
    name = f"held-out NLL after {seconds:.0f} s of training, {tasks:,} tasks"
    return Finding(name=name, value=nll, unit="nats", facts={"tasks": tasks, "steps": step, "seconds": seconds})
