"""Structural causal models with MLP mechanisms: smooth tables, from nearly linear to strongly interacting.

Three ways in which real tables come about, batched over tasks with different graphs, widths, depths and mechanisms:

- direct: the features are causes and the target follows from them (a price from the properties of a house);
- hidden: features and target are nodes of one network that starts from a few unseen causes (measurements of a patient);
- clusters: the class comes first and the features follow from it (species, digits); classification only.
"""

import dataclasses

import torch

from priors.causes import CauseConfig, draw_causes
from priors.columns import draw_columns
from priors.draft import Draft, TableRequest, join
from priors.draws import Draws, apply_by_code, below, standardised
from priors.task import TaskKind

_NUM_SCORES = 3
_CANDIDATES = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class MLPSCMConfig:
    """Networks that make tables."""

    direct_share: float = 0.5
    """Share of tasks whose features are the causes of the target."""
    cluster_share: float = 0.5
    """Share of the other classification tasks in which the class causes the features."""
    all_relevant_share: float = 0.65
    """Share of direct tasks in which all columns matter (elsewhere small numbers are common)."""
    linear_share: float = 0.3
    """Share of direct tasks whose main score is linear in the features' signals."""
    blended_share: float = 0.4
    """Share of direct tasks whose main score adds a linear and a non-linear part."""
    related_share: float = 0.5
    """Share of hidden tasks whose target is the one of several nodes that is most correlated with the features."""
    max_depth: int = 4
    """Most layers of a network."""
    max_width: int = 24
    """Most nodes in a layer (hidden networks are wider where many features are asked for)."""
    product_share: float = 0.3
    """Share of tasks with product nodes (interactions)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Trace:
    """What a network computed.

    Args:
        nodes: of every layer [B, H, R].
        last: [B, H, R] the deepest layer of each task.
        depth: [B] its number.
        reach: [B, H, D] bool, which inputs each node of `last` follows from.
    """

    nodes: list[torch.Tensor]
    last: torch.Tensor
    depth: torch.Tensor
    reach: torch.Tensor


def sample_mlp_scm(draws: Draws, config: MLPSCMConfig, *, request: TableRequest) -> Draft:
    """Draws tasks; the mode of each is in its facts (0 direct, 1 hidden, 2 clusters)."""
    direct = int((draws.uniform((request.count,)) < config.direct_share).sum())
    parts = []
    if direct:
        parts.append(_direct(draws, config, request=request.sized(direct)))
    if request.count > direct:
        parts.append(_hidden(draws, config, request=request.sized(request.count - direct)))
    return join(parts).at(draws.uniform((request.count,)).argsort())  # a task's place tells nothing


def _direct(draws: Draws, config: MLPSCMConfig, *, request: TableRequest) -> Draft:
    """Features are causes; some are irrelevant; the target's scores are linear, non-linear, or both."""
    count, rows, features = request.count, request.rows, request.features
    raw = draw_causes(draws, request.causes, count=count, causes=features, rows=rows)
    table = draw_columns(draws, raw, config=request.columns)
    relevant = draws.counts((count,), low=1, high=features)
    relevant = torch.where(draws.happens((count,), share=config.all_relevant_share), features, relevant)
    chosen = draws.uniform((count, features)).argsort(-1).argsort(-1) < relevant.unsqueeze(-1)
    importance = (draws.normal((count, features)) * draws.uniform((count, 1), high=1.5)).exp() * chosen
    inputs = table.signal * importance.unsqueeze(-1)
    linear = standardised(draws.normal((count, _NUM_SCORES, features)) @ inputs)
    scale = importance.square().mean(-1).sqrt().view(-1, 1, 1)
    trace = _propagate(draws, inputs / scale, config=config, width=config.max_width, noisy=False)
    width = trace.last.shape[1]
    sparse = draws.uniform((count, _NUM_SCORES, width)) < draws.uniform((count, 1, 1), low=0.15, high=1.0)
    bent = standardised((draws.normal((count, _NUM_SCORES, width)) * sparse) @ trace.last)
    plain = 1 - config.linear_share - config.blended_share
    form = draws.choice((count,), weights=(config.linear_share, config.blended_share, plain))
    blend = torch.where(form == 0, 1.0, torch.where(form == 1, draws.uniform((count,), low=0.3, high=0.95), 0.0))
    blend = blend.view(-1, 1, 1)
    read = (trace.reach & sparse[:, 0].unsqueeze(-1)).any(1) | (chosen & (blend.view(-1, 1) > 0))
    facts = {
        "mode": draws.full((count,), 0.0),
        "depth": torch.where(form == 0, 0, trace.depth),
        "relevant": (read & (inputs.square().mean(-1) > 0)).sum(-1),
        "linear_part": blend.flatten(),
    }
    scores = standardised(blend * linear + (1 - blend) * bent)
    cut = draws.full((count, rows), -1)
    return Draft(columns=table, scores=scores, classes=cut, loudness=draws.full((count,), 1.0), facts=facts)


