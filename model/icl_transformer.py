"""Stage 4, rows → hidden states: label injection, visibility, and attention from every row to the context rows.

Two paths compute the same function (seed 5.5):
- reference: one attention over all T rows with the printed [T, T] mask;
- fast: all T rows attend to the N context rows, so no mask tensor exists and a query never sees a query.
"""

import dataclasses
import enum

import torch
from torch import Tensor, nn

from model.attention import Attention, FeedForward, Norm, attention_weights, key_bias, make_norm, mlp, split_heads


class LabelKind(enum.StrEnum):
    """What the labels are."""

    CLASSIFICATION = "classification"
    REGRESSION = "regression"


class AttentionPath(enum.StrEnum):
    """How the ICL attention is computed."""

    REFERENCE = "reference"
    FAST = "fast"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ICLConfig:
    """Sizes of the in-context-learning stage."""

    width: int = 128
    """D, width of a row token."""
    num_blocks: int = 6
    """Transformer blocks."""
    num_heads: int = 2
    """Attention heads per block."""
    feed_forward_factor: int = 2
    """Hidden width of the feed-forward layer over D."""
    max_classes: int = 10
    """K_max, rows of the class embedding."""
    norm: Norm = Norm.LAYER
    """Normalisation of the pre-norm blocks."""


class LabelEncoder(nn.Module):
    """Context labels → [B, N, W]: a class embedding (orthogonal rows) or a continuous MLP (seed 5.3)."""

    _FREQUENCIES = (0.5, 1.0, 2.0, 4.0)

    def __init__(self, kind: LabelKind, *, width: int, max_classes: int) -> None:
        super().__init__()
        self.kind = kind
        if kind is LabelKind.CLASSIFICATION:
            self.classes = nn.Embedding(max_classes, width)
            nn.init.orthogonal_(self.classes.weight, gain=width**0.5)  # as large as what it is added to
        else:
            self.continuous = mlp(1 + 2 * len(self._FREQUENCIES), width, width)

    def forward(self, labels: Tensor) -> Tensor:
        """Encodes labels [B, N]: class ids, or targets already scaled by the context."""
        if self.kind is LabelKind.CLASSIFICATION:
            return self.classes(labels.long())
        angles = [torch.pi * frequency * labels for frequency in self._FREQUENCIES]
        waves = [wave(angle) for angle in angles for wave in (torch.sin, torch.cos)]
        return self.continuous(torch.stack([labels, *waves], dim=-1))


class LabelInjection(nn.Module):
    """z_context = rows + label + role; z_query = rows + unknown label + role (seeds 5.2, 5.3)."""

    def __init__(self, kind: LabelKind, *, width: int, max_classes: int) -> None:
        super().__init__()
        self.encoder = LabelEncoder(kind, width=width, max_classes=max_classes)
        self.unknown_label = nn.Parameter(torch.randn(width) * width**-0.5)
        self.context_role = nn.Parameter(torch.randn(width) * width**-0.5)
        self.query_role = nn.Parameter(torch.randn(width) * width**-0.5)

    def forward(self, context_rows: Tensor, context_labels: Tensor, query_rows: Tensor) -> Tensor:
        """Returns z [B, T, D]: context rows [B, N, D] with labels [B, N], then query rows [B, M, D] without."""
        dtype = context_rows.dtype
        context = context_rows + self.encoder(context_labels).to(dtype) + self.context_role.to(dtype)
        query = query_rows + self.unknown_label.to(dtype) + self.query_role.to(dtype)
        return torch.cat([context, query], dim=1)


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


class ICLBlock(nn.Module):
    """Pre-norm block: attention from all rows to the rows that they may see, then a feed-forward layer."""

    def __init__(self, config: ICLConfig) -> None:
        super().__init__()
        self.norm_attention = make_norm(config.norm, config.width)
        self.attention = Attention(config.width, num_heads=config.num_heads)
        self.norm_feed = make_norm(config.norm, config.width)
        self.feed_forward = FeedForward(config.width, factor=config.feed_forward_factor)

    def forward(self, z: Tensor, *, num_context: int, bias: Tensor | None, path: AttentionPath) -> Tensor:
        """Updates z [B, T, D].

        Args:
            z: context rows, then query rows.
            num_context: N.
            bias: reference path: [B, 1, T, T]; fast path: [B, 1, 1, N], or None without padding.
            path: which of the two equal computations to run.
        """
        normed = self.norm_attention(z)
        source = normed if path is AttentionPath.REFERENCE else normed[:, :num_context]
        z = z + self.attention(normed, source, bias=bias)
        return z + self.feed_forward(self.norm_feed(z))

    def weights(self, z: Tensor, *, bias: Tensor) -> Tensor:
        """The reference attention's weights [B, H, T, T] at input z, for audits and pictures."""
        normed = self.norm_attention(z)
        key, _ = self.attention.keys_values(normed)
        query = split_heads(self.attention.query(normed), self.attention.num_heads)
        return attention_weights(query, key, bias=bias)


class ICLTransformer(nn.Module):
    """The in-context-learning stage (TabPFN-3 stage 3: train↔train, test→train).

    Mini: symmetric multi-head attention on both sides, where TabPFN-3 gives the query side one key/value head
    (`icl_num_kv_heads_test=1`) and scales queries by QASSMax.
    """

    def __init__(self, kind: LabelKind, config: ICLConfig) -> None:
        super().__init__()
        self.path = AttentionPath.FAST
        self.injection = LabelInjection(kind, width=config.width, max_classes=config.max_classes)
        self.visibility = Visibility()
        self.blocks = nn.ModuleList(ICLBlock(config) for _ in range(config.num_blocks))
        self.norm = make_norm(config.norm, config.width)

    def forward(
        self,
        context_rows: Tensor,
        context_labels: Tensor,
        query_rows: Tensor,
        context_mask: Tensor | None = None,
        query_mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Lets every row read the labelled context (seed 5.8; the order of arguments is the course's).

        Args:
            context_rows: [B, N, D].
            context_labels: [B, N] class ids or scaled targets.
            query_rows: [B, M, D].
            context_mask: [B, N] bool, True where a row is real; None when all are.
            query_mask: [B, M] bool; hidden states of padded queries are set to 0.

        Returns:
            h_context [B, N, D] and h_query [B, M, D]: rows 0..N-1 and N..T-1 of the sequence (seed 5.4).
        """
        num_context = context_rows.shape[1]
        z = self.injection(context_rows, context_labels, query_rows)
        bias = self._bias(context_rows, query_rows, context_mask)
        for block in self.blocks:
            z = block(z, num_context=num_context, bias=bias, path=self.path)
        hidden = self.norm(z)
        h_context, h_query = hidden[:, :num_context], hidden[:, num_context:]
        if query_mask is not None:
            h_query = h_query * query_mask[:, :, None]
        return h_context, h_query

    def _bias(self, context_rows: Tensor, query_rows: Tensor, context_mask: Tensor | None) -> Tensor | None:
        if self.path is AttentionPath.FAST:
            return key_bias(context_mask)
        if context_mask is None:
            context_mask = torch.ones(context_rows.shape[:2], dtype=torch.bool, device=context_rows.device)
        return self.visibility(context_mask, query_rows.shape[1])
