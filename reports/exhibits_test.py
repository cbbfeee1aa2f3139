"""Exhibits: each file of a run gives its figures, and an absent one gives none."""

import dataclasses

import numpy as np
import pytest

from reports import exhibits, standings
from reports.run_folder import KindFiles, read_run
from reports.sample_run import classification_views, regression_views, write_sample_run


@pytest.fixture(scope="module")
def part(tmp_path_factory: pytest.TempPathFactory) -> KindFiles:
    return read_run(write_sample_run(tmp_path_factory.mktemp("runs") / "tiny")).kinds[0]


def test_every_validation_metric_is_a_panel_with_a_line_for_each_family(part: KindFiles) -> None:
    loss, validation, *_ = exhibits.training_pictures(part)
    assert "Training loss" in loss.alt
    assert all(f"{name} 0." in validation.alt for name in ("all", "forest", "mlp_scm"))


def test_what_was_watched_is_drawn_and_said_to_choose_nothing(part: KindFiles) -> None:
    *_, regret, tables = exhibits.training_pictures(part)
    assert regret.name == "classification-watched-regret" and "small_tree/16 0." in regret.alt
    assert tables.name == "classification-watched-auc_ovo" and "wine 0." in tables.alt and "all 0." in tables.alt
    assert all("chooses nothing" in picture.caption and "lowest" not in picture.alt for picture in (regret, tables))


def test_classification_views_give_the_reading_and_regression_views_the_band() -> None:
    generator = np.random.default_rng(0)
    names = [picture.name for picture in exhibits.reading_pictures(classification_views(generator), kind="c")]
    assert names == ["c-read-weights", "c-probabilities"]
    names = [picture.name for picture in exhibits.reading_pictures(regression_views(generator), kind="r")]
    assert names == ["r-band"]


def test_the_mask_stands_beside_its_weights_and_the_measured_influence() -> None:
    """5.6: each where views.json holds it."""
    views = classification_views(np.random.default_rng(0))
    names = [picture.name for picture in exhibits.mask_pictures(views, kind="c")]
    assert names == ["c-mask", "c-weights", "c-influence"]
    del views["influence"]
    assert [picture.name for picture in exhibits.mask_pictures(views, kind="c")] == names[:2]


def test_a_measured_growth_is_drawn() -> None:
    """1.6: where views.json holds seconds over rows."""
    rows, seconds = [64, 128, 256], [0.1, 0.2, 0.5]
    growth = {"context_rows": rows, "context_seconds": seconds, "query_rows": rows, "query_seconds": seconds}
    (picture,) = exhibits.growth_pictures({"growth": growth}, kind="c")
    assert picture.name == "c-growth" and exhibits.growth_pictures({}, kind="c") == []


def test_absent_files_and_fields_give_no_figure(part: KindFiles) -> None:
    empty = dataclasses.replace(part, curves={})
    assert exhibits.training_pictures(empty) == [] and exhibits.throughput_pictures(empty) == []
    assert exhibits.mask_pictures({}, kind="c") == [] and exhibits.reading_pictures({}, kind="c") == []


def test_a_table_that_a_metric_leaves_undefined_has_no_panel(part: KindFiles) -> None:
    metric = standings.metric_of("auc_ovr")
    undefined = {model: {"auc_ovr": {"mean": None, "per_seed": [None]}} for model in ("veritab", "knn")}
    odd = dataclasses.replace(part, scores={**part.scores, "odd": undefined})
    panels = exhibits.score_pictures(odd, metric=metric, tables=["wine", "odd"])
    assert [panel.alt.split(",")[0] for panel in panels] == ["wine"]
