"""Audits of structure: the mask that reaches attention (5.D), row slices (5.4), sums over rows and classes (6.4)."""

import numpy as np
import torch
from torch import Tensor

from eval.case import CONTROL_MULTIPLE, AuditResult, Case, prediction_gap, visibility_truth
from eval.specimens import with_context_labels_changed, with_labels, with_queries
from eval.subject import Run, Subject
from eval.tracing import AttentionCall, Stage, largest_gap
from model.attention import merge_heads
from model.bucket_borders import bucket_borders
from model.class_distribution import LogForm
from model.icl_transformer import AttentionPath
from model.regression_heads import RegressionHeadKind
from priors.task import Episode, TaskKind

_AGREEMENT = 1e-5
_HIDDEN_FLOOR = 1e-4  # normalised hidden states are of size 1, their rounding of size 1e-6


def mask_graph(case: Case) -> AuditResult:
    """The mask of every block's attention, as it arrives, is the four-block picture; forbidden weights are 0 (5.D).

    Both paths are looked at: the reference path, whose mask is printed, and the subject's own; they agree to 1e-5.
    """
    name = "mask_graph"
    names = ("wrong_cells", "forbidden_weight", "weights_unlike_output", "reference_unlike_fast", "control_output")
    figures = dict.fromkeys(names, 0.0)
    runs = {path: case.subject.fresh(path=path) for path in (AttentionPath.REFERENCE, AttentionPath.FAST)}
    for tables in (list(case.episodes), list(case.episodes[:1])):
        found = {path: subject.run(tables) for path, subject in runs.items()}
        for path, run in found.items():
            problem = _mask_problem(run, runs[path], figures=figures)
            if problem is not None:
                stage, what = problem
                return case.failed(name, stage=stage, figures=figures, message=f"{path} path: {what}")
        gap = prediction_gap(*found.values())
        figures["reference_unlike_fast"] = max(figures["reference_unlike_fast"], gap)
        if gap > max(_AGREEMENT, case.noise.tolerance):
            what = f"reference and fast path differ by {gap:.3g}"
            return case.failed(name, stage=Stage.BLOCKS, figures=figures, message=what)
    if figures["control_output"] < CONTROL_MULTIPLE * case.noise.tolerance:
        what = f"attention adds {figures['control_output']:.3g} at most, so its mask means nothing: the audit is blind"
        return case.failed(name, stage=None, figures=figures, message=what)
    return case.passed(name, figures=figures, message="every row reads the real context rows and nothing else")


def _mask_problem(run: Run, subject: Subject, *, figures: dict[str, float]) -> tuple[Stage, str] | None:
    num_thinking = run.trace.num_thinking
    truth = visibility_truth(run.batch, num_thinking=num_thinking)
    cut = num_thinking + run.batch.x_context.shape[1]
    if len(run.trace.attention) != len(subject.network.icl.blocks):
        return Stage.BLOCKS, f"{len(run.trace.attention)} of {len(subject.network.icl.blocks)} attentions ran"
    for call in run.trace.attention:
        if not call.clean():
            return Stage.MASK, f"{call.name} has a mask value that is neither 0 nor minus infinity"
        visible = call.visible()
        wrong = int((visible != truth).sum())
        figures["wrong_cells"] = max(figures["wrong_cells"], float(wrong))
        if wrong:
            context, tables = slice(num_thinking, cut), (visible != truth).any((1, 2))
            inverted = torch.equal(visible[tables][..., context], ~truth[tables][..., context])
            example = _example(visible, truth, cut=cut)
            what = f"{wrong} of {truth.numel()} cells of {call.name}'s mask are wrong: {example}"
            return (Stage.POLARITY if inverted else Stage.MASK), what
        weights, output = _weights(call, subject)
        forbidden = float(weights.masked_fill(truth[:, None, :, : weights.shape[-1]], 0.0).abs().max())
        size = float(call.output.abs().max())
        unlike = largest_gap(output, call.output) / max(size, 1e-3)
        figures["control_output"] = max(figures["control_output"], size)
        figures["forbidden_weight"] = max(figures["forbidden_weight"], forbidden)
        figures["weights_unlike_output"] = max(figures["weights_unlike_output"], unlike)
        if forbidden > 0:
            return Stage.MASK, f"{call.name} gives a forbidden key the weight {forbidden:.3g}"
        if unlike > 1e-4:
            return Stage.BLOCKS, f"{call.name} does not compute what its weights say (off by {unlike:.3g})"
    return None


