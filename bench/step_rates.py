"""How many tasks a second a training step takes, beside others' steps: the subject `train` of `//tools:bench`.

Ours is the step of the presets whose quality is recorded. Beside it stand (a) a two-way transformer over cells as
nanoTabPFN published it, in fp32; (b) the same written well, with SDPA, and further with explicit attention; and (c)
TabICL's network with our widths and depths. Each side computes in the way that is fastest for it here: bf16 or fp32,
and one process on all cores or a process on each core (TabICL's exchange no gradients). All take turns in one run.
"""

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bench.rows import BenchRow, SaveRows, in_turn, measured_row
from bench.step_team import (
    StepCase,
    StepModel,
    StepPlan,
    StepTeam,
    flops_per_task,
    num_parameters,
    product_flops_per_second,
)
from eval.peer_process import STEP_SERVER, PeerProcess, peer_command
from model import presets
from model.label_injection import LabelKind
from model.network import NetworkConfig
from priors.task import TaskKind
from tools import progress
from tools.failure import ExitCode, Failure

TITLE, PEER = "Training steps: ours and others' in one run", "other"

_DTYPES = ("bfloat16", "float32")
_GOALS = {  # (side, rows, features): least ratio
    (StepModel.PUBLISHED, 150, 5): 8.0,
    (StepModel.PUBLISHED, 150, 20): 15.0,
    (StepModel.PUBLISHED, 256, 20): 12.0,
    **{(StepModel.MODERN, *shape): 4.0 for shape in ((150, 5), (150, 20), (256, 20))},
    ("tabicl", 256, 20): 3.0,
}
_NAMES = {
    StepModel.PUBLISHED: "two-way transformer as published",
    StepModel.MODERN: "two-way transformer written well",
    StepModel.TUNED: "two-way transformer with explicit attention",
    "tabicl": "TabICL's network of our size",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainBenchConfig:
    """What is measured of the training step."""

    json: pathlib.Path | None = None
    """Write the rows here."""
    quick: bool = False
    """One round of one step each, on the smallest tables: for a glance, not for a record."""
    presets: tuple[str, ...] = ("tiny", "small")
    """Whose networks: tiny, small."""
    shapes: tuple[str, ...] = ("150x5", "150x20", "256x20", "1024x20")
    """Rows and columns of the tables."""
    batch: int = 32
    """Tasks of a step, as in the presets; an eighth of them where tables have 1,024 rows or more."""
    rounds: int = 5
    """Rounds of which the median counts; all sides take turns."""
    peer_python: pathlib.Path | None = None
    """A Python that has tabicl; by default Bazel installs it."""

    def __post_init__(self) -> None:
        """Refuses what measures nothing.

        Raises:
            Failure: BAD_FLAG, naming flag and value.
        """
        for flag, value in (("batch", self.batch), ("rounds", self.rounds)):
            if value < 1:
                raise Failure(ExitCode.BAD_FLAG, f"--{flag} {value} is too small: give 1 or more")
        for name in self.presets:
            if name not in ("tiny", "small"):
                raise Failure(ExitCode.BAD_FLAG, f"--presets {name} is not known: choose tiny or small")
        for shape in self.shapes:
            parts = shape.split("x")
            if len(parts) != 2 or not all(part.isdigit() for part in parts) or int(parts[0]) < 4 or int(parts[1]) < 1:
                raise Failure(ExitCode.BAD_FLAG, f"--shapes {shape} is no size: give rows and columns, such as 150x20")


def train() -> TrainBenchConfig:
    """Tasks a second of a training step beside three others: about 15 minutes on two idle cores."""
    return TrainBenchConfig()


def measure(config: TrainBenchConfig, *, save: SaveRows) -> list[BenchRow]:
    """Measures every shape; `save` is called after each."""
    if config.quick:
        config = dataclasses.replace(config, rounds=1, shapes=config.shapes[:1], batch=min(config.batch, 4))
    rows: list[BenchRow] = []
    with _Sides.open(config) as sides, progress.meter("steps", total=len(config.shapes), unit="shapes") as meter:
        for number, shape in enumerate(config.shapes):
            num_rows, features = (int(part) for part in shape.split("x"))
            batch = config.batch if num_rows < 1024 else max(1, config.batch // 8)
            case = StepCase(rows=num_rows, features=features, batch=batch)
            rows += _of_case(case, sides, config)
            save(rows)
            meter(number + 1, shape)
    return rows


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Side:
    """One that takes turns.

    Args:
        name: a StepModel, or "tabicl".
        kind: of the tasks.
        dtype: as in StepPlan.
        preset: whose sizes tabicl's network has.
    """

    name: str
    kind: TaskKind = TaskKind.CLASSIFICATION
    dtype: str
    preset: str = ""


class _Sides:
    """All processes: a team of each form, and tabicl's."""

    def __init__(self, teams: list[StepTeam], peers: list[PeerProcess]) -> None:
        self.teams, self.peers = teams, peers

    @classmethod
    @contextlib.contextmanager
    def open(cls, config: TrainBenchConfig) -> Iterator["_Sides"]:
        cores = os.cpu_count() or 1
        forms = [(1, cores)] if cores == 1 else [(1, cores), (cores, 1)]
        with contextlib.ExitStack() as stack:
            try:
                command = peer_command(config.peer_python, STEP_SERVER)
                peers = [stack.enter_context(PeerProcess(command)) for _ in range(cores)]
            except Failure as failure:
                if config.peer_python is not None:
                    raise
                progress.say(f"tabicl is left out: {failure.message}")
                peers = []
            teams = [stack.enter_context(StepTeam(processes=number, threads=each)) for number, each in forms]
            yield cls(teams, peers)

    def rate(self, side: _Side, *, case: StepCase, team: StepTeam) -> float:
        """Tasks a second of one step."""
        if side.name != "tabicl":
            plan = StepPlan(model=StepModel(side.name), kind=side.kind, dtype=side.dtype)
            return team.tasks_per_second(plan, case)
        request = dataclasses.asdict(case) | {"steps": 1, "threads": team.threads, "dtype": side.dtype}
        share, working = case.batch // team.processes, self.peers[: team.processes]
        request |= {"sizes": _peer_sizes(side.preset), "batch": share}
        for peer in working:
            peer.send(request)
        return len(working) * share / max(float(peer.receive()["seconds"]) for peer in working)

    def best_team(self, side: _Side, case: StepCase) -> StepTeam:
        """The form in which a side is fastest, each tried after a step that does not count.

        A form with more processes than tasks is left out: some would have none.
        """
        teams = [team for team in self.teams if team.processes <= case.batch]
        rates = [max(self.rate(side, case=case, team=team) for _ in range(2)) for team in teams]
        return teams[max(range(len(rates)), key=rates.__getitem__)]


def _of_case(case: StepCase, sides: _Sides, config: TrainBenchConfig) -> list[BenchRow]:
    """The rows of one size of tables."""
    all_sides = _all_sides(config, with_peer=bool(sides.peers))
    found = {side: sides.best_team(side, case) for side in all_sides}
    values: dict[_Side, list[float]] = {}
    measured = [_turn(sides, side, case=case, team=found[side]) for side in all_sides]
    for rates, _ in in_turn(measured, rounds=config.rounds, warm_up=0):
        values = dict(zip(all_sides, rates, strict=True))
    product = product_flops_per_second(threads=os.cpu_count() or 1)
    rows: list[BenchRow] = []
    for preset in config.presets:
        model = StepModel(preset)
        for dtypes in (_DTYPES, _DTYPES[1:]):
            ours = _fastest(values, _Side(name=preset, dtype=""), dtypes)
            for other in (StepModel.PUBLISHED, StepModel.MODERN, StepModel.TUNED, "tabicl"):
                theirs = _fastest(values, _Side(name=other, dtype="", preset=_of(other, preset)), dtypes)
                if theirs is not None:
                    goal = _GOALS.get((other, case.rows, case.features), 0.0) if dtypes == _DTYPES else 0.0
                    rows.append(
                        _row(case, (ours, theirs), values=values, found=found, fp32=dtypes != _DTYPES, goal=goal)
                    )
        ours = _fastest(values, _Side(name=preset, dtype=""), _DTYPES)
        share = flops_per_task(model, case) * measured_row(name="", unit="", ours=values[ours]).ours / product
        note = f"counted in matrix products; {product / 1e9:,.0f} GFLOP/s in bf16, {num_parameters(model):,} parameters"
        rows.append(BenchRow(name=f"{preset}, {_size(case)}: FLOP/s", unit="share", ours=share, note=note))
        side = _Side(name=preset, kind=TaskKind.REGRESSION, dtype=_DTYPES[0])
        name, note = f"{preset}, regression, {_size(case)}", _mode(side, found)
        rows.append(measured_row(name=name, unit="tasks/s", ours=values[side], note=note))
    return rows


def _turn(sides: _Sides, side: _Side, *, case: StepCase, team: StepTeam) -> Callable[[int], float]:
    return lambda number: sides.rate(side, case=case, team=team)


def _all_sides(config: TrainBenchConfig, *, with_peer: bool) -> list[_Side]:
    names = [StepModel.PUBLISHED, StepModel.MODERN, StepModel.TUNED]
    found = [_Side(name=name, dtype=dtype) for name in (*names, *config.presets) for dtype in _DTYPES]
    found = [side for side in found if (side.name, side.dtype) != (StepModel.PUBLISHED, _DTYPES[0])]  # fp32 alone
    for preset in config.presets:
        found.append(_Side(name=preset, kind=TaskKind.REGRESSION, dtype=_DTYPES[0]))
        if with_peer:
            found += [_Side(name="tabicl", dtype=dtype, preset=preset) for dtype in _DTYPES]
    return found


def _of(other: str, preset: str) -> str:
    return preset if other == "tabicl" else ""


def _fastest(values: dict[_Side, list[float]], side: _Side, dtypes: Sequence[str]) -> _Side | None:
    """The side in the precision in which its median is highest; None where it was not measured."""
    known = [named for dtype in dtypes if (named := dataclasses.replace(side, dtype=dtype)) in values]
    return max(known, key=lambda named: measured_row(name="", unit="", ours=values[named]).ours, default=None)


def _row(
    case: StepCase,
    pair: tuple[_Side, _Side],
    *,
    values: dict[_Side, list[float]],
    found: dict[_Side, StepTeam],
    fp32: bool,
    goal: float,
) -> BenchRow:
    ours, theirs = pair
    name = f"{ours.name} against {_NAMES[theirs.name]}, {_size(case)}" + (", both fp32" if fp32 else "")
    note = f"ours {_mode(ours, found)}, other {_mode(theirs, found)}; batches of {case.batch}"
    sides = {"ours": values[ours], "peer": values[theirs]}
    return measured_row(name=name, unit="tasks/s", least_ratio=goal, note=note, **sides)


def _mode(side: _Side, found: dict[_Side, StepTeam]) -> str:
    team = found[side]
    return f"{side.dtype}, processes × threads {team.processes} × {team.threads}"


def _size(case: StepCase) -> str:
    return f"{case.rows:,} × {case.features}"


def _peer_sizes(preset: str) -> dict[str, Any]:
    """TabICL's arguments for the widths and depths of one of our presets."""
    config: NetworkConfig = getattr(presets, preset)(LabelKind.CLASSIFICATION)
    cell, icl = config.cell, config.icl
    return {
        "embed_dim": cell.width,
        "col_num_blocks": cell.num_rounds,
        "col_nhead": cell.num_heads,
        "col_num_inds": cell.num_inducing,
        "row_num_blocks": cell.num_rounds,
        "row_nhead": cell.num_heads,
        "row_num_cls": icl.width // cell.width,
        "icl_num_blocks": icl.num_blocks,
        "icl_nhead": icl.num_heads,
        "ff_factor": icl.feed_forward_factor,
    }
