"""For tests of this package: a main job of toy size."""

from model.label_injection import LabelKind
from priors.generation import ShardConfig
from priors.mixture import PriorConfig
from train.cluster import ClusterConfig
from train.loop import LoopConfig
from train.presets import DataConfig, ModelConfig, PretrainConfig
from train.toy import small_network


def toy_pretraining(*, num_workers: int = 1) -> PretrainConfig:
    """Two networks that train in milliseconds, on tasks of 64 rows, eight in a batch."""
    prior = PriorConfig(min_rows=64, max_rows=64, max_features=4)
    loop = LoopConfig(num_steps=99, batch_size=8, log_every=10, checkpoint_every=50)
    models = {
        kind.value: ModelConfig(network=small_network(kind), loop=loop)
        for kind in (LabelKind.CLASSIFICATION, LabelKind.REGRESSION)
    }
    shards = ShardConfig(prior=prior, group_size=8, groups_per_part=4)
    data = DataConfig(shards=shards, num_tasks=8, num_validation_tasks=8)
    return PretrainConfig(**models, data=data, cluster=ClusterConfig(num_workers=num_workers))
