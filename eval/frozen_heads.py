"""Classification heads compared on the same frozen hidden states (seeds 6.E, 6.12): retrieval against linear and MLP
controls, one head against many, and the forms of the logarithm.

A pretrained network's final hidden states are computed once; fresh heads are trained on them: same tasks in the same
order, same steps, optimizer and learning rates, several seeds. Three disjoint sets of tasks: the heads learn on one, a
temperature is fitted on another (seed 6.7), scores come from the third. The backbone was trained under one of the forms
(the record names it), which may favour that form. Shapes: N context rows, M query rows, D row width.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from eval.calibration import fit_temperature, tempered
from eval.records import network_inputs
from eval.scores import classification_scores
from model.class_distribution import ClassLogProbabilities, LogForm
from model.classification_head import (
    ClassificationHead,
    ClassificationHeadConfig,
    ClassificationHeadKind,
    LengthScaling,
    log_probabilities,
    make_classification_head,
)
from model.initialisation import initialised
from model.network import Network
from priors.generation import held_out_episodes
from priors.mixture import PriorConfig
from priors.task import Episode, collate

HEADS: dict[str, ClassificationHeadConfig] = {
    "retrieval": ClassificationHeadConfig(),
    "retrieval, one head (Mini)": ClassificationHeadConfig(num_heads=1, head_width=128),
    "retrieval, no length scaling": ClassificationHeadConfig(length_scaling=LengthScaling.NONE),
    "retrieval, tabpfn3 form": ClassificationHeadConfig(log_form=LogForm.TABPFN3),
    "retrieval, mixed form": ClassificationHeadConfig(log_form=LogForm.MIXED),
    "kernel": ClassificationHeadConfig(kind=ClassificationHeadKind.KERNEL),
    "linear": ClassificationHeadConfig(kind=ClassificationHeadKind.LINEAR),
    "mlp": ClassificationHeadConfig(kind=ClassificationHeadKind.MLP),
}
"""What is compared, by name; the many heads of the first have 4 × 32 = 128 entries, as the one head of the second."""

METRICS = ("accuracy", "nll", "ece", "nll_tempered", "ece_tempered")
_TRAIN_SEED, _CALIBRATION_SEED, _TEST_SEED = 11, 12, 13


@dataclasses.dataclass(frozen=True, kw_only=True)
class FrozenConfig:
    """The protocol that every head gets."""

    num_steps: int = 300
    """Optimizer steps of a head, one task each."""
    learning_rate: float = 2e-3
    """Of AdamW, falling linearly to 0."""
    num_seeds: int = 3
    """Initialisations and task orders of each head."""
    num_tasks: int = 96
    """Tasks that heads learn on."""
    num_calibration_tasks: int = 32
    """Tasks that the temperature is fitted on."""
    num_test_tasks: int = 64
    """Tasks that scores come from."""
    prior: PriorConfig = PriorConfig()
    """What all of them are drawn from."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class States:
    """Frozen hidden states of one task. Args: query [1, M, D], context [1, N, D], labels [1, N], answers [M], K."""

    query: Tensor
    context: Tensor
    labels: Tensor
    answers: np.ndarray
    num_classes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadScore:
    """One head of one seed on the test tasks.

    Args:
        head: its name in `HEADS`.
        seed: of initialisation and order.
        parameters: of the head.
        temperature: fitted on the calibration tasks.
        per_task: metric → one value a test task.
    """

    head: str
    seed: int
    parameters: int
    temperature: float
    per_task: dict[str, np.ndarray]


@torch.no_grad()
def frozen_states(network: Network, episodes: Sequence[Episode]) -> list[States]:
    """Hidden states of each episode that the network takes, on its audited path; weights are not changed."""
    out = []
    limits = network.config
    for episode in episodes:
        if episode.task.num_classes > limits.icl.max_classes or episode.task.x.shape[1] > limits.max_features:
            continue
        batch = collate([episode])
        inputs = network_inputs(batch)
        hidden = network.hidden(inputs)
        out.append(
            States(
                query=hidden.query,
                context=hidden.context,
                labels=inputs.y_context,
                answers=episode.answers(),
                num_classes=inputs.num_classes,
            )
        )
    return out


