"""Runs a program of ours many times in one process of its own, as tests of programs do: starting one takes seconds."""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence

_DRIVER = """
import contextlib, importlib, io, json, sys
program, commands = json.loads(sys.argv[1])
main, results = importlib.import_module(program).main, []
for argv in commands:
    sys.argv[1:] = argv
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as stop:
            status = stop.code
    results.append([status, out.getvalue(), err.getvalue()])
print(json.dumps(results))
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """Exit status of one command line, and what it wrote."""

    status: int
    out: str
    err: str


def run_commands(program: str, commands: Mapping[str, Sequence[object]]) -> dict[str, Result]:
    """Runs every command line of a program, such as `eval.audit`, in order.

    Args:
        program: the module.
        commands: name → words of the command line.

    Raises:
        RuntimeError: what escaped the program, if it was no refusal.
    """
    lines = [[str(word) for word in words] for words in commands.values()]
    command = [sys.executable, "-c", _DRIVER, json.dumps([program, lines])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    results = [Result(status=s, out=out, err=err) for s, out, err in json.loads(done.stdout.splitlines()[-1])]
    return dict(zip(commands, results, strict=True))
