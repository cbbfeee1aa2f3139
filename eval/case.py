"""A subject brought before the audits: its specimens, the measured noise floor, and the form of a verdict."""

import dataclasses
import functools

import torch
from torch import Tensor

from eval.specimens import large_specimen, specimens
from eval.subject import Run, Subject
from eval.tracing import Difference, Rows, Stage, differences, first_moved, largest_gap
from priors.task import Episode, TaskBatch

_ROUNDING_MULTIPLE = 16.0
_LEAST_TOLERANCE = 2e-6
_MOST_TOLERANCE = 1e-3
CONTROL_MULTIPLE = 10.0
"""A positive control must move predictions by at least this many tolerances."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditResult:
    """A verdict.

    Args:
        name: the audit.
        passed: whether nothing moved that must not, and everything moved that must.
        stage: where it failed first (a value of `Stage`), or None.
        figures: what was measured.
        message: one line.
    """

    name: str
    passed: bool
    stage: str | None
    figures: dict[str, float]
    message: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Noise:
    """The noise floor of one subject.

    Args:
        repeat: the first reading that differs between two equal runs, or None.
        rounding: largest difference of predictions between this precision and fp64: the size of rounding errors.
    """

    repeat: Difference | None
    rounding: float

    @property
    def tolerance(self) -> float:
        """How far predictions may differ where floating-point operations are ordered otherwise (0 in equal shapes)."""
        return max(_LEAST_TOLERANCE, _ROUNDING_MULTIPLE * self.rounding)

    @property
    def too_loud(self) -> bool:
        """Whether rounding is so large that leaks would drown in it."""
        return self.tolerance > _MOST_TOLERANCE


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One subject and the tables on which it is judged: three small ones, and a large one."""

    subject: Subject
    episodes: tuple[Episode, ...]

    @classmethod
    def of(cls, subject: Subject, *, seed: int = 0) -> "Case":
        """The case of a subject on tables that its network takes."""
        config = subject.network.config
        found = specimens(subject.kind, max_features=config.max_features, max_classes=config.icl.max_classes, seed=seed)
        return cls(subject=subject, episodes=tuple(found))

    @functools.cached_property
    def large(self) -> Episode:
        """A table beyond the sizes of the others."""
        config = self.subject.network.config
        return large_specimen(self.subject.kind, max_features=config.max_features, max_classes=config.icl.max_classes)

    def run(self, episodes: list[Episode]) -> Run:
        """A pass of a fresh copy of the subject: nothing that an earlier run left can freeze a leak."""
        return self.subject.fresh().run(episodes)

    @functools.cached_property
    def noise(self) -> Noise:
        """The measured noise floor."""
        subject, tables = self.subject.fresh(), list(self.episodes)
        first, second = subject.run(tables), subject.run(tables)
        everything = Rows()
        moved = first_moved(differences(first.trace, second.trace, rows_before=everything, rows_after=everything))
        exact = self.subject.fresh(dtype=torch.float64).run(tables)
        return Noise(repeat=moved, rounding=prediction_gap(first, exact))

    def failed(self, name: str, *, stage: str | None, figures: dict[str, float], message: str) -> AuditResult:
        """A verdict against the subject."""
        return AuditResult(name=name, passed=False, stage=stage, figures=figures, message=message)

    def passed(self, name: str, *, figures: dict[str, float], message: str) -> AuditResult:
        """A verdict for the subject."""
        return AuditResult(name=name, passed=True, stage=None, figures=figures, message=message)


def real_readout(run: Run) -> Tensor:
    """[rows, W] the readout of all real queries of a run, table after table."""
    return run.readout[torch.from_numpy(run.batch.query_mask)]


def prediction_gap(first: Run, second: Run) -> float:
    """Largest difference of predictions over the real queries of two runs with equal queries."""
    return largest_gap(real_readout(first), real_readout(second))


def visibility_truth(batch: TaskBatch, *, num_thinking: int) -> Tensor:
    """[B, P + T, P + T] bool: every row may read thinking rows and the real context rows of its table (seed 5.5)."""
    real = torch.nn.functional.pad(torch.from_numpy(batch.context_mask), (num_thinking, 0), value=True)
    (tables, num_context), num_query = real.shape, batch.x_query.shape[1]
    rows = num_context + num_query
    truth = torch.zeros(tables, rows, rows, dtype=torch.bool)
    truth[:, :, :num_context] = real[:, None, :]
    return truth


def blamed_stage(moved: Difference, run: Run) -> Stage:
    """The stage to name for a reading that moved: a block whose attention sees what it must not is the mask's fault."""
    if moved.stage is not Stage.BLOCKS:
        return moved.stage
    truth = visibility_truth(run.batch, num_thinking=run.trace.num_thinking)
    if any(not torch.equal(call.visible(), truth) for call in run.trace.attention):
        return Stage.MASK
    return moved.stage
