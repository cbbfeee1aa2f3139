"""Our networks as predictors: what `eval.comparison` sets beside the baselines.

Contexts are not remembered: each table is asked once, and scores are made on the attention path that was audited.
"""

import dataclasses

import numpy as np

from eval.scores import TAUS, Forecast
from model.estimator import ICLClassifier, ICLRegressor
from model.network import Network
from priors.task import Evidence


@dataclasses.dataclass(frozen=True, kw_only=True)
class ICLPredictor:
    """A network behind the estimators that users have.

    Args:
        name: `veritab` for the trained network, `untrained` for the one at initialisation.
        network: in evaluation mode.
        num_estimators: orders that are averaged.
    """

    name: str
    network: Network
    num_estimators: int = 4

    def classify(self, evidence: Evidence) -> np.ndarray:
        """Probabilities [M, K] by class id; 0 for a class that the context lacks."""
        estimator = ICLClassifier(self.network, num_estimators=self.num_estimators, cache=False)
        estimator.fit(evidence.x_context, evidence.y_context, column_kinds=evidence.column_kinds)
        probabilities = np.zeros((len(evidence.x_query), evidence.num_classes))
        probabilities[:, estimator.classes_.astype(int)] = estimator.predict_proba(evidence.x_query)
        return probabilities

    def forecast(self, evidence: Evidence) -> Forecast:
        """Predictive mean and what else the head has: quantiles, and their crossing rate."""
        estimator = ICLRegressor(self.network, num_estimators=self.num_estimators, cache=False)
        estimator.fit(evidence.x_context, evidence.y_context, column_kinds=evidence.column_kinds)
        found = estimator.forecast(evidence.x_query, levels=TAUS)
        return Forecast(mean=found.mean, quantiles=found.quantiles, crossing_rate=found.crossing_rate)
