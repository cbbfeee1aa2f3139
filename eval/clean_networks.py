"""Small legal networks of every head and option, re-randomised and trained a little: no audit may fail on them."""

import dataclasses
from collections.abc import Callable

from eval.small_network import rerandomised_network, small_config, trained_network
from model.attention import Norm
from model.class_distribution import LogForm
from model.classification_head import ClassificationHeadConfig, ClassificationHeadKind, LengthScaling
from model.network import Network, NetworkConfig
from model.regression_heads import RegressionHeadConfig, RegressionHeadKind
from priors.task import TaskKind

_CLASSIFICATION = {
    "retrieval": ClassificationHeadConfig(),
    "single_head": ClassificationHeadConfig(num_heads=1, length_scaling=LengthScaling.NONE),
    "retrieval_tabpfn3": ClassificationHeadConfig(log_form=LogForm.TABPFN3, length_scaling=LengthScaling.QASSMAX),
    "retrieval_mixed": ClassificationHeadConfig(log_form=LogForm.MIXED),
    "kernel": ClassificationHeadConfig(kind=ClassificationHeadKind.KERNEL),
    "linear": ClassificationHeadConfig(kind=ClassificationHeadKind.LINEAR),
    "mlp": ClassificationHeadConfig(kind=ClassificationHeadKind.MLP),
}
_NUM_STEPS = 80
_REGRESSION = {kind.value: RegressionHeadConfig(kind=kind) for kind in RegressionHeadKind}


def configs() -> dict[str, NetworkConfig]:
    """By name: each head, and each kind with every option of the ICL stage turned on."""
    plain = small_config(TaskKind.CLASSIFICATION), small_config(TaskKind.REGRESSION)
    found = {name: dataclasses.replace(plain[0], classification=head) for name, head in _CLASSIFICATION.items()}
    found |= {name: dataclasses.replace(plain[1], regression=head) for name, head in _REGRESSION.items()}
    for base in plain:
        icl = dataclasses.replace(
            base.icl,
            num_kv_heads_query=1,
            length_scaling=True,
            role_embeddings=False,
            num_thinking_rows=2,
            norm=Norm.RMS,
        )
        cell = dataclasses.replace(base.cell, target_aware=False)
        found[f"{base.kind}_options"] = dataclasses.replace(base, icl=icl, cell=cell)
    return found


def clean_names() -> list[str]:
    """Each configuration twice: with its zero tensors drawn anew, and trained for some seconds."""
    return [f"{name} {state}" for name in configs() for state in _STATES]


def clean_network(name: str) -> Network:
    """The network of a name, in evaluation mode.

    Raises:
        KeyError: when there is none of that name.
    """
    name, _, state = name.partition(" ")
    config = configs()[name]
    return _STATES[state](TaskKind(config.kind.value), config)


def _trained(kind: TaskKind, config: NetworkConfig) -> Network:
    return trained_network(kind, config=config, num_steps=_NUM_STEPS)[0]


_STATES: dict[str, Callable[[TaskKind, NetworkConfig], Network]] = {
    "re-randomised": lambda kind, config: rerandomised_network(kind, config=config),
    "trained": _trained,
}
