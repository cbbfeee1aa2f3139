"""Evaluation between steps: held-out tasks that choose the checkpoint, looks that choose nothing, and their price."""

import pathlib
import time
from collections.abc import Callable
from typing import Any

from model.network import Network
from priors.generation import held_out_episodes
from train.events import TEXT, RunEvent
from train.job import TrainingJob
from train.looks import Costs, Schedule, forward_work, schedule_of
from train.state import TrainState
from train.validation import VALIDATION_SEED, same_shape_batches, validation_figures

SHARE = "train/evaluation_share"
_LOOK_OVERHEAD = 3.0  # fp32, small batches and scores: 2.8 times a bf16 validation of `tiny` on a CPU
_JUDGED_FROM = 3  # validations: before, what is made once (imports, Bayes predictions) weighs too much


class Evaluation:
    """What is computed between steps of one sitting, and which share of the time it takes.

    Args:
        job: what is trained.
        network: as it trains; its size decides how often there is room for a look.
        world_size: workers that share a step, while looks are one worker's.
        event: where a look that fails, or a budget that is exceeded, is told.
    """

    def __init__(
        self, job: TrainingJob, network: Network, *, world_size: int, event: Callable[..., None] = lambda *a, **f: None
    ) -> None:
        self._job, self._event = job, event
        self._start, self._seconds, self._count = time.perf_counter(), 0.0, 0
        self._has_told = False
        episodes = held_out_episodes(job.prior, seed=VALIDATION_SEED, count=job.num_validation_tasks)
        self._batches = same_shape_batches(episodes)
        self._watch = self._make_watch()
        shapes = [] if self._watch is None else self._guarded(self._watch.shapes)
        validation = forward_work(network, [episode.task.x.shape for episode in episodes])
        costs = Costs(
            step=validation / len(episodes) * min(stage.batch_size for stage in job.stages) / world_size,
            validation=validation,
            look=forward_work(network, shapes or []),
        )
        self.schedule: Schedule = schedule_of(
            costs,
            budget_share=job.watch.budget_share,
            validate_every=job.loop.checkpoint_every,
            overhead=_LOOK_OVERHEAD,
        )
        self._seconds = time.perf_counter() - self._start

    def _make_watch(self) -> Any:
        """A `train.watch.Watch`, without the user's tables where this node cannot read them; None without a budget."""
        job = self._job
        if not job.watch.budget_share:
            return None
        from train.watch import Watch  # brings scikit-learn and pandas, which other workers do not need

        found = None
        if job.tables:
            found = self._guarded(lambda: Watch(job.network, job.watch, folder=pathlib.Path(job.tables)))
        return found or self._guarded(lambda: Watch(job.network, job.watch))

    def validate(self, state: TrainState) -> dict[str, float]:
        """Figures of the held-out tasks that choose the checkpoint."""
        start = time.perf_counter()
        with state.deployed() as network:
            figures = validation_figures(network, self._batches)
        self._seconds += time.perf_counter() - start
        self._count += 1
        return figures

    def look(self, state: TrainState) -> dict[str, float]:
        """`watch/...` figures where a look is due at this step, and the share of the time that evaluation has taken."""
        start, found = time.perf_counter(), None
        if self._watch is not None and self.schedule.is_due(state.step):
            watch = self._watch
            with state.deployed() as network:
                found = self._guarded(lambda: watch.figures(network.eval()), step=state.step)
        now = time.perf_counter()
        self._seconds += now - start
        share = self._seconds / (now - self._start)
        self._judge(share, step=state.step)
        return {**{f"watch/{name}": value for name, value in (found or {}).items()}, SHARE: share}

    def _judge(self, share: float, *, step: int) -> None:
        budget = self._job.watch.budget_share
        if self._has_told or not budget or self._count < _JUDGED_FROM or share <= budget:
            return
        self._has_told = True
        mend = f"raise --{self._job.network.kind.value}.loop.checkpoint-every"
        text = f"validation and looks take {share:.1%} of the time, more than {budget:.1%}: {mend}"
        self._event(RunEvent.OVER_BUDGET, step=step, share=round(share, 4), **{TEXT: text})

    def _guarded(self, call: Callable[[], Any], **facts: Any) -> Any:
        """What `call` returns, or None: nothing that is only watched stops a training, whatever goes wrong in it."""
        try:
            return call()
        except Exception as error:  # tables on a disk that this node lacks, memory, a prediction that is none
            text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            self._event(RunEvent.WATCH_FAILED, **facts, **{TEXT: text})
            return None
