"""Audits of a predictor from outside: nothing is known of it but `predict(x_context, y_context, x_query)`.

They run on whatever predicts from a context: our own estimators, baselines, and other people's packages. Being blind to
the inside they name no stage, and see no query label, which the interface does not take. Three kinds of findings:

- must not move a prediction: other queries (`query_set`), their order, how they are batched;
- must move it, or every other verdict is worthless: the context's labels, a query's own features;
- has a size and no verdict: duplicating a context row, permuting classes or features, the last digit of the features.

A prediction may differ by rounding where a batch has another shape, and from outside rounding cannot be told from a
leak of its size. The tolerance is measured on each predictor, by shaking the features by half a unit in fp32's last
place, but bounded on both sides: some predictors hash rows, and no shake of theirs is small.
"""

import dataclasses
import enum
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tools.failure import BadInput, ExitCode

Predict = Callable[[np.ndarray, np.ndarray, np.ndarray], Any]
"""x_context [N, C], y_context [N], x_query [M, C] → class probabilities [M, K] (labels are 0..K-1) or numbers [M]."""

_ROUNDING_MULTIPLE = 16.0
_LEAST_TOLERANCE = 1e-5
_MOST_TOLERANCE = 1e-4
_CONTROL_MULTIPLE = 10.0
_SHAKES = 3
_HALF_ULP = 2.0**-24
_FAR = 1e3


