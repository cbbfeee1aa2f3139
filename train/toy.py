"""For tests: a network that trains in milliseconds, its state before the first step, and tables that it can learn."""

import numpy as np
import torch

from model.icl_transformer import ICLConfig
from model.label_injection import LabelKind
from model.network import CellConfig, NetworkConfig
from priors.task import Episode, Task, TaskBatch, TaskKind, collate
from train.optimizer_config import OptimizerConfig
from train.state import TrainState, fresh_state


def small_network(kind: LabelKind) -> NetworkConfig:
    """A network that trains in milliseconds."""
    cell = CellConfig(width=8, num_rounds=1, num_heads=1, num_inducing=4, num_tokens=2)
    return NetworkConfig(kind=kind, cell=cell, icl=ICLConfig(width=16, num_blocks=1, num_heads=2))


def toy_state(kind: TaskKind) -> TrainState:
    """That network before its first step, on the CPU."""
    config = small_network(LabelKind(kind.value))
    return fresh_state(config, OptimizerConfig(), seed=0, device=torch.device("cpu"), identity={})


def toy_batch(kind: TaskKind, *, seed: int = 0, lacks_class: bool = False) -> TaskBatch:
    """Four tables whose label follows the first feature."""
    generator = np.random.default_rng(seed)
    episodes = []
    for _ in range(4):
        x = generator.normal(size=(20, 3)).astype(np.float32)
        y = (x[:, 0] > 0).astype(np.float32) if kind is TaskKind.CLASSIFICATION else 100 + 5 * x[:, 0]
        if lacks_class:
            y[:10], y[10:] = 0, 1
        task = Task(
            x=x,
            y=y.astype(np.float32),
            column_kinds=np.zeros(3, np.int8),
            level_counts=np.zeros(3, np.int32),
            kind=kind,
            num_classes=2 if kind is TaskKind.CLASSIFICATION else 0,
            family="toy",
        )
        episodes.append(Episode(task=task, num_context=10))
    return collate(episodes)
