"""The two-way transformer as a predictor: what `eval.comparison` sets beside ours on real tables."""

import dataclasses

import numpy as np
import torch

from eval.scores import Forecast
from eval.two_way_transformer import TwoWayTransformer
from model.network import NetworkInputs
from priors.task import Evidence


@dataclasses.dataclass(frozen=True, kw_only=True)
class TwoWayPredictor:
    """Its answers, averaged over orders of the class slots; the order of features does not matter to it.

    Args:
        model: classifies.
        num_estimators: orders that are averaged, as many as ours gets.
        seed: of the orders; the first one leaves the classes as they are.
        name: as it appears in results.
    """

    model: TwoWayTransformer
    num_estimators: int = 4
    seed: int = 0
    name: str = "two_way"

    @torch.no_grad()
    def classify(self, evidence: Evidence) -> np.ndarray:
        """Probabilities [M, K] by class id, in fp32; 0 for a class that the context lacks."""
        generator = np.random.default_rng(self.seed)
        total = np.zeros((len(evidence.x_query), evidence.num_classes))
        for number in range(self.num_estimators):
            slots = np.arange(evidence.num_classes) if number == 0 else generator.permutation(evidence.num_classes)
            labels = slots[evidence.y_context.astype(np.int64)].astype(np.float32)
            inputs = NetworkInputs(
                x_context=torch.from_numpy(evidence.x_context[None]),
                y_context=torch.from_numpy(labels[None]),
                x_query=torch.from_numpy(evidence.x_query[None]),
                column_kinds=torch.from_numpy(evidence.column_kinds[None]),
                num_classes=evidence.num_classes,
            )
            total += self.model(inputs).probabilities()[0].double().numpy()[:, slots]
        return total / total.sum(-1, keepdims=True)

    def forecast(self, evidence: Evidence) -> Forecast:
        """It has no answer for numbers.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("the two-way transformer classifies only")
