"""Recipes: a shard set described by config, seed and range alone, so that it can be made again instead of copied."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
import torch
import tyro

from priors import shards
from priors.draws import one_thread
from priors.group import TaskGroup
from priors.mixture import VERSION, GroupDraw, PriorConfig, draw_group, draw_shape
from priors.shards import Entry
from tools import stores
from tools.config import from_json, to_json
from tools.failure import BadInput, ExitCode, Failure

_TRAINING = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardConfig:
    """Everything but the seed that the bytes of a shard set depend on."""

    prior: Annotated[PriorConfig, tyro.conf.arg(name="")] = PriorConfig()
    """What tasks are drawn from."""
    group_size: int = 64
    """Tasks that share rows and features; a multiple of every batch size that the set is to serve."""
    groups_per_part: int = 8
    """Groups in one Arrow file."""

    @property
    def tasks_per_part(self) -> int:
        """Tasks in one Arrow file; sets are rounded up to whole files."""
        return self.group_size * self.groups_per_part

    def num_parts(self, num_tasks: int) -> int:
        """Files that `num_tasks` fill."""
        return math.ceil(num_tasks / self.tasks_per_part)

    def rounded(self, num_tasks: int) -> int:
        """Tasks that a set of `num_tasks` really holds: whole files."""
        return self.num_parts(num_tasks) * self.tasks_per_part

    def source(self, *, seed: int) -> shards.ShardSource:
        """The identity of the sets that this config makes with `seed`."""
        return shards.ShardSource(config={**to_json(self), "version": VERSION}, seed=seed, kind=self.prior.kind)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a range of parts is made from.

    Args:
        config: prior, group size and file size.
        seed: the seed of the set.
        num_parts: files of the range.
        first_part: index of its first file; a whole set begins at 0.
    """

    config: ShardConfig
    seed: int
    num_parts: int
    first_part: int = 0

    @property
    def indices(self) -> range:
        """The parts."""
        return range(self.first_part, self.first_part + self.num_parts)

    @property
    def source(self) -> shards.ShardSource:
        """What the set is a function of."""
        return self.config.source(seed=self.seed)


def group_seed(seed: int, *, index: int, stream: int = _TRAINING) -> int:
    """The seed of one group; streams (training, held out) never meet."""
    return int(np.random.SeedSequence([seed, stream, index]).generate_state(1, np.uint64)[0] >> 1)


def draw_part(config: ShardConfig, *, seed: int, index: int) -> list[GroupDraw]:
    """The groups of part `index` and what it took to draw them: a pure function of its arguments."""
    groups = []
    with one_thread():
        for number in range(index * config.groups_per_part, (index + 1) * config.groups_per_part):
            own = group_seed(seed, index=number)
            shape = draw_shape(config.prior, seed=own)
            size = {"rows": shape.rows, "features": shape.features, "count": config.group_size}
            groups.append(draw_group(config.prior, seed=own, **size))
    return groups


def sample_part(config: ShardConfig, *, seed: int, index: int) -> list[TaskGroup]:
    """The groups of part `index`."""
    return [draw.group for draw in draw_part(config, seed=seed, index=index)]


def machine() -> str:
    """What floats may depend on beside the config: how torch computes here, such as "AVX2, torch 2.13.0"."""
    return f"{torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__.split('+')[0]}"


def recipe_of(manifest: Mapping[str, Any], *, where: str) -> Recipe:
    """The recipe of a finished set.

    Args:
        manifest: as `shards.read_manifest` gives it.
        where: what to call it in messages.

    Raises:
        BadInput: CONFIG_MISMATCH for a set of another version of the prior, or of none of ours.
    """
    settings = {name: value for name, value in manifest["config"].items() if name != "version"}
    version = manifest["config"].get("version")
    mend = f"this is version {VERSION}: use the release that made the set, or copy its files"
    if version != VERSION:
        raise BadInput(ExitCode.CONFIG_MISMATCH, f"{where} was drawn by version {version} of the prior; {mend}")
    try:
        config = from_json(ShardConfig, settings)
    except (TypeError, ValueError, AttributeError) as error:
        raise BadInput(ExitCode.CONFIG_MISMATCH, f"{where} is not of this prior ({error}); {mend}") from error
    recipe = Recipe(config=config, seed=manifest["seed"], num_parts=len(manifest["parts"]))
    if recipe.source.digest() != manifest["source"]:
        raise BadInput(ExitCode.CONFIG_MISMATCH, f"{where} is of another source than its config says; {mend}")
    return recipe


def read_manifest_of(location: str) -> dict[str, Any]:
    """The manifest of a set, named by the set's folder or by the file itself, which is all that is read.

    Raises:
        Failure: NOT_FOUND for a file that is absent; what `shards.read_manifest` raises.
    """
    if not location.split("?")[0].endswith(".json"):
        return shards.read_manifest(location)
    folder, name = stores.split_location(location)
    store = stores.open_store(folder)
    try:
        data = store.read(name)
    except OSError as error:
        reason = " ".join(str(error).split())
        raise BadInput(ExitCode.NOT_FOUND, f"manifest {store.where(name)} cannot be read: {reason}") from error
    return shards.parse_manifest(data, where=store.where(name))


def difference(found: Entry, expected: Entry, *, where: str) -> Failure:
    """What to raise for a part that came out otherwise than in the set it repeats: CONFIG_MISMATCH, both sides."""
    theirs = f"{expected['sha256'][:16]} made with {expected['machine']}"
    ours = f"{found['sha256'][:16]} made with {found['machine']}"
    mend = "run the same command again on a machine of that kind, or copy the files of the set"
    what = f"{where} differs from the set it is to repeat: expected sha256 {theirs}, got {ours}"
    return Failure(ExitCode.CONFIG_MISMATCH, f"{what}; it is removed, since floats depend on the processor: {mend}")
