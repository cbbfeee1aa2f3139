"""The page that shows how far a prior is from real tables: one HTML file without network or script (K3)."""

import importlib.resources
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from reports.drawing import Picture


def realism_text(record: Mapping[str, Any], *, distances: Sequence[Picture], separations: Sequence[Picture]) -> str:
    """The page as one string; every text of the record is escaped.

    Args:
        record: a study as `//priors:realism --json` writes it.
        distances: pictures of where the priors lie.
        separations: pictures of what tells them from real tables.
    """
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_template),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    template = environment.get_template("realism.html.jinja")
    return template.render(record=record, distances=distances, separations=separations)


def _template(name: str) -> str:
    return (importlib.resources.files("reports") / name).read_text(encoding="utf-8")
