"""Generation: from a recipe to a finished shard set, on several processes, resumable at any moment.

The bytes of a part depend on (config, seed, index) only, so parts may be made in any order, by any number of
processes, on any machine with the same CPU features, and again after a kill.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import functools
import json
import math
import multiprocessing
import os
import pathlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, Protocol

from priors import recipe as recipes
from priors import shards
from priors.draws import one_thread
from priors.mixture import PriorConfig, checked, draw_shape, sample_group
from priors.recipe import Recipe, ShardConfig, group_seed, sample_part
from priors.shards import Entry, Location
from priors.splits import as_episode
from priors.task import Episode
from tools.failure import BadInput, ExitCode, Failure
from tools.files import MANIFEST
from tools.parent import follow_parent
from tools.stores import Store

__all__ = ["Recipe", "ShardConfig", "group_seed", "one_thread", "sample_part"]


class Runner(Protocol):
    """Who makes parts."""

    def __call__(self, recipe: Recipe, store: Store, *, indices: Sequence[int]) -> Generator[Entry, None, None]:
        """Makes and commits the parts `indices` of a recipe; yields their entries as they are finished."""


_HELD_OUT = 1
_EPISODES_PER_GROUP = 8
_MAX_SEED = 2**63 - 1


def _silent(done: int) -> None:
    """Reports to nobody."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Order:
    """What is to be made, where, and by whom.

    Args:
        recipe: the parts.
        out: path, URI or store.
        run: who makes them.
        report: called with the number of tasks that are finished.
        like: entries that the parts must come out as, by index.
        anew: first remove the files of whatever shard set lies there.
    """

    recipe: Recipe
    out: Location
    run: Runner
    report: Callable[[int], Any] = _silent
    like: Mapping[int, Entry] = dataclasses.field(default_factory=dict)
    anew: bool = False


def shard_folder(root: pathlib.Path, config: ShardConfig, *, seed: int, num_tasks: int) -> pathlib.Path:
    """Where a set lies below `root` unless the user says otherwise: every program finds there what another has made."""
    return root / "shards" / f"{config.source(seed=seed).digest()[:16]}-{num_tasks}"


def checked_seed(seed: int) -> int:
    """Returns `seed` if a set can be drawn from it.

    Raises:
        Failure: BAD_FLAG outside 0…2⁶³−1.
    """
    if not 0 <= seed <= _MAX_SEED:
        raise Failure(ExitCode.BAD_FLAG, f"--seed {seed} is outside 0…2^63−1: give a whole number of that range")
    return seed


def held_out_episodes(config: PriorConfig, *, seed: int, count: int, share: float = 0.5) -> list[Episode]:
    """Episodes for evaluation, from seeds that no shard set is drawn from.

    Args:
        config: the prior.
        seed: the seed of the collection.
        count: how many episodes.
        share: share of each task's rows that are context; every class is in the context where it has room.
    """
    checked(config)
    out: list[Episode] = []
    with one_thread():
        for index in range(math.ceil(count / _EPISODES_PER_GROUP)):
            own = group_seed(seed, index=index, stream=_HELD_OUT)
            shape = draw_shape(config, seed=own)
            size = {"rows": shape.rows, "features": shape.features, "count": _EPISODES_PER_GROUP}
            group = sample_group(config, seed=own, **size)
            out += [as_episode(task, share=share, seed=own % 2**32 + i) for i, task in enumerate(group.tasks())]
    return out[:count]


def make_part(recipe: Recipe, store: Store, *, index: int) -> Entry:
    """Draws and commits one part: the same bytes whoever does it, and however often."""
    draws = recipes.draw_part(recipe.config, seed=recipe.seed, index=index)
    drawn: collections.Counter[str] = collections.Counter()
    rejected: collections.Counter[str] = collections.Counter()
    for draw in draws:
        drawn.update(draw.drawn)
        rejected.update(draw.rejected)
    return shards.write_part(
        store,
        [draw.group for draw in draws],
        source=recipe.source,
        index=index,
        drawn=drawn,
        rejected=rejected,
        machine=recipes.machine(),
    )


def ensure_shards(
    config: ShardConfig,
    *,
    out: Location,
    num_tasks: int,
    seed: int,
    workers: int = 1,
    report: Callable[[int], Any] | None = None,
) -> shards.ShardSet:
    """Generates what is absent in `out`, verifies what is there, and opens the set.

    Args:
        config: prior, group size and file size.
        out: the folder or URI of the set; created.
        num_tasks: tasks wanted; rounded up to whole files of `config.tasks_per_part`.
        seed: the seed of the set.
        workers: processes.
        report: called with the number of tasks that are finished.

    Returns:
        The verified set.

    Raises:
        Failure: what `check_request` and `make_set` raise.
    """
    check_request(config, num_tasks=num_tasks, seed=seed, workers=workers)
    recipe = Recipe(config=config, seed=seed, num_parts=config.num_parts(num_tasks))
    run = functools.partial(run_here, workers=workers)
    return make_set(Order(recipe=recipe, out=out, run=run, report=report or _silent))


