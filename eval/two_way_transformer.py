"""What a student picks up today, as a yardstick: a small transformer over cells that attends in two ways.

Every cell is a token, and the target is one more column, unknown in query rows. A layer lets the cells of a row read
each other, then the cells of a column read its context rows (a query row reads no query row), then applies an MLP. The
cell of the target column in a query row is decoded into classes. Three forms of one size, about 0.36 M parameters: the
one that nanoTabPFN published (`torch.nn.MultiheadAttention` called as it comes, post-norm, fp32); the same written well
(one projection for queries, keys and values, SDPA, pre-norm, bf16 where that is fast); and that with SDPA replaced by
explicit products where the CPU's kernel is slow, which is the fastest that we know how to make it.

It is trained beside ours by `//tools:bench`; nothing else depends on it.
"""

import dataclasses
import enum

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from eval.records import network_inputs
from model.attention import attend, key_bias
from model.class_distribution import ClassLogProbabilities, present_classes, softmax_over_present
from model.network import NetworkInputs
from priors.task import TaskBatch

_LARGEST = 100.0  # standardised values are clipped to this


class TwoWayForm(enum.StrEnum):
    """How the same layers are written."""

    PUBLISHED = "published"  # nn.MultiheadAttention, post-norm; trained in fp32
    MODERN = "modern"  # fused projections, scaled_dot_product_attention, pre-norm; trained in bf16 where that is fast
    TUNED = "tuned"  # the modern one, attending as ours does: on a CPU by explicit products instead of SDPA


@dataclasses.dataclass(frozen=True, kw_only=True)
class TwoWayConfig:
    """Sizes; the published ones by default."""

    width: int = 96
    """E of every cell."""
    num_heads: int = 4
    """Of both attentions."""
    hidden: int = 192
    """Hidden width of the MLPs."""
    num_layers: int = 3
    """How many times a table is attended in both ways."""
    max_classes: int = 10
    """Class slots of the decoder."""


class TwoWayTransformer(nn.Module):
    """The whole model: tables with context labels → distributions over the classes of their queries."""

    def __init__(self, form: TwoWayForm, config: TwoWayConfig = TwoWayConfig()) -> None:
        super().__init__()
        self.form = form
        self.value = nn.Linear(1, config.width)
        self.target = nn.Linear(1, config.width)
        self.layers = nn.ModuleList(_layer(form, config) for _ in range(config.num_layers))
        self.norm = nn.Identity() if form is TwoWayForm.PUBLISHED else nn.LayerNorm(config.width)
        self.decoder = _mlp(config, config.max_classes)

    def logits(self, inputs: NetworkInputs) -> Tensor:
        """Class logits [B, M, max_classes] of the queries; a class that the context lacks has one too."""
        num_context = inputs.x_context.shape[1]
        hidden = _Hidden.of(inputs)
        cells = torch.cat([self.value(_standardised(inputs)[..., None]), self._target_column(inputs)], dim=2)
        for layer in self.layers:
            cells = layer(cells, num_context=num_context, hidden=hidden)
        return self.decoder(self.norm(cells[:, num_context:, -1]))

    def forward(self, inputs: NetworkInputs) -> ClassLogProbabilities:
        """Distributions over the classes that each table's context holds."""
        labels, classes = inputs.y_context, inputs.num_classes
        present = present_classes(labels, classes, context_mask=inputs.context_mask)
        return softmax_over_present(self.logits(inputs)[..., :classes].float(), present)

    def _target_column(self, inputs: NetworkInputs) -> Tensor:
        """[B, T, 1, E]: class ids in context rows, their mean over the context in query rows."""
        mean = _mean(inputs.y_context, inputs.context_mask)
        y = torch.cat([inputs.y_context, mean.expand(-1, inputs.x_query.shape[1])], dim=1)
        return self.target(y[..., None])[:, :, None]


def two_way_loss(model: TwoWayTransformer, *, batch: TaskBatch, dtype: torch.dtype) -> Tensor:
    """The mean cross-entropy over the queries of a batch, ready for `backward`."""
    device = next(model.parameters()).device
    with torch.autocast(device.type, dtype, enabled=dtype is not torch.float32):
        prediction = model(network_inputs(batch, device))
    losses = prediction.losses(torch.from_numpy(batch.y_query).to(device))
    return losses[torch.from_numpy(batch.query_mask).to(device)].mean()


def two_way_optimizer(model: TwoWayTransformer, *, learning_rate: float = 1e-3) -> torch.optim.AdamW:
    """AdamW over all parameters; fused in the forms that are written well."""
    fused = model.form is not TwoWayForm.PUBLISHED
    return torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.01, fused=fused)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Hidden:
    """What no cell may read.

    Args:
        columns: [B, C+1] bool, True where a feature is padding (the target column never is), or None.
        rows: [B, N] bool, True where a context row is padding, or None.
    """

    columns: Tensor | None
    rows: Tensor | None

    @classmethod
    def of(cls, inputs: NetworkInputs) -> "_Hidden":
        absent = F.pad(inputs.column_kinds < 0, (0, 1), value=False)
        rows = None if inputs.context_mask is None else ~inputs.context_mask
        return cls(columns=absent if bool(absent.any()) else None, rows=rows)


def _layer(form: TwoWayForm, config: TwoWayConfig) -> nn.Module:
    if form is TwoWayForm.PUBLISHED:
        return _PublishedLayer(config)
    return _ModernLayer(config, explicit=form is TwoWayForm.TUNED)


