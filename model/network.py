"""The whole network: scalars → cells → columns → rows → in-context learning → a typed prediction.

There is no way to hand a query label to it: `NetworkInputs` has no such field, and losses are computed outside.
"""

import dataclasses

import torch
from torch import Tensor, nn

from model import input_checks
from model.cell_embedding import (
    DEFAULT_OFFSETS,
    CellEmbedding,
    CellFeatures,
    ContextStatistics,
    context_statistics,
)
from model.class_distribution import ClassLogProbabilities
from model.classification_head import (
    ClassificationHeadConfig,
    LabelMemory,
    log_probabilities,
    make_classification_head,
)
from model.column_embedding import ColumnBlock
from model.icl_transformer import AttentionPath, ICLConfig, ICLMemory, ICLTransformer
from model.label_injection import LabelEncoder, LabelKind
from model.regression_heads import RegressionHeadConfig, RegressionPrediction, make_regression_head
from model.row_embedding import ReadoutConfig, RowBlock, RowReadout
from model.target_scaling import target_statistics
from tools.failure import BadInput, ExitCode, Failure


@dataclasses.dataclass(frozen=True, kw_only=True)
class CellConfig:
    """Sizes of the stages that work on cells."""

    width: int = 32
    """E, width of a cell."""
    feature_offsets: tuple[int, ...] = DEFAULT_OFFSETS
    """Which columns to its right, around the table, a cell reads as its feature group; (0,) is its own alone."""
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

    def __post_init__(self) -> None:
        """Refuses numbers of parts that are none.

        Raises:
            Failure: BAD_FLAG, naming field and value.
        """
        for name in ("num_rounds", "num_inducing", "num_tokens"):
            if getattr(self, name) < 1:
                raise Failure(ExitCode.BAD_FLAG, f"cell.{name} is {getattr(self, name)}: give 1 or more")


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """Everything that fixes the network's shape."""

    kind: LabelKind = LabelKind.CLASSIFICATION
    """Classification or regression."""
    max_features: int = 100
    """Tables with more columns are refused."""
    cell: CellConfig = CellConfig()
    """Stages before the row token."""
    readout: ReadoutConfig = ReadoutConfig()
    """From cells to the row token."""
    icl: ICLConfig = ICLConfig()
    """The in-context-learning stage."""
    classification: ClassificationHeadConfig = ClassificationHeadConfig()
    """Classification head."""
    regression: RegressionHeadConfig = RegressionHeadConfig()
    """Regression head."""

    def __post_init__(self) -> None:
        """Refuses a limit that no table is within.

        Raises:
            Failure: BAD_FLAG, naming field and value.
        """
        if self.max_features < 1:
            raise Failure(ExitCode.BAD_FLAG, f"max_features is {self.max_features}: give 1 or more")


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
        label_mask: [B, N] bool, False where a context row is shown without its label (seeds 5.B, 5.H), or None.
        has_padding: whether any column is padding; None to look, for which a GPU must be waited for.
    """

    x_context: Tensor
    y_context: Tensor
    x_query: Tensor
    column_kinds: Tensor
    num_classes: int
    context_mask: Tensor | None = None
    query_mask: Tensor | None = None
    label_mask: Tensor | None = None
    has_padding: bool | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hidden:
    """Final hidden states: context [B, N, D] and query [B, M, D]."""

    context: Tensor
    query: Tensor


@dataclasses.dataclass(frozen=True, kw_only=True)
class ContextMemory:
    """A context that was passed through every stage once: queries are predicted from it (seed 5.1).

    Args:
        column_kinds: [B, C].
        statistics: of the columns.
        columns: keys and values of each column block's inducing points.
        icl: keys and values of each ICL block.
        labels: what the classification head reads, or None in regression.
        location: [B, 1] of the targets, or None in classification.
        scale: [B, 1], or None.
    """

    column_kinds: Tensor
    statistics: ContextStatistics
    columns: tuple[tuple[Tensor, Tensor], ...]
    icl: ICLMemory
    labels: LabelMemory | None
    location: Tensor | None
    scale: Tensor | None


class Network(nn.Module):
    """Five stages in a line; see the modules for each."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        _check_sizes(config)
        self.config = config
        cell, icl = config.cell, config.icl
        self.cell_features = CellFeatures()
        self.cell_embedding = CellEmbedding(cell.width, norm=icl.norm, offsets=cell.feature_offsets)
        self.column_labels = None
        if cell.target_aware:
            self.column_labels = LabelEncoder(
                config.kind, width=cell.width, max_classes=icl.max_classes, class_code=icl.class_code
            )
        self.column_blocks = nn.ModuleList(
            ColumnBlock(cell.width, num_heads=cell.num_heads, num_inducing=cell.num_inducing, norm=icl.norm)
            for _ in range(cell.num_rounds)
        )
        self.row_blocks = nn.ModuleList(
            RowBlock(cell.width, num_heads=cell.num_heads, num_tokens=cell.num_tokens, norm=icl.norm)
            for _ in range(cell.num_rounds)
        )
        self.row_readout = RowReadout(
            cell.width,
            config.readout,
            num_heads=cell.num_heads,
            row_width=icl.width,
            max_features=config.max_features,
            norm=icl.norm,
        )
        self.icl = ICLTransformer(config.kind, icl)
        if config.kind is LabelKind.CLASSIFICATION:
            self.head = make_classification_head(config.classification, width=icl.width, max_classes=icl.max_classes)
        else:
            self.head = make_regression_head(config.regression, width=icl.width)

    def forward(self, inputs: NetworkInputs) -> ClassLogProbabilities | RegressionPrediction:
        """Predicts every query of every table.

        Raises:
            BadInput (a ValueError): TABLE_EMPTY without context rows, queries or columns; OVER_LIMIT for too many
                columns or classes, or a label outside 0..K-1; BAD_MASK for a mask of another shape or dtype, or one
                that hides a whole context.
        """
        input_checks.check_rows(inputs.x_context.shape[1], inputs.x_query.shape[1])
        if self.icl.path is AttentionPath.CACHED:
            return self.predict(self.remember(inputs), inputs.x_query, query_mask=inputs.query_mask)
        labels, location, scale = self._labels(inputs)
        hidden = self.hidden(inputs, labels)
        if self.config.kind is LabelKind.REGRESSION:
            return self.head(hidden.query, location=location, scale=scale)
        return self._classes(hidden.query, self.label_memory(inputs, hidden))

    def remember(self, inputs: NetworkInputs) -> ContextMemory:
        """Passes the context of `inputs` through every stage, whatever its queries are; refuses what `forward` does."""
        labels, location, scale = self._labels(inputs)
        statistics, columns = self.statistics(inputs), []
        cells, bias = self._cells(inputs.x_context, inputs.column_kinds, statistics, has_padding=inputs.has_padding)
        column_bias = None if inputs.context_mask is None else _hide(inputs.context_mask)
        column_labels = self._column_labels(labels, inputs.label_mask, dtype=cells.dtype)
        for column_block, row_block in zip(self.column_blocks, self.row_blocks, strict=True):
            by_column = cells.transpose(1, 2)
            columns.append(column_block.remember(by_column, column_labels, bias=column_bias))
            cells = row_block(column_block.read(by_column, columns[-1]).transpose(1, 2), bias=bias)
        rows = self.row_readout(cells, bias=bias)
        icl = self.icl.remember(rows, labels, inputs.context_mask, label_mask=inputs.label_mask)
        memory = None
        if self.config.kind is LabelKind.CLASSIFICATION:
            memory = self.label_memory(inputs, Hidden(context=icl.h_context, query=icl.h_context[:, :0]))
        return ContextMemory(
            column_kinds=inputs.column_kinds,
            statistics=statistics,
            columns=tuple(columns),
            icl=icl,
            labels=memory,
            location=location,
            scale=scale,
        )

    def predict(
        self, memory: ContextMemory, x_query: Tensor, *, query_mask: Tensor | None = None
    ) -> ClassLogProbabilities | RegressionPrediction:
        """Predicts x_query [B, M, C] from a remembered context; no layer is applied to a context row.

        Raises:
            BadInput: TABLE_EMPTY without queries; BAD_SHAPE for other tables or columns than the context's; BAD_MASK.
        """
        tables, columns = memory.column_kinds.shape
        input_checks.check_rows(memory.icl.h_context.shape[1], x_query.shape[1])
        input_checks.check_shape("x_query", x_query, shape=(tables, x_query.shape[1], columns))
        input_checks.check_mask("query_mask", query_mask, shape=(tables, x_query.shape[1]))
        cells, bias = self._cells(x_query, memory.column_kinds, memory.statistics)
        for column_block, row_block, column in zip(self.column_blocks, self.row_blocks, memory.columns, strict=True):
            cells = row_block(column_block.read(cells.transpose(1, 2), column).transpose(1, 2), bias=bias)
        hidden = self.icl.read(self.row_readout(cells, bias=bias), memory.icl)
        if query_mask is not None:
            hidden = torch.where(query_mask[:, :, None], hidden, 0.0)
        if memory.labels is None:
            return self.head(hidden, location=memory.location, scale=memory.scale)
        return self._classes(hidden, memory.labels)

    def label_memory(self, inputs: NetworkInputs, hidden: Hidden) -> LabelMemory:
        """What the classification head keeps of the labelled context rows."""
        mask = _labelled(inputs)
        return self.head.remember(hidden.context, inputs.y_context, inputs.num_classes, mask)

    def _classes(self, query_hidden: Tensor, memory: LabelMemory) -> ClassLogProbabilities:
        read = self.head.read(query_hidden, memory)
        return log_probabilities(read, memory.present, config=self.config.classification)

    def hidden(self, inputs: NetworkInputs, labels: Tensor | None = None) -> Hidden:
        """Hidden states after the in-context-learning stage; labels [B, N] as `_labels` makes them."""
        if labels is None:
            labels = self._labels(inputs)[0]
        rows = self.rows(inputs, labels)
        num_context = inputs.x_context.shape[1]
        context, query = self.icl(
            rows[:, :num_context],
            labels,
            rows[:, num_context:],
            inputs.context_mask,
            inputs.query_mask,
            label_mask=inputs.label_mask,
        )
        return Hidden(context=context, query=query)

    def statistics(self, inputs: NetworkInputs) -> ContextStatistics:
        """What normalisation knows of the table: context rows only."""
        return context_statistics(inputs.x_context, _full_mask(inputs))

    def rows(self, inputs: NetworkInputs, labels: Tensor) -> Tensor:
        """Row tokens [B, T, D]: feature values encoded, before label injection (seed 5.11)."""
        num_context = inputs.x_context.shape[1]
        x = torch.cat([inputs.x_context, inputs.x_query], dim=1)
        cells, bias = self._cells(x, inputs.column_kinds, self.statistics(inputs), has_padding=inputs.has_padding)
        column_bias = None if inputs.context_mask is None else _hide(inputs.context_mask)
        column_labels = self._column_labels(labels, inputs.label_mask, dtype=cells.dtype)
        for column_block, row_block in zip(self.column_blocks, self.row_blocks, strict=True):
            cells = column_block(cells.transpose(1, 2), column_labels, num_context=num_context, bias=column_bias)
            cells = row_block(cells.transpose(1, 2), bias=bias)
        return self.row_readout(cells, bias=bias)

    def _cells(
        self, x: Tensor, column_kinds: Tensor, statistics: ContextStatistics, *, has_padding: bool | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Cells [B, L, C, E] of rows x [B, L, C], and what hides absent columns."""
        features = self.cell_features(x, column_kinds, statistics)
        real = column_kinds >= 0
        padded = not bool(real.all()) if has_padding is None else has_padding
        return self.cell_embedding(features, real.sum(1) if padded else None), _hide(real) if padded else None

    def _column_labels(self, labels: Tensor, label_mask: Tensor | None, *, dtype: torch.dtype) -> Tensor | None:
        """[B, 1, N, E] what target-aware columns add to context cells; 0 where the label is unknown."""
        if self.column_labels is None:
            return None
        if label_mask is None:
            return self.column_labels(labels).to(dtype)[:, None]
        coded = self.column_labels(torch.where(label_mask, labels, 0.0)).to(dtype)
        return (coded * label_mask[..., None])[:, None]

    def _labels(self, inputs: NetworkInputs) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Context labels as the encoders take them, and the target's location and scale [B, 1] in regression."""
        self._check_limits(inputs)
        _check_inputs(inputs)
        mask = _labelled(inputs)
        if self.config.kind is LabelKind.CLASSIFICATION:
            input_checks.check_labels(inputs.y_context, inputs.num_classes, label_mask=mask)
            y, real = inputs.y_context, inputs.context_mask
            return y if real is None else torch.where(real, y, 0.0), None, None
        mask = _full_mask(inputs) if mask is None else mask
        input_checks.check_targets(inputs.y_context, label_mask=mask)
        location, scale = target_statistics(inputs.y_context, mask)
        scaled = torch.where(mask, (inputs.y_context - location) / scale, 0.0)
        return scaled.to(inputs.x_context.dtype), location, scale

    def _check_limits(self, inputs: NetworkInputs) -> None:
        _, rows, columns = inputs.x_context.shape
        if rows == 0 or columns == 0:
            raise BadInput(ExitCode.TABLE_EMPTY, f"the context has {rows} rows and {columns} columns: give one of each")
        limit = self.config.max_features
        if columns > limit:
            raise BadInput(
                ExitCode.OVER_LIMIT, f"a table has {columns} features, the model takes {limit}: select fewer"
            )
        limit, classes = self.config.icl.max_classes, inputs.num_classes
        if self.config.kind is LabelKind.CLASSIFICATION and classes > limit:
            raise BadInput(ExitCode.OVER_LIMIT, f"a table has {classes} classes, the model takes {limit}: merge some")


def _check_inputs(inputs: NetworkInputs) -> None:
    """Refuses shapes and masks that do not fit, and column kinds that are none."""
    (tables, rows, columns), queries = inputs.x_context.shape, inputs.x_query.shape[1]
    input_checks.check_shape("y_context", inputs.y_context, shape=(tables, rows))
    input_checks.check_shape("x_query", inputs.x_query, shape=(tables, queries, columns))
    input_checks.check_shape("column_kinds", inputs.column_kinds, shape=(tables, columns))
    input_checks.check_column_kinds(inputs.column_kinds)
    input_checks.check_context_mask(inputs.context_mask, shape=(tables, rows))
    input_checks.check_mask("query_mask", inputs.query_mask, shape=(tables, queries))
    input_checks.check_mask("label_mask", inputs.label_mask, shape=(tables, rows))


def _labelled(inputs: NetworkInputs) -> Tensor | None:
    """[B, N] which context rows are real and show their label; None when all do."""
    if inputs.label_mask is None or inputs.context_mask is None:
        return inputs.context_mask if inputs.label_mask is None else inputs.label_mask
    return inputs.context_mask & inputs.label_mask


def _check_sizes(config: NetworkConfig) -> None:
    """Refuses widths that do not divide.

    Raises:
        Failure: BAD_FLAG, naming both.
    """
    wholes = (
        ("cell.width", config.cell.width, "cell.num_heads", config.cell.num_heads),
        ("icl.width", config.icl.width, "icl.num_heads", config.icl.num_heads),
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