def compare_heads(
    network: Network,
    config: FrozenConfig,
    *,
    heads: dict[str, ClassificationHeadConfig] | None = None,
    report: Callable[[int, str], None] = lambda done, note: None,
) -> list[HeadScore]:
    """Trains every head on the same states and scores it.

    Args:
        network: a classification network in evaluation mode.
        config: the protocol.
        heads: `HEADS` where none are given.
        report: gets how many (head, seed) pairs are done, and which.
    """
    sets = {
        seed: frozen_states(network, held_out_episodes(config.prior, seed=seed, count=count))
        for seed, count in (
            (_TRAIN_SEED, config.num_tasks),
            (_CALIBRATION_SEED, config.num_calibration_tasks),
            (_TEST_SEED, config.num_test_tasks),
        )
    }
    icl, scores = network.config.icl, []
    for name, head_config in (heads or HEADS).items():
        for seed in range(config.num_seeds):
            build = functools.partial(
                make_classification_head, head_config, width=icl.width, max_classes=icl.max_classes
            )
            head = initialised(build, seed=seed)
            candidate = _Candidate(head=head, config=head_config)
            _train(candidate, sets[_TRAIN_SEED], config=config, seed=seed)
            scores.append(_scored(candidate, sets=sets, name=name, seed=seed))
            report(len(scores), f"{name}, seed {seed}")
    return scores


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Candidate:
    head: ClassificationHead
    config: ClassificationHeadConfig

    def predict(self, task: States) -> ClassLogProbabilities:
        """[1, M, K] from the frozen states of a task."""
        memory = self.head.remember(task.context, task.labels, task.num_classes, None)
        return log_probabilities(self.head.read(task.query, memory), memory.present, config=self.config)


def _train(candidate: _Candidate, states: list[States], *, config: FrozenConfig, seed: int) -> None:
    """Trains a head in place; one without parameters stays as it is."""
    parameters = list(candidate.head.parameters())
    if not parameters:
        return
    optimizer = torch.optim.AdamW(parameters, lr=config.learning_rate, weight_decay=0.01)
    order = np.random.default_rng(np.random.SeedSequence([seed, 6])).integers(len(states), size=config.num_steps)
    for step, index in enumerate(order):
        task = states[index]
        loss = candidate.predict(task).losses(torch.from_numpy(task.answers)[None]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.param_groups[0]["lr"] = config.learning_rate * (1 - step / config.num_steps)
        optimizer.step()


@torch.no_grad()
def _scored(candidate: _Candidate, *, sets: dict[int, list[States]], name: str, seed: int) -> HeadScore:
    def log_p(task: States) -> np.ndarray:
        return candidate.predict(task).log_p[0].double().numpy()

    temperature = fit_temperature([(log_p(task), task.answers) for task in sets[_CALIBRATION_SEED]])
    per_task: dict[str, list[float]] = {metric: [] for metric in METRICS}
    for task in sets[_TEST_SEED]:
        plain = log_p(task)
        found = classification_scores(np.exp(plain), task.answers)
        warm = classification_scores(np.exp(tempered(plain, temperature)), task.answers)
        values = found | {f"{metric}_tempered": warm[metric] for metric in ("nll", "ece")}
        for metric in METRICS:
            per_task[metric].append(values[metric])
    return HeadScore(
        head=name,
        seed=seed,
        parameters=sum(parameter.numel() for parameter in candidate.head.parameters()),
        temperature=temperature,
        per_task={metric: np.array(values) for metric, values in per_task.items()},
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Summary:
    """A metric of one head over seeds and tasks: mean, and the ends of a 95 % interval clustered by task.

    Args:
        mean: over seeds and tasks.
        low: of the interval.
        high: of the interval.
        against: the same three of the difference to the first head, paired by task (0 for the first itself).
    """

    mean: float
    low: float
    high: float
    against: tuple[float, float, float]


def summarise(scores: Sequence[HeadScore], metric: str) -> dict[str, Summary]:
    """Each head's `Summary` of a metric; a task's value is its mean over seeds, and tasks are the clusters."""
    by_head: dict[str, list[np.ndarray]] = {}
    for score in scores:
        by_head.setdefault(score.head, []).append(score.per_task[metric])
    tasks = {head: np.mean(parts, axis=0) for head, parts in by_head.items()}
    first = next(iter(tasks.values()))
    found = {}
    for head, values in tasks.items():
        mean, low, high = _interval(values)
        found[head] = Summary(mean=mean, low=low, high=high, against=_interval(values - first))
    return found


def _interval(values: np.ndarray) -> tuple[float, float, float]:
    """Mean, and mean ± 1.96 standard errors, of one value a task; of a single task the ends are NaN."""
    mean = float(values.mean())
    reach = 1.96 * float(values.std(ddof=1)) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return mean, mean - reach, mean + reach
