# What only Bazel itself can show; sourced by .ci/run, from the repository's root.
#
# Most of it runs in a small workspace made of this repository's rules, with a lock of five packages: an environment
# of its own takes seconds there.

fail() {
  echo "$*"
  return 1
}

# --- the repository -------------------------------------------------------------------------------------------------

noop_is_fast() { # B1: nothing changed, so nothing runs, and that within 5 seconds
  local start end log
  start="$(date +%s%N)"
  log="$(tools/bazelw test //... 2>&1)" || { echo "$log" | tail -5; return 1; }
  end="$(date +%s%N)"
  local elapsed=$(((end - start) / 1000000))
  if grep -E '^//.* PASSED in ' <<<"$log" | grep -v '(cached)'; then fail "these tests ran again"; return 1; fi
  [ "$elapsed" -lt 5000 ] || fail "took $elapsed ms"
}

sources_are_all_checked() { # //tools:repository, which the layering and style tests read, holds every source in git
  local expected found
  expected="$(git ls-files '*.py' '*BUILD.bazel' '*.bzl' | sort)"
  found="$(tools/bazelw query 'kind("source file", deps(//tools:repository))' 2>/dev/null |
    sed -n 's|^//:|//|; s|^//||; s|:|/|; p' | sort)"
  local missing
  missing="$(comm -23 <(echo "$expected") <(echo "$found"))"
  [ -z "$missing" ] || fail "not in //tools:repository: $missing"
}

no_version_file() { # Debian's wrapper would obey them
  [ ! -e .bazelversion ] && [ ! -e tools/bazel ]
}

build_files_are_formatted() {
  local folder
  folder="$(mktemp -d)"
  npm install --silent --no-audit --no-fund --prefix "$folder" @bazel/buildifier || return 1
  git ls-files '*BUILD.bazel' '*.bzl' WORKSPACE MODULE.bazel |
    xargs "$folder/node_modules/.bin/buildifier" -mode=check -lint=warn
  local status=$?
  rm -rf "$folder"
  return $status
}

scripts_are_sound() { bash -n tools/bazelw && bash -n .ci/run && bash -n .ci/build_checks.sh; }

# --- the small workspace --------------------------------------------------------------------------------------------

make_small_workspace() {
  small="$(mktemp -d)"
  mkdir -p "$small/work/tools" "$small/work/probe" || return 1
  cp -r WORKSPACE WORKSPACE.bzlmod MODULE.bazel .bazelrc pyproject.toml "$small/work/"
  cp -r tools/build_defs tools/__init__.py tools/bazelw "$small/work/tools/"
  rm -f "$small/work/tools/build_defs/"*_test.py
  cat >"$small/work/tools/build_defs/BUILD.bazel" <<'BUILD'
load("//tools/build_defs:defs.bzl", "py_library")
py_library(name = "pytest_main", testonly = True, srcs = ["pytest_main.py"], visibility = ["//visibility:public"], deps = ["@pypi//:pytest"])
BUILD
  grep -E '^(iniconfig|packaging|pluggy|pygments|pytest)==' -i requirements.lock | tee "$small/work/requirements-cuda.lock" \
    >"$small/work/requirements.lock"
  echo 'exports_files(["pyproject.toml", "requirements.lock", "requirements-cuda.lock"])' >"$small/work/BUILD.bazel"
  cd "$small/work/probe" || return 1
  touch __init__.py
  echo 'VALUE = 1' | tee declared.py >undeclared.py
  echo 'def main() -> None: print("ran", VALUE)' | cat <(echo 'from probe.declared import VALUE') - >program.py
  printf 'from probe.declared import VALUE\ndef test_value() -> None: assert VALUE == 1\n' >good_test.py
  printf 'from probe.undeclared import VALUE\ndef test_value() -> None: assert VALUE == 1\n' >undeclared_test.py
  printf 'def test_a() -> None: pass\ndef test_b() -> None: assert False\n' | tee failing_test.py >failing_sharded_test.py
  printf 'def check() -> None: pass\n' | tee empty_test.py >empty_sharded_test.py
  cat >home_test.py <<'PYTHON'
import pathlib
import pytest
def test_home_is_read_only() -> None:
    with pytest.raises(OSError):
        (pathlib.Path.home() / "written-by-a-test").touch()
PYTHON
  cat >BUILD.bazel <<'BUILD'
load("//tools/build_defs:defs.bzl", "py_library", "py_program", "pytest_test")
py_library(name = "declared", srcs = ["declared.py"])
py_library(name = "undeclared", srcs = ["undeclared.py"])
py_program(name = "program", srcs = ["program.py"], deps = [":declared"])
pytest_test(name = "good_test", srcs = ["good_test.py"], deps = [":declared"])
pytest_test(name = "undeclared_test", srcs = ["undeclared_test.py"], deps = [":declared"])
pytest_test(name = "failing_test", srcs = ["failing_test.py"])
pytest_test(name = "failing_sharded_test", srcs = ["failing_sharded_test.py"], shard_count = 2)
pytest_test(name = "empty_test", srcs = ["empty_test.py"])
pytest_test(name = "empty_sharded_test", srcs = ["empty_sharded_test.py"], shard_count = 2)
pytest_test(name = "home_test", srcs = ["home_test.py"])
BUILD
}

