"""Audit of the training loader: query labels of its records reach nothing but a batch's answers (5.A)."""

import dataclasses
import pathlib
import tempfile

import numpy as np

from eval.case import CONTROL_MULTIPLE, AuditResult, Case, prediction_gap
from eval.specimens import Shape, specimen
from eval.tracing import Rows, Stage, differences, first_moved
from priors.group import TaskGroup
from priors.shards import ShardSet, ShardSource, write_part, write_set
from priors.task import TaskKind

NUM_TASKS = 4
_NUM_BATCHES = 2
_FIRST_ID = 1000.0  # column 0 of every row is its number plus this, so that a batch tells where its rows come from
_SHAPE = Shape(num_context=48, num_query=24, num_features=5, num_classes=3)


class _RelabelledSet(ShardSet):
    """The same shard set with other labels in some rows of its records; its digest, and so the order, is the same."""

    def relabel(self, rows: list[np.ndarray]) -> None:
        """Chooses the rows of each task whose labels are changed."""
        self._rows = rows

    def group(self, index: int) -> TaskGroup:
        """The group as read, with the labels changed."""
        group = super().group(index)
        for task, rows in enumerate(self._rows):
            if group.kind is TaskKind.CLASSIFICATION:
                group.y[task, rows] = (group.y[task, rows] + 1) % group.num_classes[task]
            else:
                group.y[task, rows] = 100.0 - group.y[task, rows]
        return group


def loader(case: Case) -> AuditResult:
    """Changes, in the records behind the training loader, the labels of rows that it makes queries.

    Inputs, every stage and the predictions stay bit by bit; only the batch's answers change. Labels are changed so that
    the classes of the context stay, since the loader brings every class into the context where there is room.
    """
    name, subject = "loader", case.subject.fresh()
    figures = {"relabelled_rows": 0.0, "largest_move": 0.0, "control": 0.0}
    with tempfile.TemporaryDirectory() as folder:
        records = ShardSet.open(_written(pathlib.Path(folder), case=case))
        changed = _RelabelledSet(records.folder, manifest=records.manifest)
        for index in range(_NUM_BATCHES):
            batch = subject.load(records, index)
            base = subject.run_batch(batch)
            changed.relabel([_row_numbers(x) for x in batch.x_query])
            other = subject.run_batch(subject.load(changed, index))
            moved = first_moved(differences(base.trace, other.trace, rows_before=Rows(), rows_after=Rows()))
            figures["relabelled_rows"] += float(batch.y_query.size)
            if moved is not None:
                figures["largest_move"] = moved.absolute
                what = f"{moved.name} moved by {moved.absolute:.3g} when only labels of query records changed"
                return case.failed(name, stage=moved.stage, figures=figures, message=what)
            if (base.batch.y_query == other.batch.y_query).any():
                what = "the changed labels did not arrive as answers: the audit is blind"
                return case.failed(name, stage=Stage.COLLATE, figures=figures, message=what)
            changed.relabel([_row_numbers(x)[:1] for x in batch.x_context])
            control = prediction_gap(base, subject.run_batch(subject.load(changed, index)))
            figures["control"] = max(figures["control"], control)
    if figures["control"] < CONTROL_MULTIPLE * case.noise.tolerance:
        what = f"a changed label of a context record moves predictions by only {figures['control']:.3g}: blind"
        return case.failed(name, stage=None, figures=figures, message=what)
    return case.passed(name, figures=figures, message="labels of query records reach nothing but the answers")


def _written(folder: pathlib.Path, *, case: Case) -> pathlib.Path:
    """A shard set of one group in `folder`."""
    config, kind = case.subject.network.config, case.subject.kind
    shape = dataclasses.replace(
        _SHAPE,
        num_features=min(_SHAPE.num_features, config.max_features),
        num_classes=min(_SHAPE.num_classes, config.icl.max_classes),
    )
    tasks = [specimen(kind, shape, seed=100 + index).task for index in range(NUM_TASKS)]
    x = np.stack([task.x for task in tasks])
    x[:, :, 0] = _FIRST_ID + np.arange(x.shape[1])
    group = TaskGroup(
        x=x,
        y=np.stack([task.y for task in tasks]),
        column_kinds=np.stack([task.column_kinds for task in tasks]),
        level_counts=np.stack([task.level_counts for task in tasks]),
        num_classes=np.array([task.num_classes for task in tasks], np.int32),
        families=tuple(task.family for task in tasks),
        seeds=np.array([task.seed for task in tasks], np.int64),
        parameters=("{}",) * NUM_TASKS,
        kind=kind,
    )
    source = ShardSource(config={"purpose": "audit"}, seed=0, kind=kind)
    write_set(folder, [write_part(folder, [group], source=source, index=0)], source=source)
    return folder


def _row_numbers(x: np.ndarray) -> np.ndarray:
    """Which records the rows x [M, C] of a batch are."""
    numbers = x[:, (x >= _FIRST_ID).all(axis=0) & np.isfinite(x).all(axis=0)]
    return (numbers[:, 0] - _FIRST_ID).astype(int)
