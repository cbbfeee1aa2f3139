"""The prior: a weighted mixture of families, and the one function that turns a seed into tasks."""

import dataclasses
import math
from typing import Annotated

import numpy as np
import torch
import tyro

from priors.blemishes import blemish
from priors.causes import CauseConfig
from priors.columns import ColumnConfig
from priors.draft import Draft, TableRequest
from priors.draws import Draws, one_thread
from priors.families import Family, FamilyConfigs, FamilyWeights, sample_draft, sample_finished
from priors.group import TaskGroup
from priors.lots import Lot, joined
from priors.node_functions import check_functions
from priors.number_checks import impossible_numbers
from priors.random_graph import check_graphs
from priors.signal_filter import SignalFilterConfig, check_filter, measure_signal
from priors.targets import Labels, TargetConfig, classify, draw_noise, regress
from priors.task import TaskKind
from tools.failure import ExitCode, Failure

VERSION = 7  # of the draws: raised whenever equal configs and seeds make other tasks than before


@dataclasses.dataclass(frozen=True, kw_only=True)
class PriorConfig:
    """Everything that tasks are drawn from."""

    kind: tyro.conf.EnumChoicesFromValues[TaskKind] = TaskKind.CLASSIFICATION
    """What is predicted: classification or regression."""
    min_rows: int = 64
    """Fewest rows of a task (context and query together)."""
    max_rows: int = 256
    """Most rows of a task."""
    row_step: int = 32
    """Rows are a multiple of this."""
    min_features: int = 2
    """Fewest columns of a task."""
    max_features: int = 24
    """Most columns of a task; small tables are common (log-uniform)."""
    weights: FamilyWeights = FamilyWeights()
    """How often each family is drawn."""
    only: tyro.conf.EnumChoicesFromValues[tuple[Family, ...]] = ()
    """Draw from these families only, by their weights; from all where none is named."""
    causes: CauseConfig = CauseConfig()
    """How raw columns depend on each other."""
    columns: ColumnConfig = ColumnConfig()
    """How they are written down."""
    targets: TargetConfig = TargetConfig()
    """How targets are cut, scaled and disturbed."""
    filter: SignalFilterConfig = SignalFilterConfig()
    """Which tasks are drawn anew because their columns do not tell about their target."""
    families: Annotated[FamilyConfigs, tyro.conf.arg(name="")] = FamilyConfigs()
    """What each family draws its tasks from."""

    def shares(self) -> dict[Family, float]:
        """Family → share of the tasks, for those that can be drawn; adds up to 1."""
        weights = {family: getattr(self.weights, family.value) for family in self.only or Family}
        weights = {family: weight for family, weight in weights.items() if weight > 0 and family.makes(self.kind)}
        total = sum(weights.values())
        return {family: weight / total for family, weight in weights.items()}


_FEWEST_ROWS = 16
_MOST_ROUNDS = 8


def checked(config: PriorConfig) -> PriorConfig:
    """Returns the config if tasks can be drawn from it.

    Raises:
        Failure: BAD_FLAG, naming the flag, its value and what is possible.
    """
    classes = config.targets.max_classes
    weights = dataclasses.asdict(config.weights)
    least = min(weights, key=lambda name: weights[name])
    named = f"--only {' '.join(config.only)}" if config.only else "--weights"
    rules = (
        (config.min_rows >= _FEWEST_ROWS, f"--min-rows {config.min_rows} is too small: give {_FEWEST_ROWS} or more"),
        (config.row_step >= 1, f"--row-step {config.row_step} is too small: give 1 or more"),
        (
            config.max_rows // max(config.row_step, 1) * config.row_step >= config.min_rows,
            f"--max-rows {config.max_rows} leaves no multiple of {config.row_step} above --min-rows {config.min_rows}: "
            "raise it",
        ),
        (config.min_features >= 1, f"--min-features {config.min_features} is too small: give 1 or more"),
        (
            config.max_features >= config.min_features,
            f"--max-features {config.max_features} is below --min-features {config.min_features}: raise it",
        ),
        (classes >= 2, f"--targets.max-classes {classes} is too small: give 2 or more"),
        (
            classes <= config.min_rows,
            f"--targets.max-classes {classes} is more than --min-rows {config.min_rows}: "
            "a class needs a row; lower the one or raise the other",
        ),
        (
            weights[least] >= 0,
            f"--weights.{least.replace('_', '-')} {weights[least]} is negative: give 0 or more",
        ),
        (
            any(weights[family] > 0 and family.makes(config.kind) for family in config.only or Family),
            f"{named} leaves no family of {config.kind} tasks with a weight above 0: give one",
        ),
    )
    for holds, complaint in (*rules, *_sums(config)):
        if not holds:
            raise Failure(ExitCode.BAD_FLAG, complaint)
    for complaint in impossible_numbers(config):
        raise Failure(ExitCode.BAD_FLAG, complaint)
    check_filter(config.filter)
    check_graphs(config.families.graph_scm.graphs)
    check_functions(config.families.graph_scm.functions)
    return config


