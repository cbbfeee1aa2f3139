"""How fast tasks are drawn, beside the prior of tabicl in the same run: the subject `priors` of `//tools:bench`."""

import contextlib
import dataclasses
import enum
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Sequence

import torch
import tyro

from bench.rows import BenchRow, SaveRows, in_turn, measured_row
from bench.waiting import measure_waiting
from eval.peer_process import PeerProcess, peer_command
from priors.families import Family
from priors.generation import ensure_shards
from priors.presets import tiny
from priors.recipe import ShardConfig
from priors.speed import (
    Generators,
    SpeedCase,
    bench_prior,
    distinct_graphs,
    groups_that_last,
    python_share,
    tasks_per_second,
    verified_gigabytes_per_second,
)
from tools import progress
from tools.failure import ExitCode, Failure

TITLE, PEER = "Priors: ours and another's in one run", "tabicl 2.2.0"


class Section(enum.StrEnum):
    """A part of the bench of priors."""

    RATES = "rates"  # tasks a second on one core, beside the peer
    GRAPHS = "graphs"  # distinct graphs in a batch
    PYTHON = "python"  # share of the time outside tensor kernels
    PROCESSES = "processes"  # several processes against one
    VERIFY = "verify"  # shards checked
    TRAINING = "training"  # share of training spent waiting for tasks


@dataclasses.dataclass(frozen=True, kw_only=True)
class PriorsBenchConfig:
    """What is measured of the prior, and how long."""

    json: pathlib.Path | None = None
    """Write the rows here."""
    quick: bool = False
    """A tenth of the time, small tables only: for a glance, not for a record."""
    sections: tyro.conf.EnumChoicesFromValues[tuple[Section, ...]] = tuple(Section)
    """Which parts."""
    device: str = "cpu"
    """Where ours is drawn in further rows: cuda beside cpu."""
    batch: int = dataclasses.field(default_factory=lambda: tiny().shards.group_size)
    """Tasks that are drawn together, as in the shards of `tiny`; a quarter of them where tables are larger."""
    rounds: int = 9
    """Rounds of which the median counts; ours and the other take turns."""
    seconds: float = 2.0
    """Length of a round of each side."""
    peer_python: pathlib.Path | None = None
    """A Python that has tabicl and xgboost; by default Bazel installs them."""

    def __post_init__(self) -> None:
        """Refuses what measures nothing.

        Raises:
            Failure: BAD_FLAG; TOO_FEW_RESOURCES for a device that is absent.
        """
        for flag, value in (("batch", self.batch), ("rounds", self.rounds)):
            if value < 1:
                raise Failure(ExitCode.BAD_FLAG, f"--{flag} {value} is too small: give 1 or more")
        if not self.seconds > 0:
            raise Failure(ExitCode.BAD_FLAG, f"--seconds {self.seconds} is too small: give more than 0")
        if self.device not in ("cpu", "cuda"):
            raise Failure(ExitCode.BAD_FLAG, f"--device {self.device} is not known: choose cpu or cuda")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise Failure(ExitCode.TOO_FEW_RESOURCES, "--device cuda: this machine has no GPU; leave it out")


def priors() -> PriorsBenchConfig:
    """Tasks a second beside tabicl's prior, and all that a training run waits for: about 10 minutes."""
    return PriorsBenchConfig()


# (our family, their prior, the least ratio): None is the default mixture.
_PAIRS = (
    (Family.MLP_SCM, "mlp_scm", 30.0),
    (Family.GRAPH_SCM, "graph_scm", 50.0),
    (None, "mix_scm", 20.0),
)
_SMALL, _LARGE = (256, 20), (1024, 50)


def measure(config: PriorsBenchConfig, *, save: SaveRows) -> list[BenchRow]:
    """Measures what the config names; `save` is called after every section."""
    if config.quick:
        config = dataclasses.replace(config, rounds=min(config.rounds, 3), seconds=min(config.seconds, 0.3))
    return _Bench(config).run(save=save)


