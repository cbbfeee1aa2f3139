"""Network sizes by name."""

from model.attention import Norm
from model.bucket_borders import BorderRule, BucketConfig
from model.class_distribution import LogForm
from model.classification_head import ClassificationHeadConfig, LengthScaling
from model.icl_transformer import ICLConfig
from model.label_injection import ClassCode, LabelKind
from model.network import CellConfig, NetworkConfig
from model.regression_heads import RegressionHeadConfig
from model.row_embedding import ReadoutConfig

_RESIDUAL_DECAY = 0.95  # of networks that train for minutes (docs/experiments.md)


def tiny(kind: LabelKind) -> NetworkConfig:
    """1.0 M parameters: minutes on two CPU cores. Regression learns more from one round and more tasks."""
    cell = CellConfig(num_rounds=2 if kind is LabelKind.CLASSIFICATION else 1)
    return NetworkConfig(
        kind=kind,
        cell=cell,
        readout=ReadoutConfig(num_summaries=16, sketch_width=256),
        icl=ICLConfig(residual_decay=_RESIDUAL_DECAY),
    )


def small(kind: LabelKind) -> NetworkConfig:
    """About 2.2 M parameters: half an hour on a CPU, minutes on a GPU."""
    return NetworkConfig(
        kind=kind,
        cell=CellConfig(width=48, num_heads=2, num_inducing=16),
        readout=ReadoutConfig(num_summaries=16, sketch_width=384),
        icl=ICLConfig(width=192, num_heads=4, num_blocks=6, residual_decay=_RESIDUAL_DECAY),
        classification=ClassificationHeadConfig(num_heads=6, head_width=32),
        regression=RegressionHeadConfig(buckets=BucketConfig(num_buckets=256)),
    )


def base(kind: LabelKind) -> NetworkConfig:
    """About 5 M parameters: one GPU."""
    return NetworkConfig(
        kind=kind,
        max_features=200,
        cell=CellConfig(width=64, num_heads=4, num_inducing=32),
        readout=ReadoutConfig(num_summaries=16, sketch_width=512),
        icl=ICLConfig(width=256, num_heads=4, num_blocks=8, max_classes=32),
        classification=ClassificationHeadConfig(num_heads=6, head_width=64),
        regression=RegressionHeadConfig(buckets=BucketConfig(num_buckets=512)),
    )


def large(kind: LabelKind) -> NetworkConfig:
    """About 28 M parameters (33 M with 5,000 regression buckets): a cluster (the scale of TabICL v2)."""
    return NetworkConfig(
        kind=kind,
        max_features=500,
        cell=CellConfig(width=128, num_rounds=3, num_heads=8, num_inducing=128),
        readout=ReadoutConfig(num_summaries=8, sketch_width=512),
        icl=ICLConfig(width=512, num_heads=8, num_blocks=12, max_classes=160, norm=Norm.RMS),
        classification=ClassificationHeadConfig(num_heads=6, head_width=64),
        regression=RegressionHeadConfig(buckets=BucketConfig(num_buckets=5000, inner_width=0.001)),
    )


def official(kind: LabelKind) -> NetworkConfig:
    """About 53 M parameters (59 M in regression): TabPFN-3's published sizes. A cluster; tests count it on no memory.

    Published: cells of width 128; 3 rounds of column blocks (8 heads, 128 inducing points) and row blocks (8 heads);
    4 summaries of 128 flattened to 512; 24 ICL blocks of 8 heads, queries reading the first key/value head, orthogonal
    class codes, no role embeddings; feed-forward factor 2, RMSNorm; retrieval by 6 heads of width 64 without length
    scaling; 160 classes; 512 → 1024 → 5,000 buckets between the published knots.

    Mini against it:
    - cells of a row exchange messages through 4 temporary tokens; the official row blocks attend from cell to cell
      with rotary positions;
    - column and row blocks alternate; the official ones are 3 of one, then 3 of the other;
    - in the sizes above, a sketch that binds cells to the places of their columns stands in for rotary positions;
    - a cell is a fixed set of features of value and rank, and looks at 2 other columns; the official one is a linear
      map of 3 grouped columns;
    - label codes start as large as what they are added to, not of length 1; classes that the context lacks are masked
      in the loss, where the official one has a slot of log(4e-5) for each.

    Our training takes targets as they are up to ±256 context deviations, twice the outermost border (±24 in the sizes
    above), so that the outer buckets have something to learn from.
    """
    return NetworkConfig(
        kind=kind,
        max_features=500,
        cell=CellConfig(width=128, num_rounds=3, num_heads=8, num_inducing=128, num_tokens=4),
        icl=ICLConfig(
            width=512,
            num_blocks=24,
            num_heads=8,
            num_kv_heads_query=1,
            length_scaling=True,
            feed_forward_factor=2,
            max_classes=160,
            class_code=ClassCode.ORTHOGONAL,
            role_embeddings=False,
            norm=Norm.RMS,
        ),
        classification=ClassificationHeadConfig(
            num_heads=6, head_width=64, length_scaling=LengthScaling.NONE, log_form=LogForm.TABPFN3
        ),
        regression=RegressionHeadConfig(buckets=BucketConfig(num_buckets=5000, rule=BorderRule.TABPFN3)),
    )
