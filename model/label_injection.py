"""Label injection: what a context row's label, and a query's missing one, add to the row (seeds 5.2, 5.3)."""

import enum

import torch
from torch import Tensor, nn

from model.attention import mlp


class LabelKind(enum.StrEnum):
    """What the labels are."""

    CLASSIFICATION = "classification"
    REGRESSION = "regression"


class ClassCode(enum.StrEnum):
    """How class embeddings start."""

    ORTHOGONAL = "orthogonal"
    NORMAL = "normal"


class LabelEncoder(nn.Module):
    """Context labels → [B, N, W]: a class embedding or a continuous MLP (seed 5.3)."""

    _FREQUENCIES = (0.5, 1.0, 2.0, 4.0)

    def __init__(
        self, kind: LabelKind, *, width: int, max_classes: int, class_code: ClassCode = ClassCode.ORTHOGONAL
    ) -> None:
        super().__init__()
        self.kind = kind
        if kind is LabelKind.CLASSIFICATION:
            self.classes = nn.Embedding(max_classes, width)  # its own start is normal, of unit variance
            if class_code is ClassCode.ORTHOGONAL:
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

    def __init__(
        self,
        kind: LabelKind,
        *,
        width: int,
        max_classes: int,
        class_code: ClassCode = ClassCode.ORTHOGONAL,
        role_embeddings: bool = True,
    ) -> None:
        super().__init__()
        self.encoder = LabelEncoder(kind, width=width, max_classes=max_classes, class_code=class_code)
        self.unknown_label = nn.Parameter(torch.randn(width) * width**-0.5)
        self.context_role = self.query_role = None
        if role_embeddings:
            self.context_role = nn.Parameter(torch.randn(width) * width**-0.5)
            self.query_role = nn.Parameter(torch.randn(width) * width**-0.5)

    def forward(
        self, context_rows: Tensor, context_labels: Tensor, query_rows: Tensor, label_mask: Tensor | None = None
    ) -> Tensor:
        """Returns z [B, T, D]: context rows [B, N, D] with labels [B, N], then query rows [B, M, D] without.

        Args:
            context_rows: [B, N, D].
            context_labels: [B, N]; what stands where the mask is False is not read.
            query_rows: [B, M, D].
            label_mask: [B, N] bool, False where a context row's label is unknown, or None.
        """
        dtype = context_rows.dtype
        labels = self.encoder(_known(context_labels, label_mask)).to(dtype)
        if label_mask is not None:
            labels = torch.where(label_mask[..., None], labels, self.unknown_label.to(dtype))
        context, query = context_rows + labels, query_rows + self.unknown_label.to(dtype)
        if self.context_role is not None:
            context, query = context + self.context_role.to(dtype), query + self.query_role.to(dtype)
        return torch.cat([context, query], dim=1)


def _known(labels: Tensor, label_mask: Tensor | None) -> Tensor:
    """Labels with a legal placeholder where they are unknown."""
    return labels if label_mask is None else torch.where(label_mask, labels, 0.0)