@contextlib.contextmanager
def _one_core() -> Iterator[int | None]:
    """Keeps this process on one of its cores inside; yields which, or None where the system cannot do that."""
    if not hasattr(os, "sched_setaffinity"):
        yield None
        return
    before = os.sched_getaffinity(0)
    core = max(before)
    os.sched_setaffinity(0, {core})
    try:
        yield core
    finally:
        os.sched_setaffinity(0, before)


class _Bench:
    """One run: every section appends its rows."""

    def __init__(self, config: PriorsBenchConfig) -> None:
        self._config = config
        self._shapes = (_SMALL,) if config.quick else (_SMALL, _LARGE)
        self._rows: list[BenchRow] = []

    def run(self, *, save: SaveRows) -> list[BenchRow]:
        """Measures everything that the config names; `save` is called after every section."""
        sections: dict[Section, Callable[[], None]] = {
            Section.RATES: self._rates,
            Section.GRAPHS: self._graphs,
            Section.PYTHON: self._python,
            Section.PROCESSES: self._processes,
            Section.VERIFY: self._verify,
            Section.TRAINING: self._training,
        }
        for section, measure in sections.items():
            if section in self._config.sections:
                measure()
                save(self._rows)
        return self._rows

    def _case(self, family: Family | None, *, shape: tuple[int, int] = _SMALL, filtered: bool = False) -> SpeedCase:
        prior = bench_prior(family=family, filtered=filtered)
        count = self._config.batch if shape == _SMALL else max(1, self._config.batch // 4)
        return SpeedCase(prior=prior, rows=shape[0], features=shape[1], count=count)

    def _rates(self) -> None:
        cases = [(pair, shape, filtered) for shape in self._shapes for filtered in (False, True) for pair in _PAIRS]
        total = len(cases) * self._config.rounds
        with _peer(self._config) as peer, progress.meter("rates", total=total, unit="rounds") as meter:
            for number, (pair, shape, filtered) in enumerate(cases):
                self._pair(pair, shape=shape, filtered=filtered, peer=peer, meter=_after(meter, number, self._config))

    def _pair(
        self,
        pair: tuple[Family | None, str, float],
        *,
        shape: tuple[int, int],
        filtered: bool,
        peer: PeerProcess | None,
        meter: Callable[[int, str], None],
    ) -> None:
        """One of our families, or the mixture, in turn with one of their priors."""
        family, theirs, least = pair
        case = self._case(family, shape=shape, filtered=filtered)
        asked = {"prior": theirs, "rows": shape[0], "features": shape[1], "filtered": filtered}
        name = f"{family or 'default mixture'} against {theirs}, {shape[0]:,} × {shape[1]}"
        name += ", both filters on" if filtered else ""
        goal = least if shape == _SMALL and not filtered else 0.0
        with _one_core() as core:
            groups = groups_that_last(case, seconds=self._config.seconds)
            sides: list[Callable[[int], float]] = [
                lambda number: tasks_per_second(case, seed=1000 * (number + 1), groups=groups)
            ]
            if peer is not None:
                first = peer.seconds_per_task(asked, seed=0, count=8, core=core)
                count = 4 * max(1, min(64, round(self._config.seconds / first / 4)))
                sides.append(lambda number: 1 / peer.seconds_per_task(asked, seed=number + 2, count=count, core=core))
            for values, done in in_turn(sides, rounds=self._config.rounds):
                meter(done, name)
        note = f"one core; batches of {case.count}"
        peers = values[1] if peer is not None else ()
        self._rows.append(
            measured_row(name=name, unit="tasks/s", ours=values[0], peer=peers, least_ratio=goal, note=note)
        )
        if self._config.device == "cuda":
            self._on_gpu(dataclasses.replace(case, device="cuda"), name=name, peers=peers)

    def _on_gpu(self, case: SpeedCase, *, name: str, peers: Sequence[float]) -> None:
        groups = groups_that_last(case, seconds=self._config.seconds)
        rates = [
            tasks_per_second(case, seed=1000 * (number + 1), groups=groups) for number in range(self._config.rounds)
        ]
        note = f"ours on one GPU, the other on one core; batches of {case.count}"
        self._rows.append(measured_row(name=f"{name}, on cuda", unit="tasks/s", ours=rates, peer=peers, note=note))

    def _graphs(self) -> None:
        different, number = distinct_graphs(self._case(Family.GRAPH_SCM), seed=1)
        note = f"of {number} tasks drawn together"
        self._rows.append(
            BenchRow(name="distinct graphs in a batch of graph_scm", unit="graphs", ours=different, note=note)
        )

    def _python(self) -> None:
        note = "1 − self CPU time of aten operations ÷ wall-clock time, both under torch.profiler"
        for family in (Family.MLP_SCM, Family.GRAPH_SCM, None):
            for shape in self._shapes:
                with _one_core():
                    share = python_share(self._case(family, shape=shape), seed=1, groups=2)
                name = f"time outside tensor kernels, {family or 'default mixture'}, {shape[0]:,} × {shape[1]}"
                self._rows.append(BenchRow(name=name, unit="share", ours=share, note=note))

    def _processes(self) -> None:
        workers = os.cpu_count() or 1
        case = self._case(None)
        groups = groups_that_last(case, seconds=self._config.seconds)
        gains: list[tuple[float, float]] = []
        with Generators(case, workers=workers) as generators:
            for number in range(self._config.rounds):
                one, all_ = (generators.pace(workers=w, seed=number + 1, groups=groups) for w in (1, workers))
                cpu = workers * all_.per_cpu_second / one.per_cpu_second
                gains.append((all_.per_second / one.per_second, cpu))
        for place, what in enumerate(("time", "CPU time, which other programs do not disturb")):
            name = f"{workers} processes against one, by {what}"
            row = measured_row(name=name, unit="× one", ours=[gain[place] for gain in gains], note="default mixture")
            least = 0.9 * workers
            self._rows.append(dataclasses.replace(row, goal=f"≥ {least:g}", met=row.ours >= least))

    def _verify(self) -> None:
        config = ShardConfig(prior=dataclasses.replace(bench_prior(family=None, filtered=False), **_LARGE_ONLY))
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "shards"
            ensure_shards(config, out=out, num_tasks=256 if self._config.quick else 2048, seed=0)
            with _one_core():
                rates = [verified_gigabytes_per_second(out) for _ in range(self._config.rounds)]
        row = measured_row(name="shards verified", unit="GB/s", ours=rates, note="one core, files in memory")
        self._rows.append(dataclasses.replace(row, goal="≥ 1", met=row.ours >= 1.0))

    def _training(self) -> None:
        for found in measure_waiting(num_steps=20 if self._config.quick else 60):
            name = f"training waits for tasks, {found.source}"
            note = f"{found.workers} workers, preset tiny, {found.num_steps} steps; the first waits {found.start:.1f} s"
            row = BenchRow(name=name, unit="share", ours=found.share, goal="< 0.05", met=found.share < 0.05, note=note)
            self._rows.append(row)


_LARGE_ONLY = {"min_rows": 1024, "max_rows": 1024, "min_features": 50, "max_features": 50}


def _after(meter: progress.Meter, number: int, config: PriorsBenchConfig) -> Callable[[int, str], None]:
    return lambda done, note: meter(number * config.rounds + done, note)


@contextlib.contextmanager
def _peer(config: PriorsBenchConfig) -> Iterator[PeerProcess | None]:
    """The other's process; None, with a line that says how to get it, where it is not to be had."""
    with contextlib.ExitStack() as stack:
        try:
            peer = stack.enter_context(PeerProcess(peer_command(config.peer_python)))
        except Failure as failure:
            if config.peer_python is not None:
                raise
            progress.say(f"ours alone is measured: {failure.message}")
            peer = None
        yield peer
