"""The cost model as tables, for a terminal and for docs/cost.md."""

import dataclasses
import re
from collections.abc import Iterator, Sequence

import rich.table

from bench.cost_model import ModelCost, stage_shapes, task_cost
from bench.stragglers import Link, StepTimes, failures, simulate
from tools.failure import ExitCode, Failure
from train.presets import PRESETS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Assumptions:
    """What the tables take for granted; the program has a flag for each."""

    mfu: float
    chip_flops: float
    gpus: tuple[int, ...]
    tasks_per_gpu: int
    link: Link
    mtbf_seconds: float
    checkpoint_seconds: float
    restart_seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class CostTable:
    """Args: title, headings and cells; the first column is text, the others are numbers."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """For a document."""
        lines = [self.headings, ("---", *("---:" for _ in self.headings[1:])), *self.rows]
        return f"**{self.title}**\n\n" + "\n".join(f"| {' | '.join(cells)} |" for cells in lines)

    def terminal(self) -> rich.table.Table:
        """For a terminal."""
        table = rich.table.Table(title=self.title, title_justify="left")
        for number, heading in enumerate(self.headings):
            table.add_column(heading, justify="right" if number else "left")
        for row in self.rows:
            table.add_row(*row)
        return table


def compute_table(costs: Sequence[ModelCost], assumed: Assumptions) -> CostTable:
    """Tasks, FLOPs and GPU-hours, stage by stage."""
    rows = []
    for cost in costs:
        for number, stage in enumerate(cost.stages, start=1):
            hours = stage.gpu_hours(mfu=assumed.mfu, chip_flops=assumed.chip_flops)
            rows.append(
                (
                    f"{cost.preset} {cost.kind}, stage {number} of {len(cost.stages)}",
                    f"{stage.tasks:,}",
                    f"{stage.mean_rows:,.0f} × {stage.mean_features:.0f}",
                    f"{stage.flops_per_task / 1e9:,.1f}",
                    f"{stage.flops / 1e15:,.2f}",
                    f"{hours:.4f}",
                    f"{stage.shard_bytes / 1e9:,.1f}",
                )
            )
    headings = ("model", "tasks", "mean table", "GFLOP a task", "PFLOP", "GPU-hours", "shards, GB")
    title = f"Compute: GPU-hours at {assumed.mfu:.0%} of {assumed.chip_flops / 1e12:,.0f} TFLOP/s"
    return CostTable(title=title, headings=headings, rows=tuple(rows))


def memory_table(costs: Sequence[ModelCost]) -> CostTable:
    """Bytes on disks and on GPUs."""
    rows = tuple(
        (
            f"{cost.preset} {cost.kind}",
            f"{cost.parameters / 1e6:,.1f}",
            f"{cost.checkpoint_bytes / 1e6:,.0f}",
            f"{cost.disk_bytes / 1e6:,.0f}",
            f"{cost.state_bytes / 1e6:,.0f}",
            " · ".join(f"{stage.largest_task_bytes / 1e9:,.2f}" for stage in cost.stages),
        )
        for cost in costs
    )
    headings = (
        "model",
        "parameters, M",
        "checkpoint, MB",
        "all checkpoints, MB",
        "weights, gradients, optimizer, MB",
        "largest task by stage, GB",
    )
    return CostTable(title="Memory", headings=headings, rows=rows)


def failure_table(assumed: Assumptions) -> CostTable:
    """What failures take on ever more GPUs."""
    rows = []
    for gpus in assumed.gpus:
        found = failures(
            gpus=gpus,
            mtbf_seconds=assumed.mtbf_seconds,
            checkpoint_seconds=assumed.checkpoint_seconds,
            restart_seconds=assumed.restart_seconds,
        )
        mean = assumed.mtbf_seconds / gpus
        rows.append(
            (
                f"{gpus}",
                f"{mean / 3600:,.0f}",
                f"{found.interval_seconds / 60:,.0f}",
                f"{found.lost_share:.3%}",
            )
        )
    headings = ("GPUs", "hours between failures", "best interval, min", "time lost")
    often = f"one in {assumed.mtbf_seconds / 3600:,.0f} hours of a GPU"
    title = f"Failures: {often}, {assumed.checkpoint_seconds:g} s to save, {assumed.restart_seconds:g} s to start again"
    return CostTable(title=title, headings=headings, rows=tuple(rows))


def straggler_table(costs: Sequence[ModelCost], assumed: Assumptions, *, times: StepTimes) -> CostTable:
    """What waiting and exchanging take, with the preset's batch and with one that grows with the GPUs."""
    rows = []
    for cost in costs:
        stage = PRESETS[cost.preset]().stages(cost.kind)[0]
        network = PRESETS[cost.preset]().models()[cost.kind].network
        flops = task_cost(network).flops_of(stage_shapes(stage))
        for gpus in assumed.gpus:
            for batch in sorted({stage.batch_size, assumed.tasks_per_gpu * gpus}):
                name = f"{cost.preset} {cost.kind}, {gpus} GPUs, batch {batch:,}"
                if batch < gpus:
                    rows.append((name, *("–" for _ in range(6))))
                    continue
                found = simulate(
                    times, flops, gpus=gpus, batch_size=batch, gradient_bytes=4 * cost.parameters, link=assumed.link
                )
                shares = (found.uneven, found.jitter, found.exchange, found.efficiency, found.own_shapes)
                rows.append((name, f"{found.step_seconds * 1e3:,.1f}", *(f"{share:.1%}" for share in shares)))
    headings = ("case", "step, ms", "uneven shares", "jitter", "all-reduce", "efficiency", "if shapes differed")
    title = f"Stragglers (first stage): {times.label}; jitter {times.jitter:.1%}"
    return CostTable(title=title, headings=headings, rows=tuple(rows))


def renewed(text: str, *, name: str, tables: Sequence[CostTable]) -> str:
    """A document whose part `name`, between its two comments, holds the tables.

    Raises:
        Failure: NOT_FOUND for a document that has no such part.
    """
    begin, end = f"<!-- {name}: written by //bench:cost -->", f"<!-- end of {name} -->"
    body = "\n\n".join(table.markdown() for table in tables)
    found, count = re.subn(
        f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: f"{begin}\n\n{body}\n\n{end}", text, flags=re.DOTALL
    )
    if not count:
        raise Failure(ExitCode.NOT_FOUND, f"the document has no part {begin}: put it back")
    return found


def computed(costs: Sequence[ModelCost], assumed: Assumptions) -> Iterator[CostTable]:
    """The tables that depend on no machine."""
    yield compute_table(costs, assumed)
    yield memory_table(costs)
    yield failure_table(assumed)