small_bazel() { # small_bazel COMMAND ARGUMENT...: Bazel in the small workspace, with an output base of its own
  (cd "$small/work" && tools/bazelw --output_base="$small/out" "$@" 2>&1)
}

tests_end_as_they_must() { # one run of all; each must have the expected end
  local log name expected
  log="$(small_bazel test --keep_going --test_output=errors //probe/...)"
  for name in good:PASSED home:PASSED undeclared:FAILED failing:FAILED failing_sharded:FAILED empty:FAILED empty_sharded:FAILED; do
    expected="${name#*:}"
    grep -qE "^//probe:${name%:*}_test .*$expected" <<<"$log" || { echo "$log"; fail "${name%:*} did not end $expected"; return 1; }
  done
  grep -q "No module named 'probe.undeclared'" <<<"$log" || fail "the undeclared import failed for another reason"
}

a_program_runs() {
  local log
  log="$(small_bazel run //probe:program)"
  grep -q '^ran 1$' <<<"$log" || { echo "$log"; fail "it did not print"; }
}

a_lock_change_runs_tests_again() { # B1
  local log
  log="$(small_bazel test //probe:good_test)"
  grep -q 'good_test .*(cached) PASSED' <<<"$log" || { echo "$log"; fail "it ran again without a change"; return 1; }
  echo '# changed' | tee -a "$small/work/requirements-cuda.lock" >>"$small/work/requirements.lock"
  log="$(small_bazel test //probe:good_test)"
  grep -qE 'good_test +PASSED in' <<<"$log" || { echo "$log"; fail "its old result was kept"; }
}

refuses() { # refuses TEXT ASSIGNMENT...: with these environment variables the environment is refused, saying TEXT
  local text="$1"
  shift
  local log
  log="$(env "$@" bash -c 'cd "$0/work" && tools/bazelw --output_base="$0/out" build //probe:good_test' "$small" 2>&1)" &&
    { fail "it built"; return 1; }
  grep -qF "$text" <<<"$log" || { echo "$log"; fail "it did not say: $text"; }
}

bazel_on_this_machine() { # what tools/bazelw runs
  command -v bazel || command -v bazelisk || echo "${XDG_CACHE_HOME:-$HOME/.cache}/veritab/bazelisk/node_modules/.bin/bazelisk"
}

another_python_is_named() {
  printf '#!/bin/sh\necho 3.9\n' >"$small/python3.9"
  chmod +x "$small/python3.9"
  # tools/bazelw would refuse it first: ask Bazel itself.
  local log bazel
  bazel="$(bazel_on_this_machine)"
  log="$(cd "$small/work" &&
    VERITAB_PYTHON="$small/python3.9" "$bazel" --output_base="$small/out" build //probe:good_test 2>&1)" &&
    { fail "it built"; return 1; }
  grep -qF "Python 3.11 or 3.12 is needed ($small/python3.9 is 3.9)" <<<"$log" || { echo "$log"; fail "it did not name it"; }
}

unknown_cpu_wheel() { # puts a torch that no source has into the CPU lock of the small workspace
  grep -q '^torch' "$small/work/requirements.lock" ||
    echo "$(grep -o '^torch==[^ ]*' requirements.lock) --hash=sha256:$(printf '0%.0s' {1..64})" >>"$small/work/requirements.lock"
}

without_a_cpu_wheel_the_cuda_lock_is_taken() {
  unknown_cpu_wheel
  local log
  log="$(small_bazel test //probe:good_test)" || { echo "$log"; return 1; }
  grep -q 'pip finds no CPU wheel of torch' <<<"$log" || fail "it did not say so"
}

no_cpu_wheel_is_refused_when_asked_for() {
  unknown_cpu_wheel
  refuses "VERITAB_TORCH is cpu, but pip finds no CPU wheel of torch" VERITAB_TORCH=cpu
}

run_build_checks() {
  check "no .bazelversion and no tools/bazel" no_version_file
  check "scripts parse" scripts_are_sound
  check "BUILD files are formatted and lint free (buildifier)" build_files_are_formatted
  check "every source is read by the layering and style tests" sources_are_all_checked
  check "B1: a re-run without a change takes less than 5 s" noop_is_fast
  local root="$PWD"
  make_small_workspace
  cd "$root" || return 1
  check "B1: undeclared imports, failing and empty tests fail, sharded or not; HOME is read-only" tests_end_as_they_must
  check "a program runs" a_program_runs
  check "B1: a lock change runs tests again" a_lock_change_runs_tests_again
  check "an unknown variant of torch is refused" refuses "VERITAB_TORCH is 'gpu'" VERITAB_TORCH=gpu
  check "another Python is refused by name" another_python_is_named
  check "without a CPU wheel of torch the CUDA lock is taken" without_a_cpu_wheel_the_cuda_lock_is_taken
  check "a CPU wheel that is asked for and absent is refused" no_cpu_wheel_is_refused_when_asked_for
  small_bazel shutdown >/dev/null
  chmod -R u+w "$small" && rm -rf "$small"
}
