"""One study of realism: samples of priors against parts of real tables, as a record of plain JSON values."""

import dataclasses
import enum
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from priors.meta_features import GROUPS
from priors.realism_distance import (
    RealParts,
    SyntheticTasks,
    coverage,
    domain_distance,
    floor_distance,
    separations,
    standardised_by,
)
from priors.realism_weights import kernel_means, nearest_weights
from tools.config import to_json

MIXTURE = "mixture"
_FEWEST_TABLES = 4


class TableHalf(enum.StrEnum):
    """Which tables a study uses: weights chosen on one half are judged on the other."""

    ALL = "all"
    CHOOSING = "choosing"
    REPORTING = "reporting"

    def holds(self, table: str) -> bool:
        """Whether a table belongs to this half; its name alone decides."""
        if self is TableHalf.ALL:
            return True
        odd = hashlib.sha256(table.encode()).digest()[0] % 2
        return bool(odd) is (self is TableHalf.REPORTING)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sample:
    """Meta-features of one prior's tasks.

    Args:
        name: of the family or of another package's prior.
        values: [S, F].
        share: of the mixture that the family has; 0 for what is not of the mixture.
    """

    name: str
    values: np.ndarray
    share: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """What is compared.

    Args:
        real: parts of real tables.
        table_names: by the index that `real.owners` holds.
        feature_names: F names.
        samples: families of the mixture and other priors.
        seed: of folds, forests and draws.
    """

    real: RealParts
    table_names: tuple[str, ...]
    feature_names: tuple[str, ...]
    samples: tuple[Sample, ...]
    seed: int

    def families(self) -> tuple[Sample, ...]:
        """What the mixture consists of."""
        return tuple(sample for sample in self.samples if sample.share > 0)

    def mixture(self, shares: Mapping[str, float] | None = None) -> SyntheticTasks:
        """All families' tasks, weighed by their shares or by others."""
        parts = self.families()
        weight = {part.name: part.share if shares is None else shares.get(part.name, 0.0) for part in parts}
        weights = [np.full(len(part.values), weight[part.name] / len(part.values)) for part in parts]
        return SyntheticTasks(values=np.concatenate([part.values for part in parts]), weights=np.concatenate(weights))

    def size(self) -> int:
        """Parts and tasks compared at a time, the same for all rows; a prior with fewer tasks uses them all."""
        return min(len(self.real.owners), max(len(sample.values) for sample in self.samples))

    def part(self, half: TableHalf) -> "Study":
        """The same study on some of the tables."""
        kept = np.array([i for i, name in enumerate(self.table_names) if half.holds(name)], int)
        return dataclasses.replace(self, real=self.real.of(kept))


def rows_of(study: Study) -> Iterator[tuple[str, SyntheticTasks]]:
    """Name and tasks of everything that is compared with the real tables: the mixture, its families, other priors."""
    if study.families():
        yield MIXTURE, study.mixture()
    for sample in sorted(study.samples, key=lambda sample: sample.share == 0):
        yield sample.name, SyntheticTasks(values=sample.values, weights=np.ones(len(sample.values)))


def measured(study: Study, *, name: str, tasks: SyntheticTasks) -> dict[str, Any]:
    """One row: distance and coverage of a prior, and its distance by each group of meta-features alone."""
    found: dict[str, Any] = {
        "name": name,
        "tasks": int((tasks.weights > 0).sum()),
        "distance": to_json(domain_distance(study.real, tasks, size=study.size(), seed=study.seed)),
        "coverage": to_json(coverage(study.real, tasks, size=study.size(), seed=study.seed)),
    }
    if name == MIXTURE or not any(sample.name == name and sample.share for sample in study.samples):
        found["groups"] = {group: _group_distance(study, tasks, group=group) for group in GROUPS}
        chosen = separations(study.real, tasks, names=study.feature_names, seed=study.seed)
        found["separations"] = to_json(chosen)
    return found


def _group_distance(study: Study, tasks: SyntheticTasks, *, group: str) -> dict[str, float]:
    chosen = [i for i, name in enumerate(study.feature_names) if name.startswith(f"{group}.")]
    real = dataclasses.replace(study.real, values=study.real.values[:, chosen])
    alone = dataclasses.replace(tasks, values=tasks.values[:, chosen])
    return to_json(domain_distance(real, alone, size=study.size(), seed=study.seed, repeats=2))


def floor(study: Study) -> dict[str, float]:
    """Real tables against real tables."""
    return to_json(floor_distance(study.real, seed=study.seed))


def weighing(study: Study) -> dict[str, Any] | None:
    """Weights of the families that bring the mixture nearest to one half of the tables, judged on the other half.

    Returns:
        The present and the nearest shares, with squared discrepancy on both halves, and distance and coverage on the
        reporting half; None where there are fewer than two families, or a half has fewer than four tables.
    """
    choosing, reporting = study.part(TableHalf.CHOOSING), study.part(TableHalf.REPORTING)
    families = study.families()
    if len(families) < 2 or min(len(half.real.tables()) for half in (choosing, reporting)) < _FEWEST_TABLES:
        return None
    values = np.concatenate([family.values for family in families])
    names = tuple(family.name for family in families for _ in family.values)
    chosen, reported = (kernel_means(half.real, values=values, families=names) for half in (choosing, reporting))
    present = np.array([next(f.share for f in families if f.name == name) for name in chosen.families])
    out: dict[str, Any] = {"families": list(chosen.families)}
    for title, weights in (("present", present / present.sum()), ("nearest", nearest_weights(chosen))):
        shares = dict(zip(chosen.families, weights.tolist(), strict=True))
        tasks = reporting.mixture(shares)
        out[title] = {
            "shares": shares,
            "choosing_discrepancy": chosen.discrepancy(weights),
            "reporting_discrepancy": reported.discrepancy(weights),
            "distance": to_json(domain_distance(reporting.real, tasks, size=reporting.size(), seed=study.seed)),
            "coverage": to_json(coverage(reporting.real, tasks, size=reporting.size(), seed=study.seed)),
        }
    return out


def plane(study: Study) -> list[dict[str, Any]]:
    """Every part and task at its first two principal components (of all meta-features, in units of the real ones)."""
    groups = [("real", study.real.values), *((sample.name, sample.values) for sample in study.samples)]
    values = np.concatenate([standardised_by(study.real.values, part) for _, part in groups])
    centred = values - values.mean(0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    places = centred @ axes[:2].T
    names = [name for name, part in groups for _ in part]
    return [{"name": name, "x": float(x), "y": float(y)} for name, (x, y) in zip(names, places, strict=True)]
