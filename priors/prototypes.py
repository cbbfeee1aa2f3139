"""Prototypes: the target of a row is that of the known cases that it resembles.

Stands for what is decided by likeness: triage by similar patients, prices by comparable houses, species by type
specimens, customer segments, fault codes. Three forms, with few to many prototypes in a metric in which columns weigh
differently, may be mixed (correlated axes), and categories match or do not:

- nearest: the prototype closest to the row decides (Voronoi cells);
- blended: prototypes vote or are averaged, the closer the louder: by a Gaussian of the distance (Nadaraya 1964, Watson
  1964) or by a power of it (Shepard 1968);
- clusters: the prototype comes first and the row is scattered around it (a mixture of Gaussians of different shapes, as
  seen through numbers, ordinals and categories).

Each class has its own number of prototypes. A target in numbers has a level at each prototype and, in some tasks, a
slope around it.
"""

import dataclasses
import enum

import torch

from priors.causes import draw_causes
from priors.columns import Columns, draw_columns
from priors.draft import Draft, TableRequest
from priors.draws import Draws, below, standardised
from priors.task import ColumnKind, TaskKind

_NUM_SCORES = 3
_MATCHED = 4  # most categories of a task that are compared by equality; others count by the scores of their levels


class Form(enum.IntEnum):
    """How a row belongs to prototypes."""

    NEAREST = 0
    BLENDED = 1
    CLUSTERS = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrototypesConfig:
    """Nearest-neighbour and cluster tasks."""

    form_weights: tuple[float, float, float] = (2.0, 3.0, 2.0)
    """How often nearest, blended and clusters are drawn."""
    max_prototypes: int = 48
    """Most prototypes of a task."""
    rows_per_prototype: int = 5
    """No task has more prototypes than rows divided by this."""
    all_relevant_share: float = 0.55
    """Share of tasks in which all columns matter (elsewhere small numbers are common)."""
    mixed_share: float = 0.25
    """Share of tasks whose distance mixes the columns."""
    match_share: float = 0.7
    """Share of tasks in which categories are compared by equality."""
    slope_share: float = 0.3
    """Share of tasks whose scores have a slope around each prototype."""
    cut_share: float = 0.25
    """Share of classification tasks whose classes are cut from a score, not carried by the prototypes."""
    drawn_share: float = 0.25
    """Share of blended classification tasks whose labels are drawn in proportion to the votes, not the winners."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Likeness:
    """How the rows of B tasks belong to K prototypes.

    Args:
        index: [B, K] int64, the rows that are prototypes.
        points: [B, C, R] the rows in the metric, without matched categories.
        centres: [B, C, K] the prototypes in the same space.
        distances: [B, K, R] squared, matched categories included; infinite from absent prototypes.
        matched: [B] how many categories are compared by equality.
    """

    index: torch.Tensor
    points: torch.Tensor
    centres: torch.Tensor
    distances: torch.Tensor
    matched: torch.Tensor


def sample_prototypes(draws: Draws, config: PrototypesConfig, *, request: TableRequest) -> Draft:
    """Draws `request.count` tasks; facts hold the form and the share of labels that lost the vote."""
    count, rows, features = request.count, request.rows, request.features
    form = draws.choice((count,), weights=config.form_weights)
    number = draws.counts((count,), low=2, high=max(2, min(config.max_prototypes, rows // config.rows_per_prototype)))
    relevant = draws.counts((count,), low=1, high=features)
    relevant = torch.where(draws.happens((count,), share=config.all_relevant_share), features, relevant)
    chosen = draws.uniform((count, features)).argsort(-1).argsort(-1) < relevant.unsqueeze(-1)
    importance = (draws.normal((count, features)) * draws.uniform((count, 1), high=1.2)).exp() * chosen
    importance = importance / importance.norm(dim=-1, keepdim=True)
    raw = draw_causes(draws, request.causes, count=count, causes=features, rows=rows)
    member = _scattered(draws, raw, form=form, number=number, importance=importance)
    table = draw_columns(draws, raw, config=request.columns)
    likeness = measure_likeness(draws, config, table=table, importance=importance, number=number)
    belonging = measure_belonging(draws, likeness.distances, form=form, member=member)
    scores = draws.normal((count, _NUM_SCORES, belonging.shape[1])) @ belonging
    scores = add_slopes(draws, scores, likeness=likeness, belonging=belonging, share=config.slope_share)
    classes, lost = draw_classes(draws, config, belonging=belonging, form=form, number=number, request=request)
    varied = table.signal.amax(-1) > 0
    return Draft(
        columns=table,
        scores=standardised(scores),
        classes=classes,
        loudness=draws.full((count,), 1.0),
        facts={
            "relevant": (chosen & varied).sum(-1),
            "own_flips": lost,
            "form": form,
            "prototypes": number,
            "matched": likeness.matched,
        },
    )


def _scattered(
    draws: Draws, raw: torch.Tensor, *, form: torch.Tensor, number: torch.Tensor, importance: torch.Tensor
) -> torch.Tensor:
    """Scatters the rows of cluster tasks around their prototypes, in `raw` [B, C, R]; returns each row's, [B, R]."""
    count, features, rows = raw.shape
    most = int(number.max())
    weights = (draws.normal((count, most)) * draws.uniform((count, 1), high=0.8)).exp() * below(number, size=most)
    member = draws.multinomial(weights, rows)
    tasks = (form == Form.CLUSTERS).nonzero().squeeze(-1)
    if not len(tasks):
        return member
    shape = (len(tasks), features, most)
    own = member[tasks].unsqueeze(1).expand(-1, features, -1)
    reach = draws.log_uniform((len(tasks), 1, 1), low=1.5, high=8.0)
    centres = draws.normal(shape) * importance[tasks].unsqueeze(-1) * reach
    width = (draws.normal(shape) * draws.uniform((len(tasks), 1, 1), high=0.7)).exp()
    width = torch.where(importance[tasks].unsqueeze(-1) > 0, width, 1.0)
    raw[tasks] = standardised(raw[tasks] * width.gather(2, own) + centres.gather(2, own))
    return member


