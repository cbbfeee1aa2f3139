"""Subjects that leak on purpose, one per known mistake (seed 5.E), so that every audit is seen to fail.

Each is a function from a clean subject to one with the mistake; the clean one is not changed. Where the mistake sits in
the printed mask, the mutant uses the reference path, which is the one that has a mask.
"""

import dataclasses
import difflib
from collections.abc import Callable

from eval import mutant_flows, mutant_heads, mutant_labels, mutant_masks, mutant_stages
from eval.subject import Subject
from eval.tracing import Stage
from priors.task import TaskKind
from tools.failure import ExitCode, Failure

_BOTH = (TaskKind.CLASSIFICATION, TaskKind.REGRESSION)
_CLASSES = (TaskKind.CLASSIFICATION,)
_NUMBERS = (TaskKind.REGRESSION,)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mutant:
    """One mistake.

    Args:
        audit: the audit that must catch it (others may, too).
        stage: the stage that this audit must name.
        make: clean subject to mutant.
        kinds: where it exists.
    """

    audit: str
    stage: Stage
    make: Callable[[Subject], Subject]
    kinds: tuple[TaskKind, ...] = _BOTH

    @property
    def name(self) -> str:
        """What `--mutant` takes."""
        return self.make.__name__

    @property
    def summary(self) -> str:
        """The mistake in words."""
        return (self.make.__doc__ or "").strip()


def known_mutant(name: str) -> Mutant:
    """The mutant of a name.

    Raises:
        Failure: BAD_FLAG for an unknown one; the nearest is named, however far it is.
    """
    if name not in MUTANTS:
        near = difflib.get_close_matches(name, MUTANTS, n=1, cutoff=0.0)[0]
        mend = f"did you mean {near}? --list-mutants shows all {len(MUTANTS)}"
        raise Failure(ExitCode.BAD_FLAG, f"mutant {name!r} is not known: {mend}")
    return MUTANTS[name]


def mutated(name: str, subject: Subject) -> Subject:
    """The mutant `name` of a subject.

    Raises:
        Failure: BAD_FLAG for an unknown name, or one that the subject's kind does not have.
    """
    mutant = known_mutant(name)
    if subject.kind not in mutant.kinds:
        raise Failure(
            ExitCode.BAD_FLAG, f"mutant {name!r} does not exist for {subject.kind}: give a {mutant.kinds[0]} checkpoint"
        )
    return mutant.make(subject)


_ALL = (
    Mutant(make=mutant_masks.causal_mask, audit="mask_graph", stage=Stage.MASK),
    Mutant(make=mutant_masks.query_reads_query, audit="query_set", stage=Stage.MASK),
    Mutant(make=mutant_masks.context_reads_query, audit="query_set", stage=Stage.MASK),
    Mutant(make=mutant_masks.all_rows_are_keys, audit="query_set", stage=Stage.MASK),
    Mutant(make=mutant_masks.inverted_polarity, audit="mask_graph", stage=Stage.POLARITY),
    Mutant(make=mutant_masks.padding_inverted, audit="mask_graph", stage=Stage.POLARITY),
    Mutant(make=mutant_masks.finite_fill, audit="mask_graph", stage=Stage.MASK),
    Mutant(make=mutant_masks.padding_read_by_columns, audit="padding", stage=Stage.COLUMN),
    Mutant(make=mutant_labels.label_at_query, audit="leakage", stage=Stage.INJECTION),
    Mutant(make=mutant_labels.label_as_feature, audit="leakage", stage=Stage.COLLATE),
    Mutant(make=mutant_labels.batch_statistics_with_query_labels, audit="leakage", stage=Stage.COLLATE),
    Mutant(make=mutant_labels.vocabulary_of_query, audit="leakage", stage=Stage.COLLATE, kinds=_CLASSES),
    Mutant(make=mutant_labels.encoder_of_all_labels, audit="leakage", stage=Stage.COLLATE, kinds=_CLASSES),
    Mutant(make=mutant_labels.loader_sorts_queries_by_label, audit="loader", stage=Stage.COLLATE),
    Mutant(make=mutant_labels.targets_scaled_with_query, audit="leakage", stage=Stage.NORMALISATION, kinds=_NUMBERS),
    Mutant(make=mutant_labels.retrieval_of_own_row, audit="leakage", stage=Stage.HEAD, kinds=_CLASSES),
    Mutant(make=mutant_labels.temperature_from_answers, audit="leakage", stage=Stage.SCORER, kinds=_CLASSES),
    Mutant(make=mutant_labels.estimator_fitted_on_all_rows, audit="leakage", stage=Stage.ESTIMATOR),
    Mutant(make=mutant_stages.normalise_with_query, audit="query_set", stage=Stage.NORMALISATION),
    Mutant(make=mutant_stages.stale_label_in_cache, audit="history", stage=Stage.BLOCKS),
    Mutant(make=mutant_stages.statistics_of_previous_table, audit="history", stage=Stage.NORMALISATION),
    Mutant(make=mutant_stages.dropout_at_prediction, audit="leakage", stage=Stage.RANDOMNESS),
    Mutant(make=mutant_stages.unknown_label_as_class, audit="unknown_label", stage=Stage.INJECTION),
    Mutant(make=mutant_stages.off_by_one_slices, audit="slices", stage=Stage.SLICES),
    Mutant(make=mutant_stages.p_as_logits, audit="probabilities", stage=Stage.HEAD, kinds=_CLASSES),
    Mutant(make=mutant_heads.one_hot_too_narrow, audit="probabilities", stage=Stage.HEAD, kinds=_CLASSES),
    Mutant(make=mutant_heads.softmax_over_classes, audit="probabilities", stage=Stage.HEAD, kinds=_CLASSES),
    Mutant(make=mutant_heads.borders_differ_at_prediction, audit="probabilities", stage=Stage.HEAD, kinds=_NUMBERS),
    Mutant(make=mutant_heads.columns_keep_hidden_labels, audit="context_ablation", stage=Stage.COLUMN, kinds=_CLASSES),
    Mutant(make=mutant_heads.head_keeps_hidden_labels, audit="context_ablation", stage=Stage.HEAD, kinds=_CLASSES),
    Mutant(make=mutant_heads.scale_keeps_hidden_labels, audit="context_ablation", stage=Stage.HEAD, kinds=_NUMBERS),
    Mutant(make=mutant_heads.memory_of_another_table, audit="paths", stage=Stage.BLOCKS),
    Mutant(make=mutant_heads.queries_meet_in_memory, audit="paths", stage=Stage.BLOCKS),
    Mutant(make=mutant_heads.queries_meet_in_training, audit="paths", stage=Stage.BLOCKS),
    Mutant(make=mutant_flows.empty_rows_borrow_from_queries, audit="certificate", stage=Stage.ROW),
    Mutant(make=mutant_flows.dormant_query_adapter, audit="certificate", stage=Stage.HEAD),
    Mutant(make=mutant_flows.sorted_queries_are_smoothed, audit="certificate", stage=Stage.HEAD),
)

MUTANTS: dict[str, Mutant] = {mutant.name: mutant for mutant in _ALL}
"""Every mutant by name, in the order of the data flow."""