class Verdict(enum.StrEnum):
    """What an audit says."""

    PASS = "pass"
    FAIL = "fail"
    SIZE = "size"  # a figure without a verdict


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """What one audit found, over all tables.

    Args:
        name: the audit.
        verdict: pass, fail, or a size without a verdict.
        figures: what was measured; gaps are the largest absolute difference of any number predicted.
        message: one line.
    """

    name: str
    verdict: Verdict
    figures: dict[str, float]
    message: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """One context with queries.

    Args:
        x_context: [N, C].
        y_context: [N] class ids 0..K-1 (integers), or numbers.
        x_query: [M, C].
    """

    x_context: np.ndarray
    y_context: np.ndarray
    x_query: np.ndarray

    @property
    def num_classes(self) -> int:
        """K; 0 for a regression table."""
        return int(self.y_context.max()) + 1 if self.y_context.dtype.kind == "i" else 0

    def but(self, **changes: np.ndarray) -> "Table":
        """The table with some parts replaced."""
        return dataclasses.replace(self, **changes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Noise:
    """How far predictions move when nothing that matters changes.

    Args:
        repeat: between two equal calls.
        rounding: when every feature moves by half a unit in fp32's last place.
        scale: the largest prediction in size, 1 or more.
    """

    repeat: float
    rounding: float
    scale: float

    @property
    def tolerance(self) -> float:
        """What may be rounding."""
        return self.scale * min(max(_LEAST_TOLERANCE, _ROUNDING_MULTIPLE * self.rounding), _MOST_TOLERANCE)

    @property
    def control(self) -> float:
        """What a change that matters must reach."""
        return _CONTROL_MULTIPLE * self.tolerance

    @property
    def restless(self) -> bool:
        """Whether two equal calls differ by more than any rounding."""
        return self.repeat > self.scale * _MOST_TOLERANCE


@dataclasses.dataclass(frozen=True, kw_only=True)
class Probe:
    """A predictor before the audits.

    Args:
        predict: what is judged.
        tables: on which.
        seed: of every random change.
    """

    predict: Predict
    tables: tuple[Table, ...]
    seed: int = 0

    def __call__(self, table: Table) -> np.ndarray:
        """Predictions [M, K] of a table's queries; K is 1 for regression.

        Raises:
            BadInput: CONFIG_MISMATCH for predictions of another shape, or that are not finite.
        """
        found = np.asarray(self.predict(table.x_context, table.y_context, table.x_query), np.float64)
        wanted = (len(table.x_query), table.num_classes) if table.num_classes else (len(table.x_query),)
        if found.shape != wanted:
            raise BadInput(ExitCode.CONFIG_MISMATCH, f"predict gave shape {found.shape}: it must give {wanted}")
        if not np.isfinite(found).all():
            what = f"predict gave {int((~np.isfinite(found)).sum())} numbers that are not finite"
            raise BadInput(ExitCode.CONFIG_MISMATCH, f"{what}: nothing can be judged by them")
        return found.reshape(len(found), -1)

    def generator(self) -> np.random.Generator:
        """A fresh generator, the same for every audit."""
        return np.random.default_rng([self.seed, 1])  # another stream than the tables'

    def noise(self) -> Noise:
        """The noise floor over all tables."""
        bases = [self(table) for table in self.tables]
        scale = max(1.0, *(float(np.abs(base).max()) for base in bases))
        repeat = max(_gap(base, self(table)) for base, table in zip(bases, self.tables, strict=True))
        rounding = max(_gap(before, after) for before, after in last_digit(self)) / scale
        return Noise(repeat=repeat, rounding=rounding, scale=scale)


def black_box_tables(*, num_classes: int, seed: int = 0) -> tuple[Table, ...]:
    """Three small tables whose labels can be learned from the first columns; num_classes 0 for regression."""
    generator = np.random.default_rng(seed)
    return tuple(
        _table(generator, rows=rows, columns=columns, num_classes=num_classes)
        for rows, columns in ((24, 4), (40, 6), (61, 3))
    )


def audit_black_box(predict: Predict, *, num_classes: int, seed: int = 0) -> list[Finding]:
    """All findings on a predictor, in the order in which they are shown.

    Args:
        predict: what is judged.
        num_classes: of the tables, 2 or more; 0 for regression, which has no class permutation.
        seed: of the tables and of every change.
    """
    probe = Probe(predict=predict, tables=black_box_tables(num_classes=num_classes, seed=seed), seed=seed)
    noise = probe.noise()
    if noise.restless:
        message = f"two equal calls differ by {noise.repeat:.3g}: leaks would drown in it"
        figures = {"repeat": noise.repeat}
        return [Finding(name=name, verdict=Verdict.FAIL, figures=figures, message=message) for name in _JUDGED]
    findings = [_judged(name, probe, noise) for name in _JUDGED]
    sizes = {name: size for name, size in _SIZES.items() if num_classes or name != "class_permutation"}
    return findings + [_sized(name, size, probe=probe) for name, size in sizes.items()]


def context_labels(probe: Probe) -> Iterator[tuple[str, float]]:
    """Positive control: other labels in the context move predictions."""
    for table in probe.tables:
        other = (table.y_context + 1) % table.num_classes if table.num_classes else -table.y_context
        yield "moves", _gap(probe(table), probe(table.but(y_context=other)))


def own_row(probe: Probe) -> Iterator[tuple[str, float]]:
    """Positive control: a query's own features move its prediction. The least influence of any query counts."""
    for table in probe.tables:
        base, fresh = probe(table), np.roll(table.x_query, 1, axis=0) + 0.25
        for row in range(len(table.x_query)):
            yield "moves", _gap(base[row], probe(table.but(x_query=_with_row(table.x_query, row, fresh[row])))[row])


def query_set(probe: Probe) -> Iterator[tuple[str, float]]:
    """The first and the last query keep their predictions when the others are replaced, duplicated, dropped, added."""
    generator = probe.generator()
    for table in probe.tables:
        x, base, ends = table.x_query, probe(table), [0, -1]
        fresh = generator.normal(size=x[1:-1].shape)
        others = {
            "replaced": np.concatenate([x[:1], fresh, x[-1:]]),
            "far_away": np.concatenate([x[:1], _FAR * fresh, x[-1:]]),
            "duplicated": np.concatenate([x[:1], np.repeat(x[:1], len(fresh), axis=0), x[-1:]]),
            "dropped": x[ends],
            "added": np.concatenate([x[:1], fresh, x[1:]]),
        }
        for what, x_query in others.items():
            found = probe(table.but(x_query=x_query))
            yield what, _gap(base[ends], found[ends])
            if what == "replaced":
                yield "moves", _gap(base[1:-1], found[1:-1])


def query_permutation(probe: Probe) -> Iterator[tuple[str, float]]:
    """Queries in another order have the same predictions."""
    generator = probe.generator()
    for table in probe.tables:
        base, order = probe(table), generator.permutation(len(table.x_query))
        for what, index in (("reversed", np.arange(len(base))[::-1]), ("shuffled", order)):
            found = probe(table.but(x_query=table.x_query[index]))
            yield what, _gap(base[index], found)
            yield "moves", _gap(base, found)


def query_batching(probe: Probe) -> Iterator[tuple[str, float]]:
    """One query at a time, and two batches, give the predictions of all at once."""
    for table in probe.tables:
        base, x, half = probe(table), table.x_query, len(table.x_query) // 2
        alone = np.concatenate([probe(table.but(x_query=row[None])) for row in x])
        halves = np.concatenate([probe(table.but(x_query=part)) for part in (x[:half], x[half:])])
        yield "one_at_a_time", _gap(base, alone)
        yield "two_batches", _gap(base, halves)
        yield "moves", _gap(base[:1], base[1:])


def duplicate_row(probe: Probe) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Before and after the first context row is there twice, for each table."""
    for table in probe.tables:
        twice = table.but(
            x_context=np.concatenate([table.x_context, table.x_context[:1]]),
            y_context=np.concatenate([table.y_context, table.y_context[:1]]),
        )
        yield probe(table), probe(twice)


def class_permutation(probe: Probe) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Before and after classes are renumbered, columns put back in order."""
    generator = probe.generator()
    for table in probe.tables:
        base = probe(table)
        for names in _orders(table.num_classes, generator):
            yield base, probe(table.but(y_context=names[table.y_context]))[:, names]


def feature_permutation(probe: Probe) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Before and after columns are reordered, in context and queries alike."""
    generator = probe.generator()
    for table in probe.tables:
        base = probe(table)
        for order in _orders(table.x_context.shape[1], generator):
            yield base, probe(table.but(x_context=table.x_context[:, order], x_query=table.x_query[:, order]))


def last_digit(probe: Probe) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Before and after every feature moves by half a unit in the last place of fp32."""
    generator = probe.generator()
    for table in probe.tables:
        base = probe(table)
        for _ in range(_SHAKES):
            yield base, probe(_shaken(table, generator))


_JUDGED: dict[str, Callable[[Probe], Iterator[tuple[str, float]]]] = {
    "context_labels": context_labels,
    "own_row": own_row,
    "query_set": query_set,
    "query_permutation": query_permutation,
    "query_batching": query_batching,
}
_SIZES: dict[str, Callable[[Probe], Iterator[tuple[np.ndarray, np.ndarray]]]] = {
    "duplicate_row": duplicate_row,
    "class_permutation": class_permutation,
    "feature_permutation": feature_permutation,
    "last_digit": last_digit,
}
_MUST_MOVE = {"context_labels": "the context's labels do not matter", "own_row": "a query's features do not matter"}


def _judged(name: str, probe: Probe, noise: Noise) -> Finding:
    """The verdict of an audit from its gaps: `moves` must be large, every other one rounding."""
    figures: dict[str, float] = {"tolerance": noise.tolerance}
    for what, gap in _JUDGED[name](probe):
        worst = min if what == "moves" else max
        figures[what] = worst(figures.get(what, gap), gap)
    moves = figures["moves"]
    moved = {what: gap for what, gap in figures.items() if what not in ("moves", "tolerance") and gap > noise.tolerance}
    verdict = Verdict.FAIL
    if moves < noise.control:
        why = _MUST_MOVE.get(name, "the audit is blind")
        message = f"what must move predictions moves them by only {moves:.3g}: {why}"
    elif moved:
        what, gap = max(moved.items(), key=lambda item: item[1])
        message = f"{_CHANGES[what]} moves a query's prediction by {gap:.3g}"
    else:
        verdict, message = Verdict.PASS, _HOLDS[name]
    return Finding(name=name, verdict=verdict, figures=figures, message=message)


_CHANGES = {
    "replaced": "replacing the other queries",
    "far_away": f"putting the other queries {_FAR:.0f} deviations away",
    "duplicated": "making the other queries copies",
    "dropped": "dropping the other queries",
    "added": "adding queries",
    "reversed": "reversing the queries",
    "shuffled": "shuffling the queries",
    "one_at_a_time": "asking one query at a time",
    "two_batches": "asking in two batches",
}
_HOLDS = {
    "context_labels": "other labels in the context move predictions",
    "own_row": "every query's own features move its prediction",
    "query_set": "other queries do not matter",
    "query_permutation": "the order of queries does not matter",
    "query_batching": "how queries are batched does not matter",
}


def _sized(name: str, size: Callable[[Probe], Iterator[tuple[np.ndarray, np.ndarray]]], *, probe: Probe) -> Finding:
    """Largest and mean difference, beside how much predictions differ between queries at all."""
    pairs = list(size(probe))
    figures = {
        "largest": max(_gap(before, after) for before, after in pairs),
        "mean": float(np.mean([np.abs(before - after).mean() for before, after in pairs])),
        "between_queries": float(np.mean([np.abs(before - before.mean(0)).mean() for before, _ in pairs])),
    }
    if pairs[0][0].shape[1] > 1:
        decisions = [(before.argmax(1) != after.argmax(1)).mean() for before, after in pairs]
        figures["decisions_changed"] = float(np.mean(decisions))
    message = f"moves predictions by {figures['mean']:.3g} on average, {figures['largest']:.3g} at most"
    return Finding(name=name, verdict=Verdict.SIZE, figures=figures, message=message)


def _table(generator: np.random.Generator, *, rows: int, columns: int, num_classes: int) -> Table:
    x = generator.normal(size=(rows + 7, columns))
    signal = x[:, 0] - 0.7 * x[:, 1] + 0.3 * generator.normal(size=len(x))
    y = signal
    if num_classes:
        y = np.searchsorted(np.quantile(signal[:rows], np.arange(1, num_classes) / num_classes), signal)
    return Table(x_context=x[:rows], y_context=y[:rows], x_query=x[rows:])


def _shaken(table: Table, generator: np.random.Generator) -> Table:
    shaken = (
        part * (1 + _HALF_ULP * generator.choice([-1, 1], part.shape)) for part in (table.x_context, table.x_query)
    )
    x_context, x_query = shaken
    return table.but(x_context=x_context, x_query=x_query)


def _orders(count: int, generator: np.random.Generator) -> list[np.ndarray]:
    """The reverse order and a random one."""
    return [np.arange(count)[::-1], generator.permutation(count)]


def _with_row(x: np.ndarray, row: int, values: np.ndarray) -> np.ndarray:
    changed = x.copy()
    changed[row] = values
    return changed


def _gap(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.abs(first - second).max())