def measure_likeness(
    draws: Draws, config: PrototypesConfig, *, table: Columns, importance: torch.Tensor, number: torch.Tensor
) -> Likeness:
    """Chooses rows as prototypes and measures every row's distance to them.

    Args:
        draws: the random source.
        config: shares.
        table: columns of B tasks.
        importance: [B, C] weight of each column in the distance, 0 where it does not matter.
        number: [B] prototypes of each task.
    """
    count, features, rows = table.signal.shape
    most = int(number.max())
    category = (table.kinds == ColumnKind.CATEGORY) & draws.happens((count, 1), share=config.match_share)
    rank = torch.where(category, importance, 0.0).topk(min(_MATCHED, features), dim=-1)
    weights, slots = rank
    own = importance.scatter(1, slots, torch.where(weights > 0, 0.0, importance.gather(1, slots)))
    points = table.signal * own.unsqueeze(-1)
    mixed = draws.happens((count,), share=config.mixed_share).nonzero().squeeze(-1)
    if len(mixed):
        mixing = draws.normal((len(mixed), features, features)) / features**0.5
        points[mixed] = mixing @ points[mixed]
    index = draws.uniform((count, rows)).topk(most, dim=-1).indices
    centres = points.gather(2, index.unsqueeze(1).expand(-1, features, -1))
    distances = torch.baddbmm(points.square().sum(1, keepdim=True), centres.transpose(1, 2), points, alpha=-2)
    distances.add_(centres.square().sum(1).unsqueeze(-1)).clamp_(min=0.0)
    for slot in range(weights.shape[1]):
        tasks = (weights[:, slot] > 0).nonzero().squeeze(-1)
        if not len(tasks):
            break
        codes = table.values[tasks, slots[tasks, slot]]
        differ = codes.unsqueeze(1) != codes.gather(1, index[tasks]).unsqueeze(-1)
        distances[tasks] += differ * (2 * weights[tasks, slot].square()).view(-1, 1, 1)
    distances.masked_fill_(~below(number, size=most).unsqueeze(-1), torch.inf)
    matched = (weights > 0).sum(-1)
    return Likeness(index=index, points=points, centres=centres, distances=distances, matched=matched)