def make_set(order: Order) -> shards.ShardSet:
    """Makes the parts that are absent, and the manifest; opens the set.

    Raises:
        Failure: NOT_WRITABLE; DISK_FULL; RUN_BUSY while another process generates there; CONFIG_MISMATCH where another
            config or seed, or more tasks lie there, or where parts come out otherwise than in `order.like`: none of
            these stays; FORMAT_VERSION.
    """
    recipe, store = order.recipe, shards.as_store(order.out)
    store.check_writable("--out")
    with store.held():
        entries = _make_absent(order, store, whole=True)
        _commit(store, shards.encode_manifest([entries[i] for i in recipe.indices], source=recipe.source))
    return shards.ShardSet.open(store, verified=recipe.indices)


def make_range(order: Order) -> int:
    """Makes a range of a set, without a manifest; `make_set` of the whole completes it. Returns the bytes of data.

    Raises:
        Failure: as `make_set`, but parts outside the range are others' and stay: BAD_FLAG with `order.anew`.
    """
    check_range(order)
    store = shards.as_store(order.out)
    store.check_writable("--out")
    with store.held():
        entries = _make_absent(order, store, whole=False)
    return sum(entry["bytes"] for entry in entries.values())


def check_range(order: Order) -> None:
    """Refuses to begin a range by removing the ranges of others.

    Raises:
        BadInput: BAD_FLAG.
    """
    if order.anew:
        what = f"--anew with --first-part {order.recipe.first_part} would remove the other ranges of the set"
        raise BadInput(ExitCode.BAD_FLAG, f"{what}: leave --anew out, or give it without --first-part")


def _make_absent(order: Order, store: Store, *, whole: bool) -> dict[int, Entry]:
    """The entries of all parts of the recipe, after making those that are absent or damaged."""
    recipe = order.recipe
    store.remove_leftovers()
    if order.anew:
        for name in shards.our_files(store):
            store.remove(name)
    claimed = shards.claimed_entries(store)
    _check_owner(store, claimed, recipe=recipe)
    _check_finished(order, store, whole=whole)
    if whole:
        _check_size(store, max(claimed, default=-1) + 1, recipe=recipe)
        _remove_unclaimed(store, {*claimed, *recipe.indices})
    entries: dict[int, Entry] = {}

    def accept(entry: Entry) -> None:
        entries[entry["index"]] = entry
        order.report(len(entries) * recipe.config.tasks_per_part)

    for index in recipe.indices:
        if index in claimed and not _differs(order, claimed[index]) and shards.is_whole(store, claimed[index]):
            accept(claimed[index])
    absent = [index for index in recipe.indices if index not in entries]
    if absent:
        store.remove(MANIFEST)
    try:
        with contextlib.closing(order.run(recipe, store, indices=absent)) as made:
            for entry in made:
                if _differs(order, entry):
                    name = shards.part_files(entry["index"])[0]
                    raise recipes.difference(entry, order.like[entry["index"]], where=f"part {store.where(name)}")
                accept(entry)
    except BaseException:
        _remove_different(order, store)
        raise
    store.remove_leftovers()  # of processes that were killed and whose parts others have made
    return entries


def _differs(order: Order, entry: Entry) -> bool:
    """Whether a part is not what the order says it must come out as."""
    wanted = order.like.get(entry["index"])
    return wanted is not None and wanted["sha256"] != entry["sha256"]


def _remove_different(order: Order, store: Store) -> None:
    """Removes the parts that differ from `order.like`, which other processes may have made beside the one reported."""
    for index, entry in shards.claimed_entries(store).items() if order.like else ():
        if index in order.recipe.indices and _differs(order, entry):
            for name in reversed(shards.part_files(index)):  # a part without data must not be claimed
                store.remove(name)


def _remove_unclaimed(store: Store, kept: set[int]) -> None:
    """Removes the files of parts that killed processes began, where no part is wanted: no manifest will name them."""
    names = {name for index in kept for name in shards.part_files(index)}
    for name in shards.our_files(store):
        if name not in names and name != MANIFEST:
            store.remove(name)


def _commit(store: Store, manifest: bytes) -> None:
    """Writes the manifest unless it lies there already, whole."""
    if store.size(MANIFEST) != len(manifest) or store.read(MANIFEST) != manifest:
        store.write(MANIFEST, manifest)


