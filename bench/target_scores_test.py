"""Tests of looks at real tables."""

import json
import pathlib

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from bench.target_scores import Contestant, ContestantKind, TableChoice, judges, mean_scores, target_tables
from eval.baselines import Majority, NearestNeighbours
from tools.failure import ExitCode, Failure


def _choice(folder: pathlib.Path | None, *, group: str | None = "core", max_features: int = 100) -> TableChoice:
    return TableChoice(folder=folder, group=group, max_classes=10, max_features=max_features)


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """Two classification tables of different groups."""
    generator, entries = np.random.default_rng(0), []
    for name, group in (("inner", "core"), ("outer", "extra")):
        x = generator.normal(size=(60, 3))
        frame = pd.DataFrame(x, columns=["a", "b", "c"]).assign(target=np.where(x[:, 0] > 0, "yes", "no"))
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
        entries.append({"name": name, "task": "cls", "file": f"{name}.csv", "group": group})
    (tmp_path / "manifest.json").write_text(json.dumps(entries))
    return tmp_path


def test_the_group_chooses_and_the_limits_leave_out(folder: pathlib.Path) -> None:
    assert list(target_tables(_choice(folder)).episodes) == ["inner"]
    assert list(target_tables(_choice(folder, group=None)).episodes) == ["inner", "outer"]
    assert set(target_tables(_choice(None, max_features=20)).skipped) == {"breast_cancer", "digits"}


@pytest.mark.parametrize("choice", [{"group": "absent"}, {"max_features": 2}])
def test_no_table_at_all_is_refused(folder: pathlib.Path, choice: dict[str, str | int]) -> None:
    with pytest.raises(Failure) as caught:
        target_tables(_choice(folder, **choice))
    assert caught.value.code is ExitCode.NOT_FOUND and str(folder) in caught.value.message


def test_a_look_averages_the_scores_of_single_tables(folder: pathlib.Path) -> None:
    episodes = {name: by_seed[0][0] for name, by_seed in target_tables(_choice(folder, group=None)).episodes.items()}
    found = mean_scores(NearestNeighbours(), episodes)
    wanted = [
        roc_auc_score(episode.answers(), NearestNeighbours().classify(episode.evidence())[:, 1])
        for episode in episodes.values()
    ]
    assert list(found.auc_by_table.values()) == pytest.approx(wanted)
    assert found.auc == pytest.approx(np.mean(wanted)) and found.auc > 0.8
    assert mean_scores(Majority(), episodes).nll == pytest.approx(np.log(2), abs=0.05)


def test_judges_score_baselines_in_the_order_in_which_they_were_asked(folder: pathlib.Path) -> None:
    asked = [Contestant(kind=ContestantKind.BASELINE, source=name) for name in ("majority", "linear", "majority")]
    with judges(_choice(folder), workers=1) as pool:
        found = pool.scores(asked, title="looks")
    assert [scores.auc for scores in found] == [0.5, pytest.approx(1.0, abs=0.05), 0.5]