def _weights(call: AttentionCall, subject: Subject) -> tuple[Tensor, Tensor]:
    """Weights [B, H, P + T, S] recomputed from what reached the attention, and the output that they stand for."""
    module, cut = subject.network.get_submodule(call.name), call.view.num_context
    with torch.no_grad():
        weights = module.weights(call.x, call.source, view=call.view)
        _, value = module.keys_values(call.source)
        shared = value[:, : module.num_query_side].repeat_interleave(module.num_heads // module.num_query_side, dim=1)
        read = torch.cat([weights[:, :, :cut] @ value, weights[:, :, cut:] @ shared], dim=2)
        return weights, module.output(merge_heads(read))


def _example(visible: Tensor, truth: Tensor, *, cut: int) -> str:
    table, row, key = (int(index) for index in (visible != truth).nonzero()[0])
    reader, read = (f"{'context' if index < cut else 'query'} {index - cut * (index >= cut)}" for index in (row, key))
    verb = "reads" if visible[table, row, key] else "does not read"
    return f"in table {table}, {reader} {verb} {read}"


def slices(case: Case) -> AuditResult:
    """Rows 0..N-1 are the context and N..T-1 the queries, at both ends (5.4): no row is lost or shifted.

    Two ways: what leaves the ICL stage is cut from its sequence at N, and what enters it from the row tokens; and each
    context row, and each query's own features, move predictions.
    """
    name, subject = "slices", case.subject.fresh()
    run = subject.run(list(case.episodes))
    figures: dict[str, float] = {}
    problem = _cut_problem(run)
    if problem is not None:
        return case.failed(name, stage=Stage.SLICES, figures=figures, message=problem)
    episode = case.episodes[0]
    floor = figures["floor"] = 2 * case.noise.rounding
    context, query, others = _influence(subject, episode)
    ends = {"context_first": context[0], "context_last": context[-1], "query_first": query[0], "query_last": query[-1]}
    figures |= {**ends, "context_least": min(context), "query_least": min(query), "query_on_others": others}
    for what, effects in (("context row", context), ("query row", query)):
        least = int(np.argmin(effects))
        if effects[least] <= floor:
            message = f"{what} {least} has no influence ({effects[least]:.3g}): is it cut off?"
            return case.failed(name, stage=Stage.SLICES, figures=figures, message=message)
    if others > case.noise.tolerance:
        message = f"a query's features move another query's prediction by {others:.3g}: are rows shifted?"
        return case.failed(name, stage=Stage.SLICES, figures=figures, message=message)
    return case.passed(name, figures=figures, message="first and last context and query rows are present and in place")


def _cut_problem(run: Run) -> str | None:
    cut, find = run.batch.x_context.shape[1], run.trace.find
    rows, hidden = find("row_readout"), find("icl.norm")
    real, kept = (torch.from_numpy(mask)[..., None] for mask in (run.batch.query_mask, run.batch.context_mask))
    pairs = {
        "context rows that enter the ICL stage": (find("icl.injection.context_rows") * kept, rows[:, :cut] * kept),
        "query rows that enter the ICL stage": (find("icl.injection.query_rows") * real, rows[:, cut:] * real),
        "context rows that leave the ICL stage": (find("icl.h_context"), hidden[:, :cut]),
        "query rows that leave the ICL stage": (find("icl.h_query") * real, hidden[:, cut:] * real),
    }
    for what, (found, expected) in pairs.items():
        if not torch.equal(found, expected):
            return f"the {what} are not rows {'0..N-1' if 'context' in what else 'N..T-1'} of the sequence"
    if run.readout.shape[1] != run.batch.x_query.shape[1]:
        return f"{run.readout.shape[1]} predictions for {run.batch.x_query.shape[1]} queries"
    return None


def _influence(subject: Subject, episode: Episode) -> tuple[list[float], list[float], float]:
    """How far each context label moves any query, each query's features itself, and at most another's prediction.

    The larger of prediction and final hidden state counts, since a confident prediction may hardly move.
    """
    evidence = episode.evidence()
    n, m = len(evidence.y_context), len(evidence.x_query)
    swapped = np.roll(evidence.x_query, 1, axis=0) + 0.25
    tables = [episode, *(with_context_labels_changed(episode, [row]) for row in range(n))]
    for row in range(m):
        x = evidence.x_query.copy()
        x[row] = swapped[row]
        tables.append(with_queries(episode, x, answers=episode.answers()))
    run = subject.run(tables)
    moved, hidden = ((value[1:] - value[:1]).abs().amax(-1) for value in (run.readout, run.trace.find("icl.h_query")))
    effect = torch.maximum(moved, torch.where(hidden > _HIDDEN_FLOOR, hidden, 0.0))
    others = moved[n:] - torch.diag(moved[n:].diagonal())
    return effect[:n].amax(-1).tolist(), effect[n:].diagonal().tolist(), float(others.max())


def probabilities(case: Case) -> AuditResult:
    """Read weights sum to 1 over context rows, p over classes; the head's p is what is predicted (6.4, 6.5)."""
    name, subject = "probabilities", case.subject.fresh()
    tables = list(case.episodes)
    run = subject.run(tables)
    if subject.kind is TaskKind.REGRESSION:
        return _sum_verdict(case, name, figures=_bucket_figures(subject, run), limit=1e-4)
    shown, weights = _head_reading(subject, run)
    config = subject.network.config.classification
    predicted = run.trace.find("prediction.log_p").double().exp()
    one_class = [_without_last_class(episode) for episode in tables]
    absent = [outcome.prediction[:, -1].max() for outcome in subject.run(one_class).outcomes]
    num_classes = predicted.shape[-1]
    labels = torch.from_numpy(run.batch.y_context).long()
    figures = {}
    if weights is not None:
        retrieved = weights @ torch.nn.functional.one_hot(labels, num_classes).double()
        figures["row_sum_off"] = float((weights.sum(-1) - 1).abs().max())
        figures["head_unlike_weights"] = float((retrieved - shown).abs().max())
    figures |= {
        "class_sum_off": float((predicted.sum(-1) - 1).abs().max()),
        "prediction_unlike_head": float((predicted - shown).abs().max()),
        "absent_class": float(max(absent)),
    }
    moved = config.mixing if config.log_form is LogForm.MIXED else num_classes * (config.clip + 3e-5)
    return _sum_verdict(case, name, figures=figures, limit=moved + 1e-4)


def _bucket_figures(subject: Subject, run: Run) -> dict[str, float]:
    """Bucket masses sum to 1, and the borders are the configuration's, in training and at prediction (6.9, 6.G)."""
    config = subject.network.config.regression
    if config.kind is not RegressionHeadKind.BAR:
        return {}
    total = run.trace.find("prediction.log_mass").double().exp().sum(-1)
    figures = {"bucket_sum_off": float((total - 1).abs().max())}
    recorded, judged = bucket_borders(config.buckets), subject.fresh().network
    for mode in (judged.train, judged.eval):
        with torch.no_grad():
            borders = mode()(run.inputs).borders.double()
        figures[f"borders_{mode.__name__}_unlike_config"] = largest_gap(borders, recorded)
    return figures


def _head_reading(subject: Subject, run: Run) -> tuple[Tensor, Tensor | None]:
    """The head's probabilities [B, M, K] at a run's hidden states, and read weights [B, M, N] where it reads rows."""
    inputs, find = run.inputs, run.trace.find
    with torch.no_grad():
        probabilities, extra = subject.network.head(
            find("icl.h_query"), find("icl.h_context"), inputs.y_context, inputs.num_classes, inputs.context_mask
        )
    return probabilities.double(), extra["read_weights"].double() if extra else None


def _sum_verdict(case: Case, name: str, *, figures: dict[str, float], limit: float) -> AuditResult:
    for what, size in figures.items():
        if not size <= limit:
            message = f"{what.replace('_', ' ')}: {size:.3g} where at most {limit:.3g} is rounding and clipping"
            return case.failed(name, stage=Stage.HEAD, figures=figures, message=message)
    return case.passed(name, figures=figures, message="sums over rows and classes are 1, and p is what is predicted")


def _without_last_class(episode: Episode) -> Episode:
    """The same table whose context lacks its last class."""
    labels, last = episode.evidence().y_context, episode.task.num_classes - 1
    return with_labels(episode, rows=slice(0, episode.num_context), labels=np.where(labels == last, 0, labels))
