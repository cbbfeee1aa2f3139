"""The families of the prior: their names, how often each is drawn, and the one way to draw from each."""

import dataclasses
import enum

from priors.draft import Draft, TableRequest
from priors.draws import Draws
from priors.exact import ExactConfig, ExactFamily, kind_of, sample_exact
from priors.exact_draft import ExactDraft
from priors.forest import ForestConfig, sample_forest
from priors.graph_scm import GraphSCMConfig, sample_graph_scm
from priors.heteroscedastic import HeteroscedasticConfig, sample_heteroscedastic
from priors.kernel_function import KernelFunctionConfig, sample_kernel_function
from priors.mlp_scm import MLPSCMConfig, sample_mlp_scm
from priors.prototypes import PrototypesConfig, sample_prototypes
from priors.rules import RuleConfig, sample_rules
from priors.task import TaskKind


class Family(enum.StrEnum):
    """A kind of task; each has a file of its name."""

    MLP_SCM = "mlp_scm"
    GRAPH_SCM = "graph_scm"
    FOREST = "forest"
    RULES = "rules"
    KERNEL_FUNCTION = "kernel_function"
    PROTOTYPES = "prototypes"
    HETEROSCEDASTIC = "heteroscedastic"
    LINEAR_GAUSSIAN = "linear_gaussian"
    GAUSSIAN_PROCESS = "gaussian_process"
    DIRICHLET_TABLE = "dirichlet_table"
    SMALL_TREE = "small_tree"

    @property
    def exact(self) -> ExactFamily | None:
        """The same among those whose posterior is known (5.I), whose tasks nothing may disturb or filter."""
        return ExactFamily(self.value) if self.value in set(ExactFamily) else None

    def makes(self, kind: TaskKind) -> bool:
        """Whether the family has tasks of this kind."""
        if self.exact:
            return kind_of(self.exact) is kind
        return kind is TaskKind.REGRESSION or self is not Family.HETEROSCEDASTIC


@dataclasses.dataclass(frozen=True, kw_only=True)
class FamilyWeights:
    """How often each family is drawn, in any unit; a family without tasks of the wanted kind does not count."""

    mlp_scm: float = 0.55
    """MLP structural causal models."""
    graph_scm: float = 0.28
    """Structural causal models over graphs of mixed functions."""
    forest: float = 0.18
    """Trees and forests."""
    rules: float = 0.07
    """Exact rules."""
    kernel_function: float = 0.1
    """Functions from Gaussian processes with many kernels."""
    prototypes: float = 0.16
    """Nearest neighbours and clusters."""
    heteroscedastic: float = 0.08
    """Uneven and heavy-tailed noise; regression only."""
    linear_gaussian: float = 0.01
    """Linear regression; exact posterior, regression only."""
    gaussian_process: float = 0.01
    """Smooth functions; exact posterior, regression only."""
    dirichlet_table: float = 0.01
    """Lookup tables; exact posterior, classification only."""
    small_tree: float = 0.01
    """Small trees; exact posterior, classification only."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FamilyConfigs:
    """What each family draws its tasks from."""

    mlp_scm: MLPSCMConfig = MLPSCMConfig()
    """MLP structural causal models."""
    graph_scm: GraphSCMConfig = GraphSCMConfig()
    """Structural causal models over graphs."""
    forest: ForestConfig = ForestConfig()
    """Trees and forests."""
    rules: RuleConfig = RuleConfig()
    """Exact rules."""
    kernel_function: KernelFunctionConfig = KernelFunctionConfig()
    """Functions from Gaussian processes."""
    prototypes: PrototypesConfig = PrototypesConfig()
    """Nearest neighbours and clusters."""
    heteroscedastic: HeteroscedasticConfig = HeteroscedasticConfig()
    """Uneven and heavy-tailed noise."""
    exact: ExactConfig = ExactConfig()
    """Families with a known posterior."""


_SAMPLERS = {
    Family.MLP_SCM: sample_mlp_scm,
    Family.GRAPH_SCM: sample_graph_scm,
    Family.FOREST: sample_forest,
    Family.RULES: sample_rules,
    Family.KERNEL_FUNCTION: sample_kernel_function,
    Family.PROTOTYPES: sample_prototypes,
    Family.HETEROSCEDASTIC: sample_heteroscedastic,
}


def sample_draft(draws: Draws, configs: FamilyConfigs, *, family: Family, request: TableRequest) -> Draft:
    """Draws from a family whose tasks are to be finished (targets cut or scaled, columns blemished)."""
    return _SAMPLERS[family](draws, getattr(configs, family.value), request=request)


def sample_finished(draws: Draws, configs: FamilyConfigs, *, family: ExactFamily, request: TableRequest) -> ExactDraft:
    """Draws from a family with a known posterior: its tasks are finished."""
    config = configs.exact.within(max_features=request.features, max_classes=request.max_classes)
    size = {"count": request.count, "rows": request.rows, "features": request.features}
    return sample_exact(config, family, draws=draws, **size)
