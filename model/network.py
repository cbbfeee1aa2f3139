"""The whole network: scalars → cells → columns → rows → in-context learning → a typed prediction.

There is no way to hand a query label to it: `NetworkInputs` has no such field, and losses are computed outside.
"""

import dataclasses

import torch
from torch import Tensor, nn

from model.attention import Norm
from model.bar_distribution import BarDistribution, BucketConfig
from model.cell_embedding import CellEmbedding, CellFeatures, ContextStatistics, context_statistics
from model.classification_head import (
    ClassLogProbabilities,
    RetrievalClassificationHead,
    RetrievalConfig,
    check_labels,
    log_probabilities,
    present_classes,
)
from model.column_embedding import ColumnBlock
from model.icl_transformer import ICLConfig, ICLTransformer, LabelEncoder, LabelKind
from model.regression_heads import BarHead, target_statistics
from model.row_embedding import RowBlock, RowReadout
from tools.failure import ExitCode, Failure


@dataclasses.dataclass(frozen=True, kw_only=True)
class CellConfig:
    """Sizes of the stages before the row token."""

    width: int = 32
    """E, width of a cell."""
    num_rounds: int = 2
    """How often the column stage and the row stage alternate."""
    num_heads: int = 1
    """Attention heads in both."""
    num_inducing: int = 16
    """Inducing points of the column stage."""
    num_tokens: int = 4
    """Temporary tokens through which the cells of a row exchange messages."""
    target_aware: bool = True
    """Whether the inducing points read context labels beside the cells (recorded with the checkpoint)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """Everything that fixes the network's shape."""

    kind: LabelKind = LabelKind.CLASSIFICATION
    """Classification or regression."""
    max_features: int = 100
    """Tables with more columns are refused."""
    cell: CellConfig = CellConfig()
    """Stages before the row token."""
    icl: ICLConfig = ICLConfig()
    """The in-context-learning stage."""
    retrieval: RetrievalConfig = RetrievalConfig()
    """Classification head."""
    buckets: BucketConfig = BucketConfig()
    """Regression head."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkInputs:
    """What a prediction may depend on.

    Args:
        x_context: [B, N, C] raw values; NaN is missing.
        y_context: [B, N] class ids or raw targets.
        x_query: [B, M, C].
        column_kinds: [B, C] int: 0 number, 1 ordinal, 2 category, negative for padding at the end.
        num_classes: K, the largest number of classes of a table in the batch; 0 for regression.
        context_mask: [B, N] bool, True where a row is real, or None when nothing is padded.
        query_mask: [B, M] bool, or None.
    """

    x_context: Tensor
    y_context: Tensor
    x_query: Tensor
    column_kinds: Tensor
    num_classes: int
    context_mask: Tensor | None = None
    query_mask: Tensor | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hidden:
    """Final hidden states: context [B, N, D] and query [B, M, D]."""

    context: Tensor
    query: Tensor


class Network(nn.Module):
    """Five stages in a line; see the modules for each."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        _check_sizes(config)
        self.config = config
        cell, icl = config.cell, config.icl
        self.cell_features = CellFeatures()
        self.cell_embedding = CellEmbedding(cell.width, norm=icl.norm)
        self.column_labels = None
        if cell.target_aware:
            self.column_labels = LabelEncoder(config.kind, width=cell.width, max_classes=icl.max_classes)
        self.column_blocks = nn.ModuleList(
            ColumnBlock(cell.width, num_heads=cell.num_heads, num_inducing=cell.num_inducing, norm=icl.norm)
            for _ in range(cell.num_rounds)
        )
        self.row_blocks = nn.ModuleList(
            RowBlock(cell.width, num_heads=cell.num_heads, num_tokens=cell.num_tokens, norm=icl.norm)
            for _ in range(cell.num_rounds)
        )
        self.row_readout = RowReadout(cell.width, num_heads=cell.num_heads, row_width=icl.width, norm=icl.norm)
        self.icl = ICLTransformer(config.kind, icl)
        if config.kind is LabelKind.CLASSIFICATION:
            self.head = RetrievalClassificationHead(icl.width, config.retrieval)
        else:
            self.head = BarHead(icl.width, config.buckets)

    def forward(self, inputs: NetworkInputs) -> ClassLogProbabilities | BarDistribution:
        """Predicts every query of every table.

        Raises:
            Failure: TABLE_EMPTY without context rows or columns; OVER_LIMIT for too many columns or classes, or a label
                outside 0..K-1.
        """
        labels, location, scale = self._labels(inputs)
        hidden = self.hidden(inputs, labels)
        if self.config.kind is LabelKind.REGRESSION:
            return self.head(hidden.query, location=location, scale=scale)
        probabilities, _ = self.read(inputs, hidden)
        present = present_classes(inputs.y_context, inputs.num_classes, context_mask=inputs.context_mask)
        return log_probabilities(probabilities, present, clip=self.config.retrieval.clip)

    def read(self, inputs: NetworkInputs, hidden: Hidden) -> tuple[Tensor, dict[str, Tensor]]:
        """The classification head's probabilities [B, M, K] and read weights [B, M, N]."""
        return self.head(hidden.query, hidden.context, inputs.y_context, inputs.num_classes, inputs.context_mask)

    def hidden(self, inputs: NetworkInputs, labels: Tensor | None = None) -> Hidden:
        """Hidden states after the in-context-learning stage; labels [B, N] as `_labels` makes them."""
        if labels is None:
            labels = self._labels(inputs)[0]
        rows = self.rows(inputs, labels)
        num_context = inputs.x_context.shape[1]
        context, query = self.icl(
            rows[:, :num_context], labels, rows[:, num_context:], inputs.context_mask, inputs.query_mask
        )
        return Hidden(context=context, query=query)

    def statistics(self, inputs: NetworkInputs) -> ContextStatistics:
        """What normalisation knows of the table: context rows only."""
        return context_statistics(inputs.x_context, _full_mask(inputs))

    def rows(self, inputs: NetworkInputs, labels: Tensor) -> Tensor:
        """Row tokens [B, T, D]: feature values encoded, before label injection (seed 5.11)."""
        num_context = inputs.x_context.shape[1]
        x = torch.cat([inputs.x_context, inputs.x_query], dim=1)
        features = self.cell_features(x, inputs.column_kinds, self.statistics(inputs))
        real = inputs.column_kinds >= 0
        padded = not bool(real.all())
        cells = self.cell_embedding(features, real.sum(1) if padded else None)
        row_bias = _hide(real) if padded else None
        column_bias = None if inputs.context_mask is None else _hide(inputs.context_mask)
        column_labels = None
        if self.column_labels is not None:
            column_labels = self.column_labels(labels).to(cells.dtype)[:, None]
        for column_block, row_block in zip(self.column_blocks, self.row_blocks, strict=True):
            cells = column_block(cells.transpose(1, 2), column_labels, num_context=num_context, bias=column_bias)
            cells = row_block(cells.transpose(1, 2), bias=row_bias)
        return self.row_readout(cells, bias=row_bias)

    def _labels(self, inputs: NetworkInputs) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Context labels as the encoders take them, and the target's location and scale [B, 1] in regression."""
        self._check_limits(inputs)
        if self.config.kind is LabelKind.CLASSIFICATION:
            check_labels(inputs.y_context, inputs.num_classes)
            return inputs.y_context, None, None
        mask = _full_mask(inputs)
        location, scale = target_statistics(inputs.y_context, mask)
        scaled = torch.where(mask, (inputs.y_context - location) / scale, 0.0)
        return scaled.to(inputs.x_context.dtype), location, scale

    def _check_limits(self, inputs: NetworkInputs) -> None:
        _, rows, columns = inputs.x_context.shape
        if rows == 0 or columns == 0:
            raise Failure(ExitCode.TABLE_EMPTY, f"the context has {rows} rows and {columns} columns: give one of each")
        limit = self.config.max_features
        if columns > limit:
            raise Failure(ExitCode.OVER_LIMIT, f"a table has {columns} features, the model takes {limit}: select fewer")
        limit, classes = self.config.icl.max_classes, inputs.num_classes
        if self.config.kind is LabelKind.CLASSIFICATION and classes > limit:
            raise Failure(ExitCode.OVER_LIMIT, f"a table has {classes} classes, the model takes {limit}: merge some")


def _check_sizes(config: NetworkConfig) -> None:
    """Refuses widths that do not divide.

    Raises:
        Failure: BAD_FLAG, naming both.
    """
    wholes = (
        ("cell.width", config.cell.width, "cell.num_heads", config.cell.num_heads),
        ("icl.width", config.icl.width, "icl.num_heads", config.icl.num_heads),
        ("icl.width", config.icl.width, "cell.width", config.cell.width),
    )
    for name, width, part, divisor in wholes:
        if divisor < 1 or width < 1 or width % divisor:
            raise Failure(ExitCode.BAD_FLAG, f"{name} {width} is no multiple of {part} {divisor}: choose one that is")


def _full_mask(inputs: NetworkInputs) -> Tensor:
    if inputs.context_mask is not None:
        return inputs.context_mask
    return torch.ones(inputs.x_context.shape[:2], dtype=torch.bool, device=inputs.x_context.device)


def _hide(mask: Tensor) -> Tensor:
    """Additive key bias [B, 1, 1, 1, S] from a mask of what is real [B, S]."""
    return torch.zeros(mask.shape, device=mask.device).masked_fill(~mask, -torch.inf)[:, None, None, None, :]
