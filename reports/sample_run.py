"""A complete run folder with made-up numbers, for the tests of the report."""

import dataclasses
import json
import pathlib
from typing import Any

import numpy as np

from eval.results import REQUIRED_AUDITS, ResultRow, Status, read_results, write_results
from tools import files

MODELS = ("veritab", "majority", "knn", "linear", "random_forest", "kernel", "untrained")
TABLES = {
    "classification": ("synthetic", "digits", "wine"),
    "regression": ("synthetic", "diabetes"),
}
EXACT_FAMILIES = {
    "classification": ("dirichlet_table", "small_tree"),
    "regression": ("linear_gaussian", "gaussian_process"),
}
METRICS = {
    "classification": ("auc_ovr", "auc_ovo", "accuracy", "nll", "ece"),
    "regression": ("rmse", "r2", "crps", "coverage90", "width90"),
}
AUDITS = REQUIRED_AUDITS
_SKILL = dict(zip(MODELS, (0.95, 0.5, 0.88, 0.91, 0.93, 0.86, 0.6), strict=True))
_NETWORK = {
    "cell": {"width": 32, "num_rounds": 2, "num_heads": 2, "num_inducing": 16, "num_tokens": 4, "target_aware": True}
    | {"feature_offsets": [0, 1, 3]},
    "icl": {"width": 128, "num_blocks": 6, "num_heads": 4, "max_classes": 10, "norm": "layer"}
    | {"num_kv_heads_query": None, "length_scaling": False, "role_embeddings": True, "class_code": "orthogonal"},
    "classification": {"kind": "retrieval", "num_heads": 4, "head_width": 32, "log_form": "course"}
    | {"length_scaling": "log"},
    "regression": {"kind": "bar", "buckets": {"num_buckets": 128, "rule": "sinh"}},
    "max_features": 100,
}


def write_sample_run(folder: pathlib.Path, *, seed: int = 0) -> pathlib.Path:
    """Writes every file that a finished run has, checkpoints aside; both models are verified."""
    generator = np.random.default_rng(seed)
    config = {kind: {"network": {"kind": kind, **_NETWORK}, "loop": {"num_steps": 1000}} for kind in TABLES}
    config |= {"seed": seed, "scoring": {"num_seeds": 3, "num_estimators": 4}}
    files.write_json(folder / "config.json", {"format_version": 1, "preset": "tiny", "config": config})
    seconds = {"generate": 31.2, "train": 416.5, "audit": 18.3, "score": 44.0}
    events = [{"stage": stage, "event": "end", "seconds": value} for stage, value in seconds.items()]
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    models = {}
    for kind in TABLES:
        sha = kind[0] * 64
        (folder / kind).mkdir(parents=True, exist_ok=True)
        _write_metrics(folder / kind / "metrics.jsonl", generator)
        rows = _rows(kind, generator)
        write_results(folder / kind / "results.arrow", rows, weights_sha256=sha, status=Status.VERIFIED)
        files.write_json(folder / kind / "audit.json", audit_of(sha))
        views = classification_views(generator) if kind == "classification" else regression_views(generator)
        files.write_json(folder / kind / "views.json", views)
        models[kind] = {"weights_sha256": sha, "parameters": 903_425, "tasks_seen": 32_000, "step": 1000, "scores": {}}
    files.write_json(folder / "summary.json", {"verified": True, "seconds": seconds, "models": models})
    return folder


def audit_of(weights_sha256: str, *, failed: str | None = None) -> dict[str, Any]:
    """audit.json: all passed, or all but one that names a stage."""
    audits = [
        {
            "name": name,
            "passed": name != failed,
            "stage": "mask" if name == failed else None,
            "figures": {"largest_change": 3e-7 if name != failed else 0.41, "noise_floor": 1.2e-6, "queries": 24},
            "message": "nothing moved" if name != failed else "hidden states of other queries moved",
        }
        for name in AUDITS
    ]
    subject = {
        "weights_sha256": weights_sha256,
        "config_sha256": "c" * 64,
        "code_sha256": "d" * 64,
        "path": "fast",
        "dtype": "float32",
        "scorer": "eval.scores",
    }
    return {"format_version": 1, "subject": subject, "passed": failed is None, "audits": audits}


def change_row(folder: pathlib.Path, *, kind: str, change: dict[str, Any]) -> None:
    """Rewrites results.arrow with the first row changed."""
    path = folder / kind / "results.arrow"
    found = read_results(path)
    rows = [dataclasses.replace(found.rows[0], **change), *found.rows[1:]]
    write_results(path, rows, weights_sha256=found.weights_sha256, status=found.status)


