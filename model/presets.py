"""Network sizes by name."""

from model.attention import Norm
from model.bar_distribution import BucketConfig
from model.classification_head import ClassificationHeadConfig
from model.icl_transformer import ICLConfig
from model.label_injection import LabelKind
from model.network import CellConfig, NetworkConfig
from model.regression_heads import RegressionHeadConfig


def tiny(kind: LabelKind) -> NetworkConfig:
    """0.9 M parameters: minutes on two CPU cores. Regression learns more from one round and more tasks."""
    return NetworkConfig(kind=kind, cell=CellConfig(num_rounds=2 if kind is LabelKind.CLASSIFICATION else 1))


def small(kind: LabelKind) -> NetworkConfig:
    """About 2 M parameters: hours on a CPU, minutes on a GPU."""
    return NetworkConfig(
        kind=kind,
        cell=CellConfig(width=48, num_heads=2, num_inducing=16),
        icl=ICLConfig(width=192, num_heads=4, num_blocks=6),
        classification=ClassificationHeadConfig(num_heads=6, head_width=32),
        regression=RegressionHeadConfig(buckets=BucketConfig(num_buckets=256)),
    )


def base(kind: LabelKind) -> NetworkConfig:
    """About 5 M parameters: one GPU."""
    return NetworkConfig(
        kind=kind,
        max_features=200,
        cell=CellConfig(width=64, num_heads=4, num_inducing=32),
        icl=ICLConfig(width=256, num_heads=4, num_blocks=8, max_classes=32),
        classification=ClassificationHeadConfig(num_heads=6, head_width=64),
        regression=RegressionHeadConfig(buckets=BucketConfig(num_buckets=512)),
    )


def large(kind: LabelKind) -> NetworkConfig:
    """About 27 M parameters (33 M with 5,000 regression buckets): a cluster (the scale of TabICL v2)."""
    return NetworkConfig(
        kind=kind,
        max_features=500,
        cell=CellConfig(width=128, num_rounds=3, num_heads=8, num_inducing=128),
        icl=ICLConfig(width=512, num_heads=8, num_blocks=12, max_classes=160, norm=Norm.RMS),
        classification=ClassificationHeadConfig(num_heads=6, head_width=64),
        regression=RegressionHeadConfig(buckets=BucketConfig(num_buckets=5000, inner_width=0.001)),
    )
