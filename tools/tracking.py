"""Experiment tracking: the only module that imports mlflow. A tracking outage never stops a job (K1).

`metrics.jsonl` of the run folder is the spool: `Tracker.replay` sends what the store does not have yet, so an outage,
a crash or a resume costs nothing but time. Everything else that cannot be sent waits in memory for the next call.
"""

import collections
import contextlib
import dataclasses
import fcntl
import functools
import json
import os
import pathlib
import posixpath
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, Self

from tools import files, paths, spool
from tools.failure import ExitCode, Failure

UNVERIFIED_PREFIX = "not-yet-verified/"
OFFLINE = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_SKIP_PIP_REQUIREMENTS_CHECK": "true",
    "MLFLOW_MODEL_CATALOG_URI": "",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",  # ours is the retry: at the next call
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}
_SERVER = re.compile(r"(https?|postgresql|mysql|mssql)(\+\w+)?://[^/\s]")
_DATABASE = re.compile(r"(sqlite(?:\+\w+)?:///)(?!:memory:)([^?]*[^?/])(\?.*)?")
_IDENTITY = "veritab.identity"
_EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}  # which of its views MLflow opens first
_LOCK_SECONDS = 120.0
_VALUE_CHARACTERS = 6000
_KEY_CHARACTERS = 250
_POINTS_PER_CALL = 1000
_PARAMS_PER_CALL = 100
_DIGEST_CHARACTERS = 36
# A store that answers with one of these has understood and refused: sending it again cannot help.
_REFUSALS = {"INVALID_PARAMETER_VALUE", "BAD_REQUEST", "RESOURCE_ALREADY_EXISTS"}


def load_mlflow() -> ModuleType:
    """Imports mlflow, here and not above, because it reads these settings while it is imported."""
    for name, value in OFFLINE.items():
        os.environ.setdefault(name, value)
    import mlflow

    return mlflow


def database_uri(root: pathlib.Path) -> str:
    """The local store of a root folder."""
    return f"sqlite:///{root / 'mlflow.db'}"