def _hidden(draws: Draws, config: MLPSCMConfig, *, request: TableRequest) -> Draft:
    """Features and scores are nodes of a network; with clusters, the causes are drawn around a centre per class."""
    count, rows, features = request.count, request.rows, request.features
    most = max(2, min(24, features))
    number = draws.counts((count,), low=1, high=most)
    cause_config = CauseConfig(duplicate_share=0.0, independent_share=0.3)
    roots = draw_causes(draws, cause_config, count=count, causes=most, rows=rows)
    share = config.cluster_share if request.kind is TaskKind.CLASSIFICATION else 0.0
    clustered = draws.happens((count,), share=share)
    centred, member = _around_centres(draws, roots)
    roots = torch.where(clustered.view(-1, 1, 1), centred, roots) * below(number, size=most).unsqueeze(-1)
    classes = torch.where(clustered.unsqueeze(-1), member, -1)
    width = max(16, -(-(features + _CANDIDATES) // 2))
    trace = _propagate(draws, roots, config=config, width=width, least_layers=2)
    pool = torch.cat([roots, *trace.nodes], dim=1)
    layer = torch.cat(
        [draws.full((most,), 0.0), *(draws.full((width,), float(i + 1)) for i in range(len(trace.nodes)))]
    )
    absent = (layer == 0) & (draws.arange(len(layer)) >= number.unsqueeze(-1))
    shallow = draws.normal((count, 1)) * 0.7  # some tasks show early nodes, some late ones
    wish = (layer * shallow).masked_fill(layer > trace.depth.unsqueeze(-1), -100.0)  # too deep: only where nodes lack
    picked = draws.pick(wish.masked_fill(absent, -1e4), count=features + _CANDIDATES)
    shuffled = picked.gather(1, draws.uniform(picked.shape).argsort(-1))
    nodes = pool.gather(1, shuffled.unsqueeze(-1).expand(-1, -1, rows))
    raw = nodes[:, _CANDIDATES:]
    scores = _related(draws, config, targets=nodes[:, :_CANDIDATES], raw=raw)
    irrelevant = draws.uniform((count, features)) < draws.uniform((count, 1), low=-0.6, high=0.5)
    irrelevant |= _constant(raw)
    raw = torch.where(irrelevant.unsqueeze(-1), draws.normal(raw.shape), raw)
    facts = {
        "mode": torch.where(clustered, 2, 1),
        "depth": trace.depth,
        "relevant": (~irrelevant).sum(-1),
        "roots": number,
    }
    table = draw_columns(draws, raw, config=request.columns)
    loudness = draws.uniform((count,), low=0.2, high=1.0)
    return Draft(columns=table, scores=scores, classes=classes, loudness=loudness, facts=facts)


def _constant(nodes: torch.Tensor) -> torch.Tensor:
    """[B, n] bool: standardised nodes [B, n, R] that do not vary (steps beyond all rows)."""
    return nodes.square().mean(-1) < 0.5


def _related(draws: Draws, config: MLPSCMConfig, *, targets: torch.Tensor, raw: torch.Tensor) -> torch.Tensor:
    """[B, S, R] scores out of nodes [B, n, R]: in most tasks those that the features tell most about come first."""
    relation = (targets @ raw.transpose(1, 2) / raw.shape[-1]).square().sum(-1)
    chosen = draws.happens((len(raw), 1), share=config.related_share)
    wish = torch.where(chosen, -relation, draws.arange(relation.shape[1]).float())
    order = wish.masked_fill(_constant(targets), torch.inf).argsort(-1)[:, :_NUM_SCORES]
    return targets.gather(1, order.unsqueeze(-1).expand(-1, -1, raw.shape[-1]))


def _around_centres(draws: Draws, roots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Draws a class per row and moves the row's causes to one of the class's centres: [B, D, R] and [B, R]."""
    count, size, rows = roots.shape
    clusters = 20
    classes = torch.where(draws.happens((count,), share=0.35), 2, draws.counts((count,), low=2, high=10))
    per_class = draws.choice((count,), weights=(5, 2, 1)) + 1
    number = (classes * per_class).clamp(max=clusters)
    weights = (draws.normal((count, clusters)) * draws.uniform((count, 1), high=0.8)).exp()
    weights = weights * below(number, size=clusters)
    cluster = draws.multinomial(weights, rows)
    centres = draws.normal((count, size, clusters)) * draws.log_uniform((count, 1, 1), low=1.0, high=6.0)
    moved = roots + centres.gather(2, cluster.unsqueeze(1).expand(-1, size, -1))
    return standardised(moved), cluster % classes.unsqueeze(-1)


def _propagate(
    draws: Draws,
    inputs: torch.Tensor,
    *,
    config: MLPSCMConfig,
    width: int,
    least_layers: int = 1,
    noisy: bool = True,
) -> _Trace:
    """Runs inputs [B, D, R] through up to `max_depth` random layers, the later ones with noise where it is wanted."""
    count, size, _ = inputs.shape
    depth = draws.counts((count,), low=1, high=config.max_depth)
    single = draws.happens((count, 1), share=0.4)
    palette = draws.normal((count, len(_ACTIVATIONS))) + draws.tensor(_FAVOUR)
    palette = palette * torch.where(single, 50.0, 2.0)
    gain = draws.log_uniform((count, 1, 1), low=0.4, high=2.5)
    density = draws.choice((count, 1, 1), weights=(3, 3, 4))
    density = torch.where(density == 0, 0.0, torch.where(density == 1, draws.uniform((count, 1, 1), high=0.4), 1.0))
    noise = draws.log_uniform((count, 1, 1), low=0.01, high=0.5) * ~draws.happens((count, 1, 1), share=0.3)
    products = draws.uniform((count, 1), high=0.5) * draws.happens((count, 1), share=config.product_share)
    nodes, last = [], inputs
    reach = (draws.arange(size).unsqueeze(-1) == draws.arange(size)).expand(count, -1, -1)
    for layer in range(max(least_layers, int(depth.max()))):
        weights = _weights(draws, count=count, width=width, parents=last.shape[1], density=density)
        pre = standardised(weights @ last) * gain + draws.normal((count, width, 1)) * 0.5
        multiplied = draws.uniform((count, width)) < products
        fresh = _activated(draws, pre, palette=palette, multiplied=multiplied)
        fresh = fresh + noise * draws.normal(fresh.shape) if layer and noisy else fresh
        fresh = standardised(fresh)
        nodes.append(fresh)
        read = (weights != 0).float() @ reach.float() > 0
        read = read | (read.roll(1, dims=1) & multiplied.unsqueeze(-1))
        deeper = (depth > layer).view(-1, 1, 1)
        last = fresh if layer == 0 else torch.where(deeper, fresh, last)
        reach = read if layer == 0 else torch.where(deeper, read, reach)
    return _Trace(nodes=nodes, last=last, depth=depth, reach=reach)


def _weights(draws: Draws, *, count: int, width: int, parents: int, density: torch.Tensor) -> torch.Tensor:
    """[B, H, D] random weights; a node has at least one parent, and others with probability `density`."""
    keys = draws.uniform((count, width, parents))
    linked = (keys <= keys.amin(-1, keepdim=True)) | (draws.uniform(keys.shape) < density)
    lean = draws.uniform((count, 1, 1), high=1.5) * draws.happens((count, 1, 1), share=0.5)
    return (draws.normal((count, width, parents)) + lean) * linked


def _activated(draws: Draws, pre: torch.Tensor, *, palette: torch.Tensor, multiplied: torch.Tensor) -> torch.Tensor:
    """Applies to each node an activation from its task's palette [B, A]; nodes `multiplied` [B, H] take a partner's."""
    count, width, rows = pre.shape
    codes = (palette.unsqueeze(1) + draws.gumbel((count, width, len(_ACTIVATIONS)))).argmax(-1)
    partner = pre.roll(1, dims=1)
    out = apply_by_code(pre.clone().view(count * width, rows), codes.view(-1), functions=_ACTIVATIONS).view(pre.shape)
    chosen = multiplied.view(-1).nonzero().squeeze(-1)
    if len(chosen):
        out.view(-1, rows)[chosen] *= partner.reshape(-1, rows)[chosen]
    return out


_FAVOUR = (1.0, 1.0, 0.5, 0.0, 0.0, 0.0, -0.7, -0.3, 0.0, 1.0, 0.7, 0.5, 0.0, 0.3)
_ACTIVATIONS = (
    lambda z: z,
    torch.tanh,
    torch.relu,
    torch.abs,
    torch.square,
    torch.sin,
    lambda z: torch.sin(3 * z),
    lambda z: torch.exp(-z * z),
    torch.sign,
    lambda z: torch.nn.functional.leaky_relu(z, 0.3),
    torch.nn.functional.softplus,
    lambda z: torch.sign(z) * z.abs().sqrt(),
    torch.round,
    lambda z: torch.exp(z.clamp(max=3.0)),
)
