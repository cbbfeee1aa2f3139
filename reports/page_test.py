"""The page: everything on it comes from files, nothing on it comes from elsewhere."""

import json
import pathlib
import re
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from reports.page import FIGURES, render
from reports.sample_run import audit_of, change_row, write_sample_run
from tools import files

_LIMIT_BYTES = 5_000_000


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return write_sample_run(tmp_path_factory.mktemp("runs") / "tiny")


@pytest.fixture(scope="module")
def page(sample: pathlib.Path) -> str:
    return render(sample).read_text()


@pytest.fixture
def copied(sample: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    return pathlib.Path(shutil.copytree(sample, tmp_path / "tiny"))


def _banner(text: str) -> str:
    return re.findall(r'data-verdict="([^"]*)"', text)[0]


def _change_json(path: pathlib.Path, change: Callable[[Any], None]) -> None:
    value = json.loads(path.read_bytes())
    change(value)
    files.write_json(path, value)


def _parts(text: str) -> dict[str, str]:
    """The page's sections by id of their heading."""
    return {part.split('"', 1)[0]: part for part in text.split('<h2 id="')[1:]}


def _differing(before: str, after: str) -> set[str]:
    old, new = _parts(before), _parts(after)
    return {name for name in old if old[name] != new.get(name)}


def test_the_page_is_one_file_below_5_megabytes_that_names_no_address(page: str) -> None:
    """K3: one HTML, no external URL, < 5 MB, nothing to fetch, no script."""
    assert len(page.encode()) < _LIMIT_BYTES
    assert not re.search(r"https?:|//www|<script|<link|<iframe|@import|url\((?!#)", page)
    targets = re.findall(r"""\b(?:src|href|srcset|action|data|poster)\s*=\s*["']([^"']*)""", page)
    assert targets and all(target.startswith(("#", "data:image/png;base64,")) for target in targets)
    assert "default-src 'none'" in page


def test_every_link_of_the_contents_leads_somewhere(page: str) -> None:
    links = set(re.findall(r'<a href="#([^"]*)"', page))
    assert len(links) >= 9 and links <= set(re.findall(r'\bid="([^"]*)"', page))


def test_no_id_appears_twice(page: str) -> None:
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))


def test_the_same_run_gives_the_same_page(sample: pathlib.Path, page: str) -> None:
    assert render(sample).read_text() == page


def test_figures_lie_beside_the_page_and_stale_ones_go(copied: pathlib.Path) -> None:
    (copied / FIGURES / "stale.svg").write_text("<svg/>")
    render(copied)
    names = {path.name for path in (copied / FIGURES).iterdir()}
    assert {"classification-mask.svg", "classification-read-weights.svg", "regression-band.svg", "seconds.svg"} <= names
    assert "stale.svg" not in names and not [name for name in names if name.startswith(".")]


def test_changing_one_result_row_changes_the_page(copied: pathlib.Path, page: str) -> None:
    """No figure is drawn from constants: scores, their pictures and the sentence follow one row."""
    change_row(copied, kind="classification", change={"value": 0.1})
    after = render(copied).read_text()
    assert _differing(page, after) == {"glance", "scores"}


def test_changing_one_audit_verdict_changes_banner_and_every_mark(copied: pathlib.Path, page: str) -> None:
    """5.G: without the pass every score is marked not-yet-verified on the page."""
    assert _banner(page) == "verified" and "not-yet-verified" not in page
    files.write_json(copied / "classification" / "audit.json", audit_of("c" * 64, failed="leakage"))
    after = render(copied).read_text()
    assert _banner(after) == "not-yet-verified" and "audit leakage failed at stage mask" in after
    scores = _parts(after)["scores"]
    own, other = scores.split('<h3 id="scores-regression">')
    assert own.count(">not-yet-verified</span>") == own.count("<table") + 1
    assert "not-yet-verified" not in other


def test_changing_one_mask_cell_or_one_view_value_changes_its_picture(copied: pathlib.Path, page: str) -> None:
    """5.6, 6.D: the mask and the read weights are drawn from views.json."""
    path = copied / "classification" / "views.json"
    _change_json(path, lambda views: views["mask"][40].__setitem__(41, 1))
    after = render(copied).read_text()
    assert _differing(page, after) == {"mask"} and "Q→Q 1%" in after
    _change_json(path, lambda views: views["read_weights"].__setitem__(0, 0.5))
    assert _differing(after, render(copied).read_text()) == {"reading"}