def checked_uri(uri: str) -> str:
    """Returns the URI of a store that can be used; a relative SQLite file is one below where the user stands.

    Raises:
        Failure: BAD_FLAG for a URI of an unknown kind, or without the place that it needs.
    """
    if found := _DATABASE.fullmatch(uri):
        return f"{found[1]}{paths.user_path(found[2])}{found[3] or ''}"
    if not _SERVER.match(uri):
        mend = "give http://HOST:PORT or sqlite:////PATH/mlflow.db, or leave it out"
        raise Failure(ExitCode.BAD_FLAG, f"tracking URI {uri!r} is not one that can be used: {mend}")
    return uri


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` becomes `{"a.b": 1}`; lists stay values."""
    out: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            out |= flat(value, f"{prefix}{key}.")
        else:
            out[f"{prefix}{key}"] = value
    return out


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Delivery:
    """Something to send: `send(client, run_id)` may be repeated after a failure; `pending()` counts what is left."""

    what: str
    send: Callable[[Any, str], None]
    pending: Callable[[], int] = lambda: 1


class Tracker:
    """One run in a tracking store. No method raises for a store that is absent, slow, full or wrong."""

    def __init__(self, *, uri: str, artifacts: str | None, experiment: str, run_name: str, identity: str) -> None:
        self._uri, self._artifacts = uri, artifacts
        self._experiment, self._run_name, self._identity = experiment, run_name, identity
        self._client: Any = None
        self._run_id = ""
        self._found_status = ""
        self._start_time = 0
        self._spools: dict[pathlib.Path, spool.Spool] = {}
        self._uncertain: set[pathlib.Path] = set()
        self._queue: collections.deque[_Delivery] = collections.deque()
        self._refused: list[str] = []
        self._retry_at = 0.0
        self._has_warned = False

    @classmethod
    def open(cls, *, uri: str | None, root: pathlib.Path, experiment: str, run_name: str) -> Self:
        """Starts or resumes the run of a run folder; says so first, because a new database takes a while.

        Args:
            uri: a tracking server (`http://host:5000`) or database; None means `<root>/mlflow.db`.
            root: the folder of run folders. `<root>/<run_name>/tracking.json` ties the folder to its run, so that a
                resumed or rendered run continues in the same place and another user's run of that name is left alone.
            experiment: the experiment's name.
            run_name: the run folder's name.

        Raises:
            Failure: BAD_NAME; BAD_FLAG for a URI of an unknown kind (a mistake, not an outage).
        """
        uri = None if uri is None else checked_uri(uri)
        folder = root / paths.checked_name(run_name, what="run name")
        served = uri is not None and uri.startswith("http")
        tracker = cls(
            uri=uri or database_uri(root.resolve()),
            artifacts=None if served else (root.resolve() / "artifacts").as_uri(),
            experiment=experiment,
            run_name=run_name,
            identity=_identity(folder),
        )
        _say(f"opening {_public(tracker._uri)}")
        tracker._flush()
        return tracker

    @property
    def run_id(self) -> str:
        """The store's id of the run; empty while the store has not been reached."""
        return self._run_id

    def log_params(self, params: Mapping[str, Any]) -> None:
        """Logs configuration values; nested objects become dotted keys, long values are cut."""
        texts = {_key(key): _text(value) for key, value in flat(params).items()}
        self._submit("parameters", functools.partial(self._send_params, texts=texts))

    def replay(self, metrics_jsonl: pathlib.Path, *, prefix: str = "") -> None:
        """Sends what `metrics_jsonl` has and the store has not: each (key, step) once, whatever happened before."""
        if metrics_jsonl not in self._spools:
            self._spools[metrics_jsonl] = spool.Spool(metrics_jsonl, prefix=prefix)
            self._uncertain.add(metrics_jsonl)
        what = f"metrics of {metrics_jsonl}"
        if all(delivery.what != what for delivery in self._queue):
            send = functools.partial(self._send_points, path=metrics_jsonl)
            self._queue.append(_Delivery(what=what, send=send, pending=self._spools[metrics_jsonl].pending))
        self._flush()

    def log_scores(self, scores: Mapping[str, float], *, status: str, step: int = 0) -> None:
        """Logs scores under `not-yet-verified/`, and without that prefix as well once `status` is `verified` (5.G)."""
        named = {f"{UNVERIFIED_PREFIX}{key}": value for key, value in scores.items()}
        if status == "verified":
            named |= scores
        values = {_key(key): float(value) for key, value in named.items()}
        self._submit("scores", functools.partial(self._send_scores, values=values, step=step))
        self.set_tag("verification", status)

    def set_tag(self, key: str, value: str) -> None:
        """Sets a tag of the run."""
        self._submit(f"tag {key}", lambda client, run_id: client.set_tag(run_id, key, value))

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Sets several tags of the run at once; long values are cut."""

        def send(client: Any, run_id: str) -> None:
            tag = load_mlflow().entities.RunTag
            entries = [tag(_key(key), _text(value)) for key, value in tags.items()]
            for part in _chunks(entries, _PARAMS_PER_CALL):
                client.log_batch(run_id, tags=part)

        self._submit("tags", send)

    def log_dataset(self, *, name: str, digest: str, source: str, context: str = "training") -> None:
        """Records a data set as an input of the run; the full digest is kept in its source and in a tag."""

        def send(client: Any, run_id: str) -> None:
            entities = load_mlflow().entities
            dataset = entities.Dataset(
                name=name,
                digest=digest[:_DIGEST_CHARACTERS],
                source_type="local",
                source=json.dumps({"uri": source, "sha256": digest}),
            )
            tag = entities.InputTag("mlflow.data.context", context)
            client.log_inputs(run_id, [entities.DatasetInput(dataset, [tag])])
            client.set_tag(run_id, _key(f"dataset.{name}.sha256"), digest)

        self._submit(f"data set {name}", send)

    def log_file(self, path: pathlib.Path, *, folder: str | None = None) -> None:
        """Uploads a file under `folder` of the run's artifacts."""
        self._submit(f"file {path}", lambda client, run_id: client.log_artifact(run_id, str(path), folder))

    def log_artifacts(self, path: pathlib.Path, *, folder: str | None = None) -> None:
        """Uploads all files of a folder under `folder` of the run's artifacts."""
        self._submit(f"files of {path}", lambda client, run_id: client.log_artifacts(run_id, str(path), folder))

    def close(self, status: str | None = "FINISHED") -> int:
        """Sends what waits and ends the run.

        Args:
            status: FINISHED, FAILED or KILLED; None leaves the run as it was found: for programs that only add to it.

        Returns:
            How many points, files and other items could not be delivered; one line on standard error names them.
        """
        ending = status or self._found_status or "FINISHED"
        end = _Delivery(what="the end of the run", send=lambda client, run_id: self._end(ending), pending=lambda: 0)
        self._queue.append(end)
        self._flush(is_last=True)
        left = [delivery for delivery in self._queue if delivery.pending()]
        missing = sum(delivery.pending() for delivery in left) + len(self._refused)
        if missing:
            named = ", ".join([delivery.what for delivery in left] + self._refused)
            _say(f"{missing} items were not delivered to {_public(self._uri)}: {named}")
        return missing

    def _end(self, status: str) -> None:
        if status != "RUNNING":
            self._client.set_terminated(self._run_id, status)

    def _submit(self, what: str, send: Callable[[Any, str], None]) -> None:
        self._queue.append(_Delivery(what=what, send=send))
        self._flush()

    def _flush(self, *, is_last: bool = False) -> None:
        """Sends the queue in order until it is empty or the store fails."""
        if not is_last and time.monotonic() < self._retry_at:
            return
        started = time.monotonic()
        try:
            self._connect()
            while self._queue:
                self._deliver(self._queue[0])
                self._queue.popleft()
        except Exception as error:  # K1: whatever a foreign store throws, the job goes on
            now = time.monotonic()
            self._retry_at = now + 10 * (now - started)  # a store that hangs takes at most a tenth of the job's time
            self._warn(error)

    def _deliver(self, delivery: _Delivery) -> None:
        try:
            delivery.send(self._client, self._run_id)
        except FileNotFoundError as error:
            self._refused.append(f"{delivery.what} ({error.strerror})")
        except load_mlflow().exceptions.MlflowException as error:
            if error.error_code not in _REFUSALS:
                raise
            self._refused.append(f"{delivery.what} ({_public(str(error))})")

    def _warn(self, error: Exception) -> None:
        if not self._has_warned:
            self._has_warned = True
            text = f"{type(error).__name__}: {_public(str(error))}"
            _say(f"{_public(self._uri)} does not answer ({text}); metrics are spooled in metrics.jsonl and sent later")

    def _connect(self) -> None:
        if self._client is not None:
            return
        with _database_lock(self._uri):  # K2: a fresh database is initialised by one process at a time
            client = load_mlflow().MlflowClient(self._uri)
            run = self._find_run(client, _experiment_id(client, self._experiment, artifacts=self._artifacts))
        self._run_id, self._start_time = run.info.run_id, run.info.start_time
        self._client = client

    def _find_run(self, client: Any, experiment_id: str) -> Any:
        """The run that `tracking.json` ties to the folder, new if need be; no other run is touched."""
        mine = client.search_runs([experiment_id], f"tags.`{_IDENTITY}` = '{self._identity}'", max_results=1)
        if not mine:
            return client.create_run(experiment_id, run_name=self._run_name, tags={_IDENTITY: self._identity})
        self._found_status = mine[0].info.status
        return mine[0]

    def _send_params(self, client: Any, run_id: str, *, texts: dict[str, str]) -> None:
        known = client.get_run(run_id).data.params
        changed = sorted(key for key, text in texts.items() if known.get(key, text) != text)
        if changed:
            self._refused.append(f"parameters that were logged before with another value: {', '.join(changed)}")
        param = load_mlflow().entities.Param
        fresh = [param(key, text) for key, text in texts.items() if key not in known]
        for part in _chunks(fresh, _PARAMS_PER_CALL):
            client.log_batch(run_id, params=part)

    def _send_points(self, client: Any, run_id: str, *, path: pathlib.Path) -> None:
        metric, source = load_mlflow().entities.Metric, self._spools[path]
        source.read()
        if path in self._uncertain:  # another process, or a call that failed half-way, may have sent some
            keys = {_key(point.key) for point in source.points}
            known = {(key, point.step) for key in keys for point in client.get_metric_history(run_id, key)}
            source.points = [point for point in source.points if (_key(point.key), point.step) not in known]
            self._uncertain.discard(path)
        while source.points:
            part = source.points[:_POINTS_PER_CALL]
            # Time stamps are a function of the step: a store that has the point already recognises it.
            batch = [metric(_key(point.key), point.value, self._start_time + point.step, point.step) for point in part]
            self._uncertain.add(path)
            client.log_batch(run_id, metrics=batch)
            self._uncertain.discard(path)
            del source.points[: len(part)]

    def _send_scores(self, client: Any, run_id: str, *, values: dict[str, float], step: int) -> None:
        latest = client.get_run(run_id).data.metrics
        now, metric = int(time.time() * 1000), load_mlflow().entities.Metric
        fresh = [metric(key, value, now, step) for key, value in values.items() if latest.get(key) != value]
        for part in _chunks(fresh, _POINTS_PER_CALL):
            client.log_batch(run_id, metrics=part)


