"""Command lines from frozen dataclasses: presets, flags, JSON, and the digest that identifies a run."""

import contextlib
import dataclasses
import difflib
import enum
import functools
import hashlib
import io
import itertools
import json
import pathlib
import re
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import tyro

from tools.failure import ExitCode, Failure

Config = TypeVar("Config")

# An enum is written as in the JSON: `--model.head=retrieval`.
_MARKERS = (tyro.conf.EnumChoicesFromValues,)
_HELP = ("-h", "--help")
_TYPES = {"INT": "a whole number", "FLOAT": "a number", "PATH": "a path"}


def to_json(value: Any) -> Any:
    """Turns a config into what JSON can hold: dataclasses to objects, enums to values, tuples to lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, pathlib.PurePath):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_json(item) for item in value]
    return value


def from_json(config_type: type[Config], value: Any) -> Config:
    """Rebuilds a config from what `to_json` made of it; absent fields take their defaults.

    Raises:
        TypeError: for a field that `config_type` does not have.
    """
    return _build(config_type, value)


def _build(hint: Any, value: Any) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        unknown = sorted(set(value) - set(hints))
        if unknown:
            raise TypeError(f"{hint.__name__} has no field {unknown[0]!r}")
        return hint(**{name: _build(hints[name], item) for name, item in value.items()})
    if origin in (typing.Union, types.UnionType):
        return None if value is None else _build(next(part for part in arguments if part is not type(None)), value)
    if origin is tuple:
        parts = [arguments[0]] * len(value) if arguments[1:] == (Ellipsis,) else arguments
        return tuple(_build(part, item) for part, item in zip(parts, value, strict=True))
    if origin is not None or hint is Any:
        return value
    return hint(value)


def flat(value: Any) -> dict[str, Any]:
    """A config's fields by dotted name, as JSON values: `{"loop.num_steps": 8}`.

    Items of a list that holds objects have their number as a name; other lists are values.
    """
    return dict(_leaves(to_json(value), ""))


def _leaves(value: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        value = {str(number): item for number, item in enumerate(value)}
    if not isinstance(value, dict):
        yield prefix.removesuffix("."), value
        return
    for name, item in value.items():
        yield from _leaves(item, f"{prefix}{name}.")


def digest(value: Any) -> str:
    """sha256 (hex) of a config's canonical JSON: equal configs, equal digest, whatever the field order."""
    text = json.dumps(to_json(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def parse_preset(
    presets: Mapping[str, Callable[[], Config]],
    argv: list[str],
    *,
    program: str,
    default: str | None = None,
    epilogue: str | None = None,
    noun: str = "preset",
) -> tuple[str, Config]:
    """Parses `PRESET --section.field VALUE ...`.

    Args:
        presets: preset name to a function that returns the complete config; its docstring is the help text.
        argv: the command line without the program's name.
        program: the command shown in the help, such as `bazel run //train:pretrain --`.
        default: the preset meant when the first argument is a flag or absent.
        epilogue: the few flags that most people need, a line each: the end of the short help.
        noun: what people call a preset of this program.

    Returns:
        The preset's name and the config with the flags applied.

    Raises:
        SystemExit: with 0, after help: without a preset the short one, after a preset the flags of that preset.
        Failure: UNKNOWN_PRESET or BAD_FLAG, naming the nearest known word, or the flag that a part of it refuses.
    """
    words = list(argv)
    known = ", ".join(presets)
    if words and words[0] in _HELP:
        sys.stdout.write(_short_help(presets, program=program, default=default, epilogue=epilogue, noun=noun))
        raise SystemExit(0)
    if not words or words[0].startswith("-"):
        if default is None:
            mend = f"give one before all flags, of {known} (`{program} --help` says what they are)"
            raise Failure(ExitCode.UNKNOWN_PRESET, f"the {noun} is missing: {mend}")
        words.insert(0, default)
    if words[0] not in presets:
        near = difflib.get_close_matches(words[0], presets, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise Failure(ExitCode.UNKNOWN_PRESET, f"{noun} {words[0]!r} is not known: {hint}choose one of {known}")
    table = {name: (_summary(make), make()) for name, make in presets.items()}
    parse = functools.partial(tyro.extras.overridable_config_cli, table, args=words, prog=program, config=_MARKERS)
    config = _run_tyro(parse, words, program=program)
    return words[0], config


def parse_flags(config_type: type[Config], argv: list[str], *, program: str) -> Config:
    """Parses the flags of a program that has no presets.

    Raises:
        Failure: BAD_FLAG, naming the flag and the value.
    """
    parse = functools.partial(tyro.cli, config_type, args=list(argv), prog=program, config=_MARKERS)
    return _run_tyro(parse, list(argv), program=program)


def _summary(make: Callable[[], Any]) -> str:
    return (make.__doc__ or "").strip().split("\n")[0]


def _short_help(
    presets: Mapping[str, Callable[[], Any]], *, program: str, default: str | None, epilogue: str | None, noun: str
) -> str:
    """What there is to choose from, in a screen; every flag is in the help of a preset."""
    width = max(len(name) for name in presets) + 2
    lines = [f"  {name:<{width}}{_summary(make)}" for name, make in presets.items()]
    meant = f" ({default} where none is named)" if default else ""
    word = f"[{noun.upper()}]" if default else noun.upper()
    parts = [f"usage: {program} {word} [--FLAG VALUE ...]", "\n".join([f"{noun}s{meant}:", *lines])]
    if epilogue:
        parts.append(textwrap.dedent(epilogue).strip("\n"))
    parts.append(f"All flags of a {noun}, with their values: {program} {default or next(iter(presets))} --help")
    return "\n\n".join(parts) + "\n"


def _run_tyro(call: Callable[..., Any], words: list[str], *, program: str) -> Any:
    """Runs tyro; its boxed, many-line complaint becomes one line (help still prints in full)."""
    if any(word in _HELP for word in words):
        return call()
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint), contextlib.redirect_stdout(complaint):
            return call()
    except SystemExit as stop:
        text = re.sub(r"[\u2500-\u257f]+|\x1b\[[0-9;]*m|-{3,}", " ", complaint.getvalue())
        text = _short_complaint(" ".join(text.split()), words)
        text += "" if text.endswith("?") else ";"
        raise Failure(ExitCode.BAD_FLAG, f"{text} `{program} --help` lists the flags") from stop
    except Failure as failure:
        raise type(failure)(failure.code, _with_flags(failure.message, words)) from failure


def _with_flags(message: str, words: list[str]) -> str:
    """What a part says of its field, `loop.num_steps is 0: ...`, said of the flags that gave the field this value.

    A message of another form, or of a value that no flag gave, stays as it is.
    """
    found = re.match(r"([\w.]+) is (.+?)(?=: )", message)
    if not found:
        return message
    ending, given = found[1].replace("_", "-"), []
    for flag, value in _flags(words):
        if f".{flag[2:]}".endswith(f".{ending}") and _numbers(value) == _numbers(found[2]):
            given.append(f"{flag} {value}")
    return " and ".join(given) + message[found.end() :] if given else message


def _flags(words: list[str]) -> Iterator[tuple[str, str]]:
    """Every flag of a command line, dashes in it, and its value; several words of one with blanks between them."""
    for place, word in enumerate(words):
        if word.startswith("--"):
            flag, mark, value = word.partition("=")
            rest = itertools.takewhile(lambda other: not other.startswith("--"), words[place + 1 :])
            yield flag.replace("_", "-"), value if mark else " ".join(rest)


def _numbers(text: str) -> list[str]:
    """A value's words in one spelling: those of `(1.0, 0)` are those of `1 0.0`."""
    words = text.strip("()").replace(",", " ").split()
    for place, word in enumerate(words):
        with contextlib.suppress(ValueError):
            words[place] = str(float(word))
    return words


def _short_complaint(text: str, words: list[str]) -> str:
    """The flag, its value and the mend, out of tyro's complaint (already on one line)."""
    if found := re.search(r"Unrecognized options: (.*?)(?: Perhaps you meant: (--[\w.-]+)| For full helptext|$)", text):
        unknown = found[1].replace(",", " ").split()
        word = next((word for word in unknown if word.startswith("-")), unknown[0]).split("=")[0]
        what = "flag" if word.startswith("-") else "argument"
        return f"{what} {word} is not known" + (f": did you mean {found[2]}?" if found[2] else "")
    pattern = r"Error parsing (--[\w.-]+): (.*?) Argument helptext: --\S+ (?:([A-Z]+) (?!\3))?"
    if found := re.search(pattern, text):
        mend = f"give {_TYPES[found[3]]}" if found[3] in _TYPES else found[2]
        return f"{found[1]} {_given(found[1], words)} cannot be read: {mend}"
    if found := re.search(r"invalid choice '(.*?)' for argument '(--[\w.-]+)'\. Expected one of \((.*?),?\)\.", text):
        return f"{found[2]} {found[1]} is not known: choose one of {found[3].replace(chr(39), '')}"
    if found := re.search(r"Missing value for argument '(--[\w.-]+)'\. Expected (\d+)", text):
        return f"{found[1]} lacks a value: it takes {found[2]}"
    if found := re.search(r"Value error Error parsing (?:__tyro-dummy-inner__\.)?([\w.-]+): (.*)", text):
        said = found[2].split(" For full helptext")[0].strip()
        told = _with_flags(said, words)
        return told if told != said else f"--{found[1]}: {said}"
    return text.removeprefix("Parsing error").split(" For full helptext")[0].strip()


def _given(flag: str, words: list[str]) -> str:
    """The first word of the value of `flag` on the command line."""
    return next((value.split(" ")[0] for name, value in _flags(words) if name == flag), "")