def check_request(config: ShardConfig, *, num_tasks: int, seed: int, workers: int) -> None:
    """Refuses what cannot be made, before anything is written.

    Raises:
        Failure: BAD_FLAG for numbers below 1, seeds outside 0…2⁶³−1 and impossible priors; TOO_FEW_RESOURCES for more
            workers than cores.
    """
    sizes = {"--group-size": config.group_size, "--groups-per-part": config.groups_per_part}
    for flag, value in {"--num-tasks": num_tasks, "--workers": workers, **sizes}.items():
        if value < 1:
            raise Failure(ExitCode.BAD_FLAG, f"{flag} {value} is too small: give 1 or more")
    cores = os.cpu_count() or 1
    if workers > cores:
        what = f"--workers {workers} is more than the {cores} cores of this machine"
        raise Failure(ExitCode.TOO_FEW_RESOURCES, f"{what}: give {cores} or fewer")
    checked_seed(seed)
    checked(config.prior)


def _check_owner(store: Store, claimed: Mapping[int, Entry], *, recipe: Recipe) -> None:
    """Refuses a store whose parts belong to another config, seed or version, or that holds more of a whole set."""
    mend = "give another --out, or start anew with --anew, which removes these shards"
    wanted = recipe.source.digest()
    for name, found in _signs(store, claimed):
        if found["format_version"] != shards.FORMAT_VERSION:
            versions = f"format version {found['format_version']}, not {shards.FORMAT_VERSION}"
            raise BadInput(ExitCode.FORMAT_VERSION, f"--out {store} holds shards of {versions} ({name}): {mend}")
        if found["source"] != wanted:
            theirs = f"shards of another config or seed (source {found['source'][:16]}, not {wanted[:16]}, {name})"
            raise BadInput(ExitCode.CONFIG_MISMATCH, f"--out {store} holds {theirs}: {mend}")


def _check_size(store: Store, there: int, *, recipe: Recipe) -> None:
    """Refuses to make a whole set smaller than the parts that lie there."""
    size = recipe.config.tasks_per_part
    if there > recipe.num_parts:
        both = f"--num-tasks asks for {recipe.num_parts * size} tasks, fewer than the {there * size} of --out {store}"
        raise BadInput(ExitCode.CONFIG_MISMATCH, f"{both}: ask for as many, or start anew with --anew")


def _check_finished(order: Order, store: Store, *, whole: bool) -> None:
    """Refuses to make a finished set smaller, or to replace its parts by those of another machine."""
    try:
        parts = shards.read_manifest(store)["parts"]
    except Failure:
        return  # it is absent or damaged, and will be written anew
    if whole:
        _check_size(store, len(parts), recipe=order.recipe)
    for entry in parts:
        if _differs(order, entry):
            name = shards.part_files(entry["index"])[0]
            what = f"--out {store} holds a finished set, whose {name} is not that of --like"
            raise BadInput(ExitCode.CONFIG_MISMATCH, f"{what}: give another --out, or start anew with --anew")


def _signs(store: Store, claimed: Mapping[int, Entry]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What says whose shards lie in a store: the manifest, if it is legible, and every entry."""
    if store.size(MANIFEST) is not None:
        try:
            manifest = json.loads(store.read(MANIFEST))
            yield MANIFEST, {name: manifest[name] for name in ("format_version", "source")}
        except (ValueError, KeyError, TypeError):
            pass
    for index, entry in claimed.items():
        yield shards.part_files(index)[1], entry


def run_here(recipe: Recipe, store: Store, *, indices: Sequence[int], workers: int) -> Generator[Entry, None, None]:
    """Makes parts in this process, or on spawned processes of one torch thread each.

    Raises:
        Failure: WORKER_FAILED when one of them is killed; the parts that it had finished stay.
    """
    if workers == 1 or len(indices) < 2:
        for index in indices:
            yield make_part(recipe, store, index=index)
        return
    context = multiprocessing.get_context("spawn")
    number = min(workers, len(indices))
    with concurrent.futures.ProcessPoolExecutor(number, mp_context=context, initializer=follow_parent) as pool:
        waiting = [pool.submit(_make_part_at, recipe, store.location, index) for index in indices]
        try:
            for future in concurrent.futures.as_completed(waiting):
                yield future.result()
        except concurrent.futures.process.BrokenProcessPool as error:
            mend = "run the same command again to go on"
            raise Failure(ExitCode.WORKER_FAILED, f"a generating process was killed: {mend}") from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _make_part_at(recipe: Recipe, location: str, index: int) -> Entry:
    return make_part(recipe, shards.as_store(location), index=index)