def _write_metrics(path: pathlib.Path, generator: np.random.Generator) -> None:
    lines = []
    for step in range(10, 1001, 10):
        loss = 1.3 * np.exp(-step / 260) + 0.55 + 0.06 * generator.normal()
        rate = 150 + 6 * generator.normal()
        lines.append({"step": step, "train/loss": loss, "train/tasks_per_second": rate, "train/skipped": 0})
        if step % 200 == 0:
            base = 0.9 * np.exp(-step / 300) + 0.6
            families = {f"validation/nll/{name}": base + gap for name, gap in (("forest", -0.05), ("mlp_scm", 0.06))}
            watched = {"watch/regret": base / 4, "watch/regret/small_tree/16": base / 3}
            watched |= {"watch/tables/auc_ovo": 1 - base / 9, "watch/tables/wine/auc_ovo": 1 - base / 8}
            lines.append({"step": step, "validation/nll": base, **families, **watched})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def _rows(kind: str, generator: np.random.Generator) -> list[ResultRow]:
    return _scores(kind, generator) + _regrets(kind, generator)


def _regrets(kind: str, generator: np.random.Generator) -> list[ResultRow]:
    return [
        ResultRow(
            kind=kind,
            table=f"{family}@{size}",
            model=model,
            metric="regret",
            seed=task,
            value=float(generator.gamma(4.0, 0.5 / size**0.5)),
            num_episodes=1,
        )
        for family in EXACT_FAMILIES[kind]
        for size in (8, 32, 128)
        for model in ("veritab", "linear")
        for task in range(8)
    ]


def _scores(kind: str, generator: np.random.Generator) -> list[ResultRow]:
    return [
        ResultRow(
            kind=kind,
            table=table,
            model=model,
            metric=metric,
            seed=seed,
            value=float(_value(metric, _skill(model, table)) + 0.006 * generator.normal()),
            num_episodes=64 if table == "synthetic" else 1,
        )
        for table in TABLES[kind]
        for model in MODELS
        for metric in METRICS[kind]
        for seed in range(3)
    ]


def _skill(model: str, table: str) -> float:
    """Linear is the best on wine, the forest on digits."""
    return 0.958 if (model, table) in (("linear", "wine"), ("random_forest", "digits")) else _SKILL[model]


def _value(metric: str, skill: float) -> float:
    lower = {"nll": 1.6, "ece": 0.2, "rmse": 1.2, "crps": 0.8, "width90": 4.0}
    return lower[metric] * (1.05 - skill) if metric in lower else skill


def _mask_views(generator: np.random.Generator, *, num_context: int, num_query: int) -> dict[str, Any]:
    total = num_context + num_query
    mask = np.zeros((total, total), int)
    mask[:, :num_context] = 1
    weights = generator.exponential(size=(total, total)) * mask
    weights /= weights.sum(axis=1, keepdims=True)
    influence = 10 ** generator.uniform(-3, 0, size=(total, total)) * mask + np.eye(total)
    return {
        "num_context": num_context,
        "num_query": num_query,
        "mask": mask.tolist(),
        "weights": weights.tolist(),
        "influence": influence.tolist(),
    }


def _symmetry_views(changes: dict[str, float]) -> dict[str, float]:
    """Sizes of one pass, halved by averaging over four."""
    return {
        f"{change}/{number}/{statistic}": size * factor / number**0.5
        for change, size in changes.items()
        for number in (1, 4)
        for statistic, factor in (("mean", 1.0), ("max", 3.0))
    }


def classification_views(generator: np.random.Generator) -> dict[str, Any]:
    """views.json of a classification model: 36 context rows of 3 classes."""
    views = _mask_views(generator, num_context=36, num_query=12)
    labels = generator.integers(0, 3, 36)
    weights = generator.exponential(size=36) ** 2 * np.where(labels == 1, 3.0, 1.0)
    weights /= weights.sum()
    probabilities = np.bincount(labels, weights=weights, minlength=3)
    return views | {
        "read_weights": weights.tolist(),
        "context_labels": labels.tolist(),
        "query_label": 1,
        "probabilities": probabilities.tolist(),
        "symmetry": _symmetry_views({"column_order": 0.0213, "class_slots": 0.0117, "context_order": 3.2e-8}),
    }


def regression_views(generator: np.random.Generator) -> dict[str, Any]:
    """views.json of a regression model: a sine with noise that grows along the feature."""
    views = _mask_views(generator, num_context=48, num_query=16)
    x, curve_x = generator.uniform(-2, 2, 48), np.linspace(-2, 2, 64)
    y = np.sin(2 * x) + (0.15 + 0.1 * (x + 2)) * generator.normal(size=48)
    truth = np.sin(2 * curve_x)
    half = 1.64 * (0.15 + 0.1 * (curve_x + 2))
    quantiles = {"0.05": truth - half, "0.5": truth + 0.06, "0.95": truth + half}
    return views | {
        "context_x": x.tolist(),
        "context_labels": y.tolist(),
        "query_label": 0.3,
        "curve_x": curve_x.tolist(),
        "curve_quantiles": {level: values.tolist() for level, values in quantiles.items()},
        "curve_truth": truth.tolist(),
        "symmetry": _symmetry_views({"column_order": 0.0342, "context_order": 6.1e-8}),
    }
