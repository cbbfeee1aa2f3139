"""Stage 4, rows → hidden states: visibility, and attention from every row to the labelled context rows.

Three paths compute the same function (seed 5.5):
- reference: one attention over all rows with the printed mask, keys and values chosen by the role of the reading row;
- fast: every row attends to the context rows, so no mask tensor exists and a query never sees a query;
- cached: the context is passed through once and remembered; queries then read what is remembered.
"""

import dataclasses
import enum

import torch
from torch import Tensor, nn

from model import input_checks
from model.attention import (
    Attention,
    FeedForward,
    Norm,
    attend,
    key_bias,
    make_norm,
    masked_softmax,
    merge_heads,
    scaled_logits,
    split_heads,
)
from model.label_injection import ClassCode, LabelInjection, LabelKind
from model.length_scaling import QASSMax
from tools.failure import ExitCode, Failure


class AttentionPath(enum.StrEnum):
    """How the ICL attention is computed."""

    REFERENCE = "reference"
    FAST = "fast"
    CACHED = "cached"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ICLConfig:
    """Sizes and options of the in-context-learning stage."""

    width: int = 128
    """D, width of a row token."""
    num_blocks: int = 6
    """Transformer blocks."""
    num_heads: int = 2
    """Attention heads per block."""
    num_kv_heads_query: int | None = None
    """Key/value heads that query rows read, the first of all (None: all; TabPFN-3: 1). Fewer make a small cache."""
    length_scaling: bool = False
    """Whether queries are scaled by the context's length (QASSMax)."""
    feed_forward_factor: int = 2
    """Hidden width of the feed-forward layer over D."""
    residual_decay: float = 1.0
    """What block l = 1, 2, … adds to the residual stream is multiplied by this to the power of l."""
    max_classes: int = 10
    """K_max, rows of the class embedding."""
    class_code: ClassCode = ClassCode.ORTHOGONAL
    """How class embeddings start."""
    role_embeddings: bool = True
    """Whether context and query rows carry an embedding of their role beside their label."""
    num_thinking_rows: int = 0
    """Learned rows that every row may read beside the context."""
    norm: Norm = Norm.LAYER
    """Normalisation of the pre-norm blocks."""

    def __post_init__(self) -> None:
        """Refuses numbers of parts that are none, and key/value heads that do not divide.

        Raises:
            Failure: BAD_FLAG, naming field and value.
        """
        for name in ("num_blocks", "feed_forward_factor", "max_classes"):
            if getattr(self, name) < 1:
                raise Failure(ExitCode.BAD_FLAG, f"icl.{name} is {getattr(self, name)}: give 1 or more")
        if not 0.0 < self.residual_decay <= 1.0:
            text = f"icl.residual_decay is {self.residual_decay}: give more than 0, and 1 at most"
            raise Failure(ExitCode.BAD_FLAG, text)
        shared = self.num_kv_heads_query
        if shared is not None and (shared < 1 or self.num_heads % shared):
            what = f"icl.num_kv_heads_query {shared} does not divide icl.num_heads {self.num_heads}"
            raise Failure(ExitCode.BAD_FLAG, f"{what}: choose one that does")
        if self.num_thinking_rows < 0:
            raise Failure(ExitCode.BAD_FLAG, f"icl.num_thinking_rows is {self.num_thinking_rows}: give 0 or more")


