"""Tasks drawn from the prior that `tabicl` is pretrained on: what our own is compared with, in speed and in realism.

Its package offers four kinds: `mlp_scm`, `tree_scm`, `mix_scm` (70 % of the first, 30 % of the second) and `graph_scm`.
Nothing is changed but sizes: rows and features are fixed, groups of four tasks share their hyperparameters as they do
by default, and its check of the classes stays on. Its tree model is that of the package `xgboost`.

Targets that depend on this module have `peers = True`: they see the packages of requirements-peers.lock.
"""

import contextlib
import dataclasses
import enum
import importlib.util
import pathlib
import random
import time
import warnings
from collections.abc import Iterator

import numpy as np
import torch

from tools.failure import BadInput, ExitCode

MAX_SEED = 2**32 - 1


class PeerPriorName(enum.StrEnum):
    """A prior of tabicl."""

    MLP_SCM = "mlp_scm"
    TREE_SCM = "tree_scm"
    MIX_SCM = "mix_scm"
    GRAPH_SCM = "graph_scm"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PeerPriorConfig:
    """What is drawn, and how large."""

    prior: PeerPriorName
    """Which of its priors."""
    rows: int = 256
    """R of every task, context and query together."""
    features: int = 20
    """C of every task, before those of a single value are dropped."""
    max_classes: int = 10
    """Most classes of a task."""
    filtered: bool = False
    """Whether tasks that extra trees cannot predict are drawn anew (`filter_unpredictable_datasets`)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PeerTasks:
    """Classification tasks of one call.

    Args:
        x: per task [R, C'] float32, C' ≤ C: columns of a single value are dropped by their code.
        y: per task [R] int64, class ids.
        seconds: wall-clock time that their code took for all of them.
    """

    x: tuple[np.ndarray, ...]
    y: tuple[np.ndarray, ...]
    seconds: float

    def save(self, path: pathlib.Path) -> None:
        """Writes arrays `x_0`, `y_0`, `x_1`, … to an npz file, which `numpy.load` reads without pickles."""
        named = {f"x_{i}": x for i, x in enumerate(self.x)} | {f"y_{i}": y for i, y in enumerate(self.y)}
        with path.open("wb") as sink:
            np.savez_compressed(sink, **named)


def checked(config: PeerPriorConfig, *, seed: int, count: int) -> PeerPriorConfig:
    """Returns the config if tasks can be drawn from it.

    Raises:
        BadInput: BAD_FLAG, naming the flag, its value and what is possible; NOT_FOUND without `xgboost`.
    """
    rules = (
        (config.rows >= 16, f"--rows {config.rows} is too small: give 16 or more"),
        (config.features >= 2, f"--features {config.features} is too small: give 2 or more"),
        (config.max_classes >= 2, f"--max-classes {config.max_classes} is too small: give 2 or more"),
        (count >= 1, f"--num-tasks {count} is too small: give 1 or more"),
        (0 <= seed <= MAX_SEED, f"--seed {seed} is outside 0…2^32−1: give a whole number of that range"),
    )
    for holds, complaint in rules:
        if not holds:
            raise BadInput(ExitCode.BAD_FLAG, complaint)
    if importlib.util.find_spec("xgboost") is None:
        raise BadInput(ExitCode.NOT_FOUND, "tabicl's prior needs xgboost, which is absent: install xgboost-cpu")
    return config


def sample_peer_tasks(config: PeerPriorConfig, *, seed: int, count: int) -> PeerTasks:
    """Draws `count` tasks on one thread: equal arguments, equal tasks.

    Raises:
        BadInput: what `checked` raises.
    """
    checked(config, seed=seed, count=count)
    with warnings.catch_warnings(), _global_generators(seed):
        warnings.simplefilter("ignore")  # theirs
        from tabicl.prior import PriorDataset  # here, since it imports xgboost: `checked` says so where that is absent
        from tabicl.prior.graph_lib._config import PriorConfig

        dataset = PriorDataset(
            batch_size=count,
            min_features=config.features,
            max_features=config.features,
            max_seq_len=config.rows,
            max_classes=config.max_classes,
            prior_type=config.prior.value,
            config=PriorConfig(filter_unpredictable_datasets=config.filtered),
            n_jobs=1,
        )
        start = time.perf_counter()
        x, y, kept, _, _ = dataset.get_batch()
        seconds = time.perf_counter() - start
    return PeerTasks(
        x=tuple(np.ascontiguousarray(x[i, :, : int(kept[i])].float().numpy()) for i in range(count)),
        y=tuple(y[i].long().numpy() for i in range(count)),
        seconds=seconds,
    )


@contextlib.contextmanager
def _global_generators(seed: int) -> Iterator[None]:
    """Seeds the three generators that their code draws from, and puts them back."""
    before = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # style: theirs draws from the global generators, restored after this
        np.random.seed(seed)  # style: as above
        random.seed(seed)  # style: as above
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])