def measure_belonging(
    draws: Draws, distances: torch.Tensor, *, form: torch.Tensor, member: torch.Tensor
) -> torch.Tensor:
    """Says how much each row belongs to each prototype.

    Args:
        draws: the random source.
        distances: [B, K, R] squared; infinite from absent prototypes.
        form: [B] int64 of `Form`.
        member: [B, R] int64, the prototype of each row in cluster tasks.

    Returns:
        [B, K, R] weights ≥ 0 of sum 1 over the prototypes.
    """
    most = distances.shape[1]
    nearest = distances.min(dim=1)
    decided = torch.where((form == Form.CLUSTERS).unsqueeze(-1), member, nearest.indices)
    belonging = (draws.arange(most).view(-1, 1) == decided.unsqueeze(1)).float()
    scale = nearest.values.mean(-1).view(-1, 1, 1) + 1e-6
    powered = draws.happens(form.shape, share=0.4)
    for by_power in (True, False):
        tasks = ((form == Form.BLENDED) & (powered == by_power)).nonzero().squeeze(-1)
        if not len(tasks):
            continue
        relative = distances[tasks] / scale[tasks]
        if by_power:
            loudness = draws.uniform((len(tasks), 1, 1), low=-3.0, high=-1.0) * relative.add_(0.02).log_()
        else:
            loudness = relative / (-2 * draws.log_uniform((len(tasks), 1, 1), low=0.1, high=1.5))
        belonging[tasks] = loudness.softmax(1)
    return belonging


def add_slopes(
    draws: Draws, scores: torch.Tensor, *, likeness: Likeness, belonging: torch.Tensor, share: float
) -> torch.Tensor:
    """Adds to the scores of some tasks a slope around each prototype, 0 at the prototype itself.

    Args:
        draws: the random source.
        scores: [B, 3, R]; changed in place.
        likeness: points and prototypes.
        belonging: [B, K, R] weights of the prototypes for each row.
        share: of the tasks that get slopes.

    Returns:
        The scores.
    """
    tasks = draws.happens((len(scores),), share=share).nonzero().squeeze(-1)
    if not len(tasks):
        return scores
    points, centres = likeness.points[tasks], likeness.centres[tasks]
    features, most = centres.shape[1:]
    slopes = draws.normal((len(tasks), _NUM_SCORES, most, features)) * draws.log_uniform(
        (len(tasks), 1, 1, 1), low=0.3, high=3.0
    )
    height = slopes.flatten(1, 2) @ points
    foot = (slopes * centres.transpose(1, 2).unsqueeze(1)).sum(-1, keepdim=True)
    rise = height.view(len(tasks), _NUM_SCORES, most, -1) - foot
    scores[tasks] += (rise * belonging[tasks].unsqueeze(1)).sum(2)
    return scores


def draw_classes(
    draws: Draws,
    config: PrototypesConfig,
    *,
    belonging: torch.Tensor,
    form: torch.Tensor,
    number: torch.Tensor,
    request: TableRequest,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Lets the prototypes, each of which carries a class, vote.

    Args:
        draws: the random source.
        config: shares.
        belonging: [B, K, R] weights of the votes.
        form: [B] int64 of `Form`.
        number: [B] prototypes of each task.
        request: kind and most classes.

    Returns:
        Classes [B, R] int64, −1 where they are to be cut from a score, and the share of labels that lost the vote [B].
    """
    count, most, rows = belonging.shape
    none = draws.full((count, rows), -1, dtype=torch.int64)
    if request.kind is TaskKind.REGRESSION:
        return none, draws.full((count,), 0.0)
    size = min(request.max_classes, max(2, rows // 8))
    number = draws.counts((count,), low=2, high=number.clamp(max=size)).where(draws.happens((count,), share=0.6), 2)
    weights = (draws.normal((count, size)) * draws.uniform((count, 1))).exp() * below(number, size=size)
    label = draws.multinomial(weights, most)
    label = torch.where(below(number, size=most), draws.arange(most), label)
    carried = (draws.arange(size).view(-1, 1) == label.unsqueeze(1)).float()
    votes = carried @ belonging
    winners = votes.max(dim=1).indices
    labels = winners.clone()
    drawn = (draws.happens((count,), share=config.drawn_share) & (form == Form.BLENDED)).nonzero().squeeze(-1)
    if len(drawn):
        labels[drawn] = (votes[drawn].log() + draws.gumbel((len(drawn), size, rows))).max(dim=1).indices
    cut = draws.happens((count, 1), share=config.cut_share)
    lost = (labels != winners).float().mean(-1)
    return torch.where(cut, none, labels), torch.where(cut.squeeze(-1), 0.0, lost)
