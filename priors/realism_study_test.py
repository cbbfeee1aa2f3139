"""Tests of a study of realism."""

import json

import numpy as np
import pytest

from priors.realism_distance import RealParts
from priors.realism_study import MIXTURE, Sample, Study, TableHalf, measured, plane, rows_of, weighing

NAMES = ("marginals.a", "missing.b", "dependence.c", "target.d", "landmarkers.e")


def study(*, tables: int = 24) -> Study:
    """Real tables around 0, a family there, one far away, and another package's prior."""
    generator = np.random.default_rng(0)
    real = RealParts(values=generator.normal(size=(tables, 5)), owners=np.arange(tables))
    samples = tuple(
        Sample(name=name, values=generator.normal(size=(40, 5)) + shift, share=share)
        for name, shift, share in (("near", 0.0, 0.3), ("far", 6.0, 0.7), ("peer", 3.0, 0.0))
    )
    names = tuple(f"table{i}" for i in range(tables))
    return Study(real=real, table_names=names, feature_names=NAMES, samples=samples, seed=0)


def test_the_halves_of_the_tables_are_fixed_by_name_and_meet_nowhere() -> None:
    """2.1: weights chosen on some tables are judged on others."""
    names = [f"table{i}" for i in range(200)]
    choosing = {name for name in names if TableHalf.CHOOSING.holds(name)}
    reporting = {name for name in names if TableHalf.REPORTING.holds(name)}
    assert choosing | reporting == set(names) and not choosing & reporting
    assert 70 < len(choosing) < 130
    assert all(TableHalf.ALL.holds(name) for name in names)
    part = study().part(TableHalf.CHOOSING)
    assert {f"table{i}" for i in part.real.owners} == {f"table{i}" for i in range(24)} & choosing


def test_the_mixture_and_every_prior_have_a_row() -> None:
    rows = dict(rows_of(study()))
    assert list(rows) == [MIXTURE, "near", "far", "peer"]
    assert len(rows[MIXTURE].values) == 80
    assert rows[MIXTURE].weights.sum() == pytest.approx(1)
    assert rows[MIXTURE].weights[:40].sum() == pytest.approx(0.3)


def test_a_row_tells_distances_coverage_and_what_separates() -> None:
    """2.1: per family and for the mixture, with the groups of meta-features apart."""
    subject = study()
    rows = {name: measured(subject, name=name, tasks=tasks) for name, tasks in rows_of(subject)}
    assert rows["near"]["distance"]["value"] < 1 < 1.8 < rows["far"]["distance"]["value"]
    assert rows["far"]["coverage"]["value"] < 0.1 < rows["near"]["coverage"]["value"]
    assert set(rows[MIXTURE]["groups"]) == {"marginals", "missing", "dependence", "target", "landmarkers"}
    assert rows["peer"]["separations"][0]["above"] < 0.1
    assert "groups" not in rows["near"]
    json.dumps(rows)


def test_weights_are_chosen_on_one_half_and_judged_on_the_other() -> None:
    found = weighing(study())
    assert found is not None
    assert found["present"]["shares"] == pytest.approx({"near": 0.3, "far": 0.7})
    assert found["nearest"]["shares"]["near"] > 0.95
    for key in ("choosing_discrepancy", "reporting_discrepancy"):
        assert found["nearest"][key] < found["present"][key]
    assert found["nearest"]["distance"]["value"] < found["present"]["distance"]["value"]


def test_few_tables_or_families_choose_nothing() -> None:
    assert weighing(study(tables=5)) is None


def test_the_plane_holds_every_part_and_task() -> None:
    points = plane(study())
    names = [point["name"] for point in points]
    assert {name: names.count(name) for name in names} == {"real": 24, "near": 40, "far": 40, "peer": 40}
    x = {name: np.mean([point["x"] for point in points if point["name"] == name]) for name in set(names)}
    assert abs(x["real"] - x["near"]) < abs(x["real"] - x["peer"]) < abs(x["real"] - x["far"])
