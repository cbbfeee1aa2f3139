"""Tests of tools/bazelw: what it runs, and what it installs on a machine that lacks it, told from stand-in commands."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

_FROM_THE_SYSTEM = ("bash", "cat", "chmod", "dirname", "env", "mkdir", "rm")
# Stand-ins: each notes its call; package managers then bring what they would install.
_BAZEL = '#!/bin/bash\necho "$(basename "$0") in $PWD: $*"\n'
_APT = """#!/bin/bash
echo "apt-get $*" >>"$NOTES"
case "$*" in
  *bazel-bootstrap*) cp "$BIN/bazel.new" "$BIN/bazel" ;;
  *python3-venv*) cp "$BIN/python.new" "$BIN/python3" ;;
esac
"""
_NPM = """#!/bin/bash
echo "npm $*" >>"$NOTES"
folder="${*: -2:1}"
mkdir -p "$folder/node_modules/.bin"
cp "$BIN/bazel.new" "$folder/node_modules/.bin/bazelisk"
"""


class _Machine:
    """A folder of commands that stands for a whole machine."""

    def __init__(self, folder: pathlib.Path, *, root: bool) -> None:
        self.bin, self.home, self.notes = folder / "bin", folder / "home", folder / "notes"
        self.clone = folder / "clone"
        for path in (self.bin, self.home, self.clone / "tools", self.clone / "train"):
            path.mkdir(parents=True)
        shutil.copy("tools/bazelw", self.clone / "tools" / "bazelw")
        self.notes.touch()
        for name in (*_FROM_THE_SYSTEM, "basename", "cp"):
            (self.bin / name).symlink_to(shutil.which(name) or name)
        self.add("id", f"#!/bin/bash\necho {0 if root else 1000}\n")
        self.add("bazel.new", _BAZEL)
        self.add("python.new", f'#!/bin/bash\nexec {sys.executable} "$@"\n')

    def add(self, name: str, script: str) -> None:
        """Puts a command on the path."""
        (self.bin / name).write_text(script)
        (self.bin / name).chmod(0o755)

    def run(self, *arguments: str, cwd: str = "clone") -> subprocess.CompletedProcess[str]:
        """Runs the wrapper; the notes tell which package managers it called."""
        environment = {"PATH": str(self.bin), "HOME": str(self.home), "BIN": str(self.bin), "NOTES": str(self.notes)}
        command = [str(self.bin / "bash"), str(self.clone / "tools" / "bazelw"), *arguments]
        folder = self.clone.parent / cwd
        return subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, text=True, timeout=60, check=False
        )


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> _Machine:
    """A user's machine with a supported Python and no Bazel."""
    made = _Machine(tmp_path, root=False)
    made.add("python3", f'#!/bin/bash\nexec {sys.executable} "$@"\n')
    return made


@pytest.mark.parametrize(("present", "used"), [(["bazel"], "bazel"), (["bazelisk"], "bazelisk")])
def test_the_bazel_on_the_path_is_used(machine: _Machine, present: list[str], used: str) -> None:
    for name in present:
        machine.add(name, _BAZEL)
    done = machine.run("test", "//...")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{used} in {machine.clone}: test //...\n"


def test_from_elsewhere_it_runs_in_the_clone_and_inside_where_the_user_stands(machine: _Machine) -> None:
    machine.add("bazel", _BAZEL)
    assert f"in {machine.clone}:" in machine.run("info", cwd="home").stdout
    assert f"in {machine.clone / 'train'}:" in machine.run("info", cwd="clone/train").stdout


def test_as_root_debians_bazel_is_installed_and_said_so(tmp_path: pathlib.Path) -> None:
    machine = _Machine(tmp_path, root=True)
    machine.add("python3", f'#!/bin/bash\nexec {sys.executable} "$@"\n')
    machine.add("apt-get", _APT)
    machine.add("npm", _NPM)
    done = machine.run("test", "//...")
    assert done.stdout == f"bazel in {machine.clone}: test //...\n"
    assert "tools/bazelw: installing bazel-bootstrap (apt-get)" in done.stderr
    assert "npm" not in machine.notes.read_text()


def test_without_root_bazelisk_is_installed_once_and_said_so(machine: _Machine) -> None:
    machine.add("apt-get", _APT)
    machine.add("npm", _NPM)
    done = machine.run("test", "//...")
    assert done.stdout == f"bazelisk in {machine.clone}: test //...\n"
    assert "tools/bazelw: installing @bazel/bazelisk" in done.stderr
    assert "apt-get" not in machine.notes.read_text()
    assert machine.run("info").stderr == ""


def test_as_root_a_missing_python_is_installed(tmp_path: pathlib.Path) -> None:
    machine = _Machine(tmp_path, root=True)
    machine.add("apt-get", _APT)
    done = machine.run("info")
    assert done.stdout == f"bazel in {machine.clone}: info\n"
    assert "tools/bazelw: installing python3 python3-venv (apt-get)" in done.stderr


@pytest.mark.parametrize("root", [False, True])
def test_what_cannot_be_installed_is_named_in_one_line(tmp_path: pathlib.Path, root: bool) -> None:
    machine = _Machine(tmp_path, root=root)
    machine.add("python3", "#!/bin/bash\nexit 1\n")
    done = machine.run("info")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "Python 3.11 or 3.12 with venv is needed: install it" in done.stderr
    machine.add("python3", f'#!/bin/bash\nexec {sys.executable} "$@"\n')
    done = machine.run("info")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "no Bazel: install bazel-bootstrap" in done.stderr


def test_the_wrapper_can_be_executed() -> None:
    assert os.access("tools/bazelw", os.X_OK)