def test_changing_one_size_of_a_symmetry_changes_its_table_and_absent_sizes_give_none(
    copied: pathlib.Path, page: str
) -> None:
    """6.3, 1.4: the remaining dependence on orders is a reported figure, read from views.json."""
    path = copied / "classification" / "views.json"
    _change_json(path, lambda views: views["symmetry"].update({"class_slots/4/max": 0.4321}))
    after = render(copied).read_text()
    assert _differing(page, after) == {"reading"} and "0.43" in _parts(after)["reading"]
    assert after.count("What should not matter") == 2
    _change_json(path, lambda views: views.pop("symmetry"))
    assert render(copied).read_text().count("What should not matter") == 1


@pytest.mark.parametrize(
    ("name", "section", "change"),
    [
        ("config.json", "mini", lambda config: config["config"]["regression"]["network"]["icl"].update(width=77)),
        ("summary.json", "cost", lambda summary: summary["seconds"].update(generate=99.0)),
        ("summary.json", "glance", lambda summary: summary["models"]["regression"].update(parameters=123_456)),
    ],
)
def test_configuration_cost_and_sizes_come_from_their_files(
    copied: pathlib.Path, page: str, name: str, section: str, change: Callable[[Any], None]
) -> None:
    _change_json(copied / name, change)
    assert section in _differing(page, render(copied).read_text())


def test_texts_of_a_run_are_escaped(copied: pathlib.Path) -> None:
    """K3: a table, a model, an audit, a config value or a run may be called anything."""
    evil = '<script>alert("x")</script>'
    change_row(copied, kind="classification", change={"table": evil, "model": evil + "m", "metric": evil + "k"})
    _change_json(copied / "classification" / "audit.json", lambda audit: audit["audits"][0].update(message=evil))
    _change_json(copied / "config.json", lambda config: config.update(note=evil + "</pre>"))
    renamed = copied.rename(copied.with_name("<img src=x onerror=alert(1)>"))
    text = render(renamed).read_text()
    assert "<script" not in text and "<img" not in text
    assert text.count("&lt;script&gt;") >= 4 and "&lt;img src=x" in text


def test_a_half_done_run_gives_a_page_that_says_what_is_missing(copied: pathlib.Path) -> None:
    """5.G: only classification trained, nothing audited or scored: not-yet-verified, and no traceback."""
    shutil.rmtree(copied / "regression")
    for name in ("audit.json", "results.arrow", "views.json"):
        (copied / "classification" / name).unlink()
    (copied / "summary.json").unlink()
    text = render(copied).read_text()
    assert _banner(text) == "not-yet-verified"
    assert "the audits have not been run" in text and "classification/results.arrow is missing" in text
    assert "Not scored yet" in text and "Training loss" in text


def test_an_empty_run_folder_gives_a_page_too(tmp_path: pathlib.Path) -> None:
    text = render(tmp_path).read_text()
    assert _banner(text) == "not-yet-verified" and "No model has been trained yet" in text


def test_the_page_states_its_boundary_and_the_mini_table(page: str) -> None:
    """6.F, 6.G, 5.10: what read weights and distributions are not; every simplification by name."""
    boundary = page[page.index('id="boundary"') :]
    boundary = boundary[: boundary.index("</div>")]
    for word in ("do not single out causes or true neighbours", "not a belief", "not a sign of calibration"):
        assert word in boundary
    assert "icl_num_kv_heads_test" in page and "QASSMax" in page


def test_the_best_is_bold_and_a_better_baseline_is_admitted(page: str) -> None:
    """The sample has linear ahead on wine: the page says so, and sets it in bold."""
    assert re.search(r"[Oo]n wine, linear is better by \.\d{3}", page)
    row = next(line for line in re.findall(r"<tr>.*?</tr>", page, re.DOTALL) if 'scope="row">wine<' in line)
    (best,) = re.findall(r'<td class="([^"]*best[^"]*)">', row)
    assert "ours" not in best
