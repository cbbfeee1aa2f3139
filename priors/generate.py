"""Writes the shards of a preset, or goes on where it was stopped.

Command: `bazel run //priors:generate -- PRESET --out DIR --num-tasks N --seed S --workers W [--kind regression]`
"""

from priors.generation import ensure_shards
from priors.presets import PRESETS, GenerateConfig
from tools import config as configs
from tools import paths, progress
from tools.failure import run_program


def main() -> None:
    """Runs the program."""
    run_program(_main)


def _main(argv: list[str]) -> None:
    config: GenerateConfig
    _, config = configs.parse_preset(PRESETS, argv, program="//priors:generate", default="tiny")
    identity = config.shards.source(seed=config.seed).digest()
    out = paths.user_path(config.out) if config.out else paths.default_root() / "shards" / identity[:16]
    with progress.meter("tasks", total=config.num_tasks, unit="tasks") as report:
        shard_set = ensure_shards(
            config.shards,
            out=out,
            num_tasks=config.num_tasks,
            seed=config.seed,
            workers=config.workers,
            report=lambda done: report(min(done, config.num_tasks)),
        )
    size = shard_set.num_bytes / 1e6
    print(f"{shard_set.num_tasks} {shard_set.kind} tasks, {size:.1f} MB, digest {shard_set.digest[:16]}: {out}")