class Visibility(nn.Module):
    """The mask that reaches the reference attention: [B, 1, T, T], 0 where a key is visible, else minus infinity."""

    def forward(self, context_mask: Tensor, num_query: int) -> Tensor:
        """Every row sees the real context rows and nothing else (seed 5.5).

        Args:
            context_mask: [B, N] bool, True where a context row is real.
            num_query: M.
        """
        batch, num_context = context_mask.shape
        rows = num_context + num_query
        visible = torch.zeros(batch, rows, rows, dtype=torch.bool, device=context_mask.device)
        visible[:, :, :num_context] = context_mask[:, None, :]
        return torch.zeros(visible.shape, device=visible.device).masked_fill(~visible, -torch.inf)[:, None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ContextView:
    """What attention must know of the context.

    Args:
        num_context: how many rows of the sequence are read: N, and the thinking rows.
        bias: what hides keys: reference path [B, 1, S, S] over all rows; else [B, 1, 1, num_context], or None.
        count: [B or 1] real context rows of each table.
        path: which of the equal computations is run.
    """

    num_context: int
    bias: Tensor | None
    count: Tensor
    path: AttentionPath


class ICLAttention(Attention):
    """Attention from all rows to context rows. Query rows may read fewer key/value heads than context rows do.

    `num_kv_heads_query` takes the first heads, a slice and no projection of their own (TabPFN-3:
    `icl_num_kv_heads_test=1`).
    """

    def __init__(self, config: ICLConfig) -> None:
        super().__init__(config.width, num_heads=config.num_heads)
        self.num_query_side = config.num_kv_heads_query or config.num_heads
        self.scaling = None
        if config.length_scaling:
            self.scaling = QASSMax(num_heads=config.num_heads, head_width=config.width // config.num_heads)

    def forward(self, x: Tensor, source: Tensor, *, view: ContextView) -> Tensor:
        """Lets x [B, S, D], context rows first, read source: all rows (reference path) or the context rows."""
        if view.path is AttentionPath.REFERENCE:
            _, value = self.keys_values(source)
            weights = self.weights(x, source, view=view)
            by_role = weights @ value, weights @ self._shared(value)
            read = torch.cat([part[:, :, rows] for part, rows in zip(by_role, _roles(view), strict=True)], dim=2)
            return self.output(merge_heads(read))
        memory = self.keys_values(source)
        if self.num_query_side == self.num_heads:
            return self.read_memory(x, memory, view=view)
        context, queries = (x[:, rows] for rows in _roles(view))
        parts = [(context, memory), (queries, self.query_side(memory))]
        return torch.cat([self.read_memory(rows, heads, view=view) for rows, heads in parts], dim=1)

    def read_memory(self, x: Tensor, memory: tuple[Tensor, Tensor], *, view: ContextView) -> Tensor:
        """Lets rows x [B, L, D] read keys and values of the context, both [B, G, num_context, D_h]."""
        return self.output(merge_heads(attend(self._queries(x, view), *memory, bias=view.bias)))

    def query_side(self, memory: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """The key/value heads that query rows read."""
        key, value = (part[:, : self.num_query_side] for part in memory)
        return key, value

    def weights(self, x: Tensor, source: Tensor, *, view: ContextView) -> Tensor:
        """The weights [B, H, S, S'] that x gives to source, from one softmax, each row's keys chosen by its role."""
        key, query = self.keys_values(source)[0], self._queries(x, view)
        by_role = scaled_logits(query, key), scaled_logits(query, self._shared(key))
        logits = torch.cat([part[:, :, rows] for part, rows in zip(by_role, _roles(view), strict=True)], dim=2)
        return masked_softmax(logits, view.bias)

    def _shared(self, heads: Tensor) -> Tensor:
        """[B, H, S, D_h] the query side's heads, each repeated for the query heads that share it."""
        return heads[:, : self.num_query_side].repeat_interleave(self.num_heads // self.num_query_side, dim=1)

    def _queries(self, x: Tensor, view: ContextView) -> Tensor:
        query = split_heads(self.query(x), self.num_heads)
        return query if self.scaling is None else self.scaling(query, view.count)


def _roles(view: ContextView) -> tuple[slice, slice]:
    return slice(0, view.num_context), slice(view.num_context, None)


class ICLBlock(nn.Module):
    """Pre-norm block: attention from all rows to the rows that they may see, then a feed-forward layer."""

    def __init__(self, config: ICLConfig, *, number: int = 1) -> None:
        """Makes block `number`, counted from 1, which fixes how much it adds (`ICLConfig.residual_decay`)."""
        super().__init__()
        self.share = config.residual_decay**number
        self.norm_attention = make_norm(config.norm, config.width)
        self.attention = ICLAttention(config)
        self.norm_feed = make_norm(config.norm, config.width)
        self.feed_forward = FeedForward(config.width, factor=config.feed_forward_factor)

    def forward(self, z: Tensor, *, view: ContextView) -> Tensor:
        """Updates z [B, S, D], context rows first."""
        normed = self.norm_attention(z)
        source = normed if view.path is AttentionPath.REFERENCE else normed[:, : view.num_context]
        z = self._add(z, self.attention(normed, source, view=view))
        return self._add(z, self.feed_forward(self.norm_feed(z)))

    def remember(self, z: Tensor, *, view: ContextView) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Updates context rows z [B, num_context, D]; also the keys and values that queries will read."""
        normed = self.norm_attention(z)
        memory = self.attention.keys_values(normed)
        z = self._add(z, self.attention.read_memory(normed, memory, view=view))
        return self._add(z, self.feed_forward(self.norm_feed(z))), self.attention.query_side(memory)

    def read(self, z: Tensor, memory: tuple[Tensor, Tensor], *, view: ContextView) -> Tensor:
        """Updates query rows z [B, M, D] from what `remember` kept."""
        z = self._add(z, self.attention.read_memory(self.norm_attention(z), memory, view=view))
        return self._add(z, self.feed_forward(self.norm_feed(z)))

    def weights(self, z: Tensor, *, view: ContextView) -> Tensor:
        """The reference attention's weights [B, H, S, S] at input z, for audits and pictures."""
        normed = self.norm_attention(z)
        return self.attention.weights(normed, normed, view=view)

    def _add(self, z: Tensor, branch: Tensor) -> Tensor:
        return torch.add(z, branch, alpha=self.share)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ICLMemory:
    """A context that was passed through: all that queries read of it.

    Args:
        layers: keys and values of each block, both [B, G, num_context, D_h].
        view: which of them are real.
        h_context: [B, N, D] final hidden states of the context rows.
    """

    layers: tuple[tuple[Tensor, Tensor], ...]
    view: ContextView
    h_context: Tensor


class ICLTransformer(nn.Module):
    """The in-context-learning stage (TabPFN-3 stage 3: train↔train, test→train)."""

    def __init__(self, kind: LabelKind, config: ICLConfig) -> None:
        super().__init__()
        self.path = AttentionPath.FAST
        self.injection = LabelInjection(
            kind,
            width=config.width,
            max_classes=config.max_classes,
            class_code=config.class_code,
            role_embeddings=config.role_embeddings,
        )
        self.thinking_rows = None
        if config.num_thinking_rows:
            self.thinking_rows = nn.Parameter(torch.randn(config.num_thinking_rows, config.width))
        self.visibility = Visibility()
        self.blocks = nn.ModuleList(ICLBlock(config, number=number + 1) for number in range(config.num_blocks))
        self.norm = make_norm(config.norm, config.width)

    def forward(
        self,
        context_rows: Tensor,
        context_labels: Tensor,
        query_rows: Tensor,
        context_mask: Tensor | None = None,
        query_mask: Tensor | None = None,
        *,
        label_mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Lets every row read the labelled context (seed 5.8; the order of arguments is the course's).

        Args:
            context_rows: [B, N, D].
            context_labels: [B, N] class ids or scaled targets.
            query_rows: [B, M, D].
            context_mask: [B, N] bool, True where a row is real; None when all are.
            query_mask: [B, M] bool; hidden states of padded queries are set to 0.
            label_mask: [B, N] bool, False where a context row's label is unknown; None when all are known.

        Returns:
            h_context [B, N, D] and h_query [B, M, D]: rows 0..N-1 and N..T-1 of the sequence (seed 5.4).

        Raises:
            BadInput (a ValueError): TABLE_EMPTY without context rows or queries; BAD_MASK for a mask of another shape
                or dtype, or one that hides a whole context.
        """
        context, num_context = tuple(context_rows.shape[:2]), context_rows.shape[1]
        input_checks.check_rows(num_context, query_rows.shape[1])
        input_checks.check_context_mask(context_mask, shape=context)
        input_checks.check_mask("query_mask", query_mask, shape=tuple(query_rows.shape[:2]))
        input_checks.check_mask("label_mask", label_mask, shape=context)
        self._check_labels(context_rows, context_labels, context_mask=context_mask, label_mask=label_mask)
        if context_mask is not None:  # a key of weight 0 must be finite
            context_rows = torch.where(context_mask[:, :, None], context_rows, 0.0)
            context_labels = torch.where(context_mask, context_labels, 0.0)
        if query_mask is not None:
            query_rows = torch.where(query_mask[:, :, None], query_rows, 0.0)
        z = self.injection(context_rows, context_labels, query_rows, label_mask)
        if self.path is AttentionPath.CACHED:
            memory = self._remember(z[:, :num_context], context_mask)
            h_context, h_query = memory.h_context, self._read(z[:, num_context:], memory)
        else:
            view = self._view(z[:, :num_context], context_mask, path=self.path, num_query=query_rows.shape[1])
            z = self._with_thinking(z)
            for block in self.blocks:
                z = block(z, view=view)
            hidden = self.norm(z[:, self.num_thinking :])
            h_context, h_query = hidden[:, :num_context], hidden[:, num_context:]
        if query_mask is not None:
            h_query = torch.where(query_mask[:, :, None], h_query, 0.0)
        return h_context, h_query

    def _check_labels(
        self, context_rows: Tensor, labels: Tensor, *, context_mask: Tensor | None, label_mask: Tensor | None
    ) -> None:
        input_checks.check_shape("context_labels", labels, shape=tuple(context_rows.shape[:2]))
        if self.injection.encoder.kind is LabelKind.CLASSIFICATION:
            masks = [mask for mask in (context_mask, label_mask) if mask is not None]
            shown = masks[0] if len(masks) == 1 else masks[0] & masks[1] if masks else None
            input_checks.check_labels(labels, self.injection.encoder.classes.num_embeddings, label_mask=shown)

    @property
    def num_thinking(self) -> int:
        """P, learned rows before the context."""
        return 0 if self.thinking_rows is None else len(self.thinking_rows)

    # style: the order of arguments is the course's
    def remember(
        self,
        context_rows: Tensor,
        context_labels: Tensor,
        context_mask: Tensor | None = None,
        *,
        label_mask: Tensor | None = None,
    ) -> ICLMemory:
        """Passes a context through once; arguments as in `forward`."""
        nothing = context_rows[:, :0]
        return self._remember(self.injection(context_rows, context_labels, nothing, label_mask), context_mask)

    def read(self, query_rows: Tensor, memory: ICLMemory) -> Tensor:
        """h_query [B, M, D] of query rows [B, M, D] that read a remembered context."""
        nothing = query_rows[:, :0]
        return self._read(self.injection(nothing, nothing[..., 0], query_rows), memory)

    def _remember(self, z: Tensor, context_mask: Tensor | None) -> ICLMemory:
        view, z, layers = self._view(z, context_mask, path=AttentionPath.CACHED), self._with_thinking(z), []
        for block in self.blocks:
            z, memory = block.remember(z, view=view)
            layers.append(memory)
        return ICLMemory(layers=tuple(layers), view=view, h_context=self.norm(z[:, self.num_thinking :]))

    def _read(self, z: Tensor, memory: ICLMemory) -> Tensor:
        for block, layer in zip(self.blocks, memory.layers, strict=True):
            z = block.read(z, layer, view=memory.view)
        return self.norm(z)

    def _with_thinking(self, z: Tensor) -> Tensor:
        if self.thinking_rows is None:
            return z
        return torch.cat([self.thinking_rows.to(z.dtype).expand(len(z), -1, -1), z], dim=1)

    def _view(
        self, context: Tensor, context_mask: Tensor | None, *, path: AttentionPath, num_query: int = 0
    ) -> ContextView:
        """How the sequence is read; thinking rows count as real context rows, except in the length."""
        (tables, rows), device = context.shape[:2], context.device
        count = torch.full((1,), rows, device=device) if context_mask is None else context_mask.sum(1)
        reference = path is AttentionPath.REFERENCE
        if context_mask is None and reference:
            context_mask = torch.ones(tables, rows, dtype=torch.bool, device=device)
        if context_mask is not None and self.thinking_rows is not None:
            context_mask = nn.functional.pad(context_mask, (self.num_thinking, 0), value=True)
        bias = self.visibility(context_mask, num_query) if reference else key_bias(context_mask)
        return ContextView(num_context=self.num_thinking + rows, bias=bias, count=count, path=path)