class _PublishedLayer(nn.Module):
    """Post-norm, and `nn.MultiheadAttention` with what it computes by default."""

    def __init__(self, config: TwoWayConfig) -> None:
        super().__init__()
        self.across = nn.MultiheadAttention(config.width, config.num_heads, batch_first=True)
        self.along = nn.MultiheadAttention(config.width, config.num_heads, batch_first=True)
        self.mlp = _mlp(config, config.width)
        self.norms = nn.ModuleList(nn.LayerNorm(config.width) for _ in range(3))

    def forward(self, cells: Tensor, *, num_context: int, hidden: _Hidden) -> Tensor:
        """Updates cells [B, T, C+1, E]."""
        batch, rows, columns, _ = cells.shape
        flat = cells.flatten(0, 1)
        flat = flat + self.across(flat, flat, flat, key_padding_mask=_repeated(hidden.columns, rows))[0]
        cells = self.norms[0](flat).unflatten(0, (batch, rows))
        flat = cells.transpose(1, 2).flatten(0, 1)
        context, mask = flat[:, :num_context], _repeated(hidden.rows, columns)
        read = [
            self.along(part, context, context, key_padding_mask=mask)[0] for part in (context, flat[:, num_context:])
        ]
        cells = self.norms[1](flat + torch.cat(read, dim=1)).unflatten(0, (batch, columns)).transpose(1, 2)
        return self.norms[2](cells + self.mlp(cells))


class _ModernLayer(nn.Module):
    """Pre-norm, one projection for queries, keys and values, and SDPA over one batch dimension."""

    def __init__(self, config: TwoWayConfig, *, explicit: bool) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.explicit = explicit
        self.across = nn.Linear(config.width, 3 * config.width)
        self.across_output = nn.Linear(config.width, config.width)
        self.along = nn.Linear(config.width, 3 * config.width)
        self.along_output = nn.Linear(config.width, config.width)
        self.mlp = _mlp(config, config.width)
        self.norms = nn.ModuleList(nn.LayerNorm(config.width) for _ in range(3))

    def forward(self, cells: Tensor, *, num_context: int, hidden: _Hidden) -> Tensor:
        """Updates cells [B, T, C+1, E]."""
        cells = cells + self.across_output(self._across(self.norms[0](cells), hidden.columns))
        cells = cells + self.along_output(self._along(self.norms[1](cells), hidden.rows, num_context=num_context))
        return cells + self.mlp(self.norms[2](cells))

    def _across(self, cells: Tensor, absent: Tensor | None) -> Tensor:
        """The cells of each row read each other."""
        mask = _repeated(absent, cells.shape[1])
        query, key, value = self._heads(self.across(cells).flatten(0, 1))
        return _merged(self._attended(query, key, value, mask=mask)).unflatten(0, cells.shape[:2])

    def _along(self, cells: Tensor, absent: Tensor | None, *, num_context: int) -> Tensor:
        """The cells of each column read its context rows."""
        mask = _repeated(absent, cells.shape[2])
        query, key, value = self._heads(self.along(cells).transpose(1, 2).flatten(0, 1))
        read = self._attended(query, key[:, :, :num_context], value[:, :, :num_context], mask=mask)
        return _merged(read).unflatten(0, (cells.shape[0], cells.shape[2])).transpose(1, 2)

    # style: query, key and value are of equal standing
    def _attended(self, query: Tensor, key: Tensor, value: Tensor, *, mask: Tensor | None) -> Tensor:
        """Attention over [n, H, L, D_h]; mask [n, S] is True where a key is hidden."""
        bias = key_bias(None if mask is None else ~mask)
        if self.explicit:
            return attend(query, key, value, bias=bias)
        bias = None if bias is None else bias.to(query.dtype)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=bias)

    def _heads(self, projected: Tensor) -> tuple[Tensor, ...]:
        """[n, L, 3E] → three of [n, H, L, E/H]."""
        return projected.unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)


def _merged(heads: Tensor) -> Tensor:
    """[n, H, L, D_h] → [n, L, H·D_h]."""
    return heads.transpose(1, 2).flatten(-2)


def _mlp(config: TwoWayConfig, width_out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(config.width, config.hidden), nn.GELU(), nn.Linear(config.hidden, width_out))


def _repeated(mask: Tensor | None, times: int) -> Tensor | None:
    """[B, S] → [B·times, S], each table's mask for each of its sequences."""
    return None if mask is None else mask.repeat_interleave(times, dim=0)


def _standardised(inputs: NetworkInputs) -> Tensor:
    """Values [B, T, C] in units of the context's deviation; 0 where one is missing or infinite."""
    x = torch.cat([inputs.x_context, inputs.x_query], dim=1)
    finite, context = torch.isfinite(x), inputs.x_context.shape[1]
    known = finite[:, :context]
    if inputs.context_mask is not None:
        known = known & inputs.context_mask[:, :, None]
    count = known.sum(1, keepdim=True).clamp_min(1)
    mean = torch.where(known, inputs.x_context, 0.0).sum(1, keepdim=True) / count
    squares = torch.where(known, inputs.x_context - mean, 0.0) ** 2
    spread = (squares.sum(1, keepdim=True) / count).sqrt()
    scaled = torch.where(finite, x - mean, 0.0) / (spread + 1e-6)
    return scaled.nan_to_num(0.0).clamp(-_LARGEST, _LARGEST)


def _mean(y: Tensor, mask: Tensor | None) -> Tensor:
    """[B, 1] mean of y [B, N] over its real rows."""
    if mask is None:
        return y.mean(1, keepdim=True)
    return torch.where(mask, y, 0.0).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp_min(1)