def _sums(config: PriorConfig) -> list[tuple[bool, str]]:
    """Shares of which the rest is a share too: whether they leave one, and the complaint."""
    columns, targets, direct = config.columns, config.targets, config.families.mlp_scm
    pairs = (
        ("columns.numbers-share", columns.numbers_share, "columns.discrete-share", columns.discrete_share),
        ("targets.noiseless-share", targets.noiseless_share, "targets.weak-share", targets.weak_share),
        ("mlp-scm.linear-share", direct.linear_share, "mlp-scm.blended-share", direct.blended_share),
    )
    return [
        (a + b <= 1, f"--{first} {a} and --{second} {b} are more than 1 together: lower one")
        for first, a, second, b in pairs
    ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class GroupShape:
    """Args: rows and features of every task in a group."""

    rows: int
    features: int


def draw_shape(config: PriorConfig, *, seed: int) -> GroupShape:
    """Draws rows (uniform over multiples of `row_step`) and features (log-uniform) of a group."""
    generator = np.random.default_rng(np.random.SeedSequence([seed, 1]))
    steps = np.arange(math.ceil(config.min_rows / config.row_step), config.max_rows // config.row_step + 1)
    spread = (config.max_features + 1) / config.min_features
    features = int(config.min_features * spread ** generator.uniform())
    rows = int(generator.choice(steps)) * config.row_step
    return GroupShape(rows=rows, features=min(features, config.max_features))


@dataclasses.dataclass(frozen=True, kw_only=True)
class GroupDraw:
    """A group and what it took to draw it.

    Args:
        group: the tasks.
        drawn: tasks that were drawn for it, by family.
        rejected: those of them that the filter did not let pass.
    """

    group: TaskGroup
    drawn: dict[str, int]
    rejected: dict[str, int]


def sample_group(
    config: PriorConfig, *, seed: int, rows: int, features: int, count: int, device: str = "cpu"
) -> TaskGroup:
    """The group of `draw_group`."""
    return draw_group(config, seed=seed, rows=rows, features=features, count=count, device=device).group


def draw_group(
    config: PriorConfig, *, seed: int, rows: int, features: int, count: int, device: str = "cpu"
) -> GroupDraw:
    """Draws `count` tasks of one shape: a pure function of its arguments, on one torch thread.

    Args:
        config: the prior.
        seed: 0 … 2^63 − 1.
        rows: R of every task.
        features: C of every task.
        count: B.
        device: where the tensors are made; other kinds of device make other tasks of the same prior.

    Returns:
        The group, families mixed in random order by their shares whatever the filter rejects; each task's parameters
        hold what was sampled and realised.
    """
    with one_thread():
        return _draw_group(config, draws=Draws(seed, device), seed=seed, rows=rows, features=features, count=count)


def _draw_group(config: PriorConfig, *, draws: Draws, seed: int, rows: int, features: int, count: int) -> GroupDraw:
    shares = config.shares()
    code = draws.choice((count,), weights=tuple(shares.values()))
    request = TableRequest(
        kind=config.kind,
        count=count,
        rows=rows,
        features=features,
        max_classes=config.targets.max_classes,
        causes=config.causes,
        columns=config.columns,
    )
    lots, order, drawn, rejected = [], [], {}, {}
    for index, family in enumerate(shares):
        chosen = (code == index).nonzero().squeeze(-1)
        if not len(chosen):
            continue
        lot, tried = _draw_lot(draws, config, family=family, request=request.sized(len(chosen)))
        lots.append(lot)
        order.append(chosen)
        drawn[family.value], rejected[family.value] = tried
    lot = joined(lots)
    names = list(shares)
    group = lot.group(
        place=torch.cat(order).argsort(), families=[names[i].value for i in code.tolist()], seed=seed, kind=config.kind
    )
    return GroupDraw(group=group, drawn=drawn, rejected=rejected)


def _draw_lot(
    draws: Draws, config: PriorConfig, *, family: Family, request: TableRequest
) -> tuple[Lot, tuple[int, int]]:
    """The tasks of one family that passed the filter, and how many were drawn and rejected for them.

    A few are drawn to spare, so that a second round is rare. What still lacks after the last round is filled up with
    tasks that did not pass.
    """
    if family.exact:
        draft = sample_finished(draws, config.families, family=family.exact, request=request)
        return Lot.of_exact(draft, device=draws.device), (request.count, 0)
    if not config.filter.enabled:
        return _finished(draws, config, family=family, request=request), (request.count, 0)
    kept: list[Lot] = []
    need, drawn, rejected = request.count, 0, 0
    for number in range(_MOST_ROUNDS):
        lot = _finished(draws, config, family=family, request=request.sized(need + math.ceil(0.15 * need)))
        signal = measure_signal(
            draws,
            config.filter,
            x=lot.values,
            y=lot.y,
            column_kinds=lot.kinds,
            num_classes=lot.num_classes,
        )
        lot = lot.noted(signal=signal.strength)
        drawn += len(lot)
        rejected += int((~signal.passed).sum())
        first = (~signal.passed).long().argsort(stable=True)  # those that passed, then the others
        number_fit = len(lot) if number == _MOST_ROUNDS - 1 else int(signal.passed.sum())
        part = lot.at(first[: min(need, number_fit)])
        kept.append(part)
        need -= len(part)
        if not need:
            break
    return joined(kept), (drawn, rejected)


def _finished(draws: Draws, config: PriorConfig, *, family: Family, request: TableRequest) -> Lot:
    """Draws from a family, makes the targets and the blemishes."""
    draft = sample_draft(draws, config.families, family=family, request=request)
    noise = draw_noise(draws, config.targets, count=request.count) * draft.loudness
    labels = _labels(draws, config, draft=draft, noise=noise)
    values = blemish(draws, draft.columns, config=config.columns)
    kept = (draft.classes[:, 0] >= 0) & (config.kind is TaskKind.CLASSIFICATION)  # no noise on scores moves these
    flips = draft.facts.get("own_flips", torch.zeros_like(noise)) * kept
    facts = {
        **draft.facts,
        "noise": noise.masked_fill(kept, math.nan),
        "noise_share": labels.noise_share + flips * (1 - labels.noise_share),
    }
    lot = Lot(
        values=values,
        y=labels.y,
        kinds=draft.columns.kinds,
        levels=draft.columns.levels,
        num_classes=labels.num_classes,
        facts=facts,
    )
    return lot.noted(missing=values.isnan().float().mean((1, 2)), **lot.largest_class())


def _labels(draws: Draws, config: PriorConfig, *, draft: Draft, noise: torch.Tensor) -> Labels:
    own = draft.facts.get("own_noise", torch.zeros_like(noise))
    if config.kind is TaskKind.REGRESSION:
        return regress(draws, config.targets, scores=draft.scores, noise=noise, own_noise=own)
    options = {"scores": draft.scores, "fixed": draft.classes, "noise": noise, "own_noise": own}
    return classify(draws, config.targets, **options)