def _experiment_id(client: Any, name: str, *, artifacts: str | None) -> str:
    found = client.get_experiment_by_name(name)
    if found is not None:
        return found.experiment_id
    try:
        return client.create_experiment(name, artifact_location=artifacts, tags=_EXPERIMENT_TAGS)
    except load_mlflow().exceptions.MlflowException:  # somebody else was quicker
        found = client.get_experiment_by_name(name)
        if found is None:
            raise
        return found.experiment_id


def _identity(folder: pathlib.Path) -> str:
    """What ties a run folder to its run in the store: a random word, written before the run is made."""
    path = folder / "tracking.json"
    try:
        return json.loads(path.read_bytes())["identity"]
    except (OSError, ValueError, KeyError, TypeError):
        identity = uuid.uuid4().hex
        files.write_json(path, {"format_version": 1, "identity": identity})
        return identity


@contextlib.contextmanager
def _database_lock(uri: str) -> Iterator[None]:
    """Holds the lock beside a SQLite file; released by the system if the process dies."""
    if not uri.startswith("sqlite"):
        yield
        return
    path = pathlib.Path(uri.split(":///", 1)[1].split("?")[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + _LOCK_SECONDS
    with path.with_name(f".{path.name}.lock").open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        yield


def _key(name: str) -> str:
    """A legal name of a metric, parameter or tag."""
    legal = re.sub(r"[^A-Za-z0-9_\-. /]", "_", name)
    return posixpath.normpath(legal.replace("..", "__")).strip("/")[:_KEY_CHARACTERS]


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= _VALUE_CHARACTERS else text[: _VALUE_CHARACTERS - 1] + "…"


def _chunks(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _public(text: str) -> str:
    """One short line without the password that a URI may carry."""
    return re.sub(r"//[^/@\s]+@", "//***@", " ".join(text.split()))[:200]


def _say(text: str) -> None:
    sys.stderr.write(f"tracking: {text}\n")
    sys.stderr.flush()
