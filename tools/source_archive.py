"""Our own source in one file, for nodes that have no copy of the repository: a zip of always the same bytes."""

import dataclasses
import hashlib
import importlib.util
import io
import pathlib
import zipfile
from collections.abc import Iterator, Sequence

_SUFFIXES = frozenset({".css", ".jinja", ".py"})
_LEFT_OUT = ("_test.py", ".main.py")  # tests, and the scripts that Bazel starts
_FIRST_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can say


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceArchive:
    """Some of our packages.

    Args:
        content: the zip; its paths begin with the packages' names, in ascending order, uncompressed, of one date.
        digest: sha256 (hex) of `content`: equal sources, equal digest.
        paths: what it holds, such as "tools/files.py".
    """

    content: bytes
    digest: str
    paths: tuple[str, ...]

    def uri(self) -> str:
        """Where a Ray cluster keeps it."""
        return f"gcs://veritab-{self.digest}.zip"


def packed(packages: Sequence[str]) -> SourceArchive:
    """Packs the modules and page templates of `packages`, as this process imports them.

    Args:
        packages: top-level names, such as "tools".
    """
    held = io.BytesIO()
    found = sorted(item for package in packages for item in _sources(package))
    with zipfile.ZipFile(held, "w", zipfile.ZIP_STORED) as archive:
        for path, file in found:
            entry = zipfile.ZipInfo(path, date_time=_FIRST_DATE)
            entry.create_system, entry.external_attr = 3, 0o644 << 16  # readable, whatever system packs
            archive.writestr(entry, file.read_bytes())
    content = held.getvalue()
    names = tuple(path for path, _ in found)
    return SourceArchive(content=content, digest=hashlib.sha256(content).hexdigest(), paths=names)


def source_root(packages: Sequence[str]) -> pathlib.Path:
    """The folder in which all of `packages` lie, as this process imports them.

    Raises:
        ValueError: they lie in several.
    """
    roots = {_folder(package).parent for package in packages}
    if len(roots) != 1:
        raise ValueError(f"{', '.join(packages)} lie in several folders: {', '.join(sorted(map(str, roots)))}")
    return roots.pop()


def _folder(package: str) -> pathlib.Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ValueError(f"{package} is no package that can be imported here")
    return pathlib.Path(spec.origin).parent.absolute()


def _sources(package: str) -> Iterator[tuple[str, pathlib.Path]]:
    """Path in the archive, and file."""
    folder = _folder(package)
    for file in folder.rglob("*"):
        inside = file.relative_to(folder.parent)
        hidden = any(part.startswith((".", "__pycache__")) for part in inside.parts)
        if file.suffix in _SUFFIXES and not hidden and not file.name.endswith(_LEFT_OUT) and file.is_file():
            yield inside.as_posix(), file
