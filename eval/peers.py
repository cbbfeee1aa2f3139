"""Other people's in-context learners behind one interface: `predict(x_context, y_context, x_query)`.

No weights can be had offline, so networks are built small and drawn at random by their own code; every tensor that it
starts at zero is drawn anew, and matrices are enlarged, since a network of zeros, or of flat attention, ignores its own
mask. Findings are about wiring and preprocessing, not about trained weights. `evoforest-tab` has no weights to train;
what runs is what users run.

Targets that depend on this module have `peers = True`: they see the packages of requirements-peers.lock.
"""

import dataclasses
import importlib.metadata
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import evoforest_tab
import numpy as np
import tabicl
import tabpfn
import torch
from tabicl._model.tabicl import TabICL
from tabpfn.architectures import tabpfn_v3
from tabpfn.base import ModelSpecs
from tabpfn.constants import ModelVersion
from tabpfn.inference_config import InferenceConfig
from torch import nn

from eval.black_box import Predict
from eval.subject import rerandomise

_RANDOM = "random weights ({} zero tensors drawn anew, matrices × {:g}), {} parameters"
_GAIN = 3.0  # flat attention would hide a leak
_MAX_CLASSES = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class Peer:
    """One way of using one package.

    Args:
        package: its name on the index.
        version: as installed.
        variant: which of its estimators, and how it is used.
        weights: where its weights are from.
        num_classes: of the tables that it is judged on; 0 for a regressor.
        predict: fits on a context and predicts its queries.
    """

    package: str
    version: str
    variant: str
    weights: str
    num_classes: int
    predict: Predict


def peer_variants(package: str, *, seed: int) -> Iterator[Peer]:
    """Every variant of a package (a name of `PEERS`); `seed` draws the weights."""
    version = importlib.metadata.version(package)
    for variant, weights, num_classes, predict in PEERS[package](seed):
        yield Peer(
            package=package, version=version, variant=variant, weights=weights, num_classes=num_classes, predict=predict
        )


_Variant = tuple[str, str, int, Predict]


def _tabicl(seed: int) -> Iterator[_Variant]:
    """TabICL v2's classifier and regressor at their defaults, and with the key/value cache."""
    sizes = dict(embed_dim=16, col_num_blocks=1, col_nhead=2, col_num_inds=8, row_num_blocks=1, row_nhead=2)
    sizes |= dict(row_num_cls=2, icl_num_blocks=2, icl_nhead=2)
    for num_classes, base in ((3, tabicl.TabICLClassifier), (0, tabicl.TabICLRegressor)):
        network, weights = _drawn(lambda: TabICL(max_classes=_MAX_CLASSES if num_classes else 0, **sizes), seed)
        estimator = _with_model(base, network)
        for cache in (False, True):
            variant = base.__name__ + (", kv_cache=True" if cache else "")
            make = _maker(estimator, device="cpu", n_jobs=1, kv_cache=cache)
            yield variant, weights, num_classes, _by_fitting(make, proba=num_classes > 0)


def _with_model(base: type[Any], network: nn.Module) -> type[Any]:
    """TabICL's estimator with a network in memory where it would load a file."""

    class InMemory(base):
        def _load_model(self) -> None:
            self.model_, self.model_path_, self.model_config_ = network, None, {}

    return InMemory


def _tabpfn(seed: int) -> Iterator[_Variant]:
    """TabPFN-3's classifier and regressor at their defaults, and with the key/value cache, at 2.5's preprocessing."""
    sizes = dict(embed_dim=16, dist_embed_num_blocks=1, dist_embed_num_heads=2, dist_embed_num_inducing_points=8)
    sizes |= dict(feat_agg_num_blocks=1, feat_agg_num_heads=2, feat_agg_num_cls_tokens=2, nlayers=2, icl_num_heads=2)
    sizes |= dict(icl_num_kv_heads_test=1, decoder_head_dim=16, decoder_num_heads=2, num_buckets=100)
    for num_classes, estimator in ((3, tabpfn.TabPFNClassifier), (0, tabpfn.TabPFNRegressor)):
        config = tabpfn_v3.TabPFNV3Config(max_num_classes=_MAX_CLASSES if num_classes else -1, **sizes)
        network, weights = _drawn(lambda: tabpfn_v3.get_architecture(config), seed)
        task = "multiclass" if num_classes else "regression"
        preprocessing = InferenceConfig.get_default(task, ModelVersion.V2_5)
        specs = ModelSpecs(model=network, architecture_config=config, inference_config=preprocessing)
        for mode, precision in _TABPFN_USES:
            variant = f"{estimator.__name__} (v3), {mode}, {precision}"
            make = _maker(estimator, model_path=specs, device="cpu", fit_mode=mode, inference_precision=precision)
            yield variant, weights, num_classes, _by_fitting(make, proba=num_classes > 0)


# What it does when nothing is said comes last: on a CPU it may then compute in bf16.
_TABPFN_USES = (("fit_preprocessors", torch.float32), ("fit_with_cache", torch.float32), ("fit_preprocessors", "auto"))


def _evoforest(seed: int) -> Iterator[_Variant]:
    """EvoForest-Tab's default estimators and those that it calls inductive; nothing is drawn by `seed`."""
    weights = "none to train: as shipped"
    yield "EvoForestTabClassifier", weights, 3, _by_fitting(evoforest_tab.EvoForestTabClassifier, proba=True)
    yield "EvoForestTabRegressor", weights, 0, _by_fitting(evoforest_tab.EvoForestTabRegressor, proba=False)
    inductive = evoforest_tab.EvoForestTabInductiveClassifier, evoforest_tab.EvoForestTabInductiveRegressor
    yield "EvoForestTabInductiveClassifier", weights, 3, _by_fitting(inductive[0], proba=True)
    yield "EvoForestTabInductiveRegressor", weights, 0, _by_fitting(inductive[1], proba=False)


PEERS: dict[str, Callable[[int], Iterator[_Variant]]] = {
    "tabicl": _tabicl,
    "tabpfn": _tabpfn,
    "evoforest-tab": _evoforest,
}
"""Package to its variants."""


def _maker(estimator: type[Any], **settings: Any) -> Callable[[], Any]:
    return lambda: estimator(**settings)


def _by_fitting(make: Callable[[], Any], *, proba: bool) -> Predict:
    """A fresh estimator for every call, so that nothing but what is given can matter."""

    def predict(x_context: np.ndarray, y_context: np.ndarray, x_query: np.ndarray) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # theirs: about versions, sizes, files left open
            fitted = make().fit(x_context, y_context)
            return fitted.predict_proba(x_query) if proba else fitted.predict(x_query)

    return predict


def _drawn(build: Callable[[], nn.Module], seed: int) -> tuple[nn.Module, str]:
    """A network in evaluation mode, drawn from `seed` without a tensor of zeros, and what is said of its weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # style: their layers draw from the global generator, restored after this
        network = build().eval()
    zeros = sum(not value.any() for value in network.parameters())
    size = sum(value.numel() for value in network.parameters())
    network = rerandomise(network, seed=seed)
    with torch.no_grad():
        for value in network.parameters():
            value.mul_(_GAIN if value.ndim > 1 else 1.0)
    return network, _RANDOM.format(zeros, _GAIN, size)
