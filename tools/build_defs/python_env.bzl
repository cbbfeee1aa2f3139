"""Makes @pypi: one virtual environment, installed from a lock with hashes, and a target for each package in it.

The environment stays out of every target's runfiles: the Python toolchain points at its interpreter, and targets
depend on `@pypi//:environment`, a small file that names the lock's sha256, so that a changed lock re-runs tests.

Environment variables:
    VERITAB_PYTHON: the Python to use; else the first of python3.11, python3.12, python3 that is supported.
    VERITAB_TORCH: `cpu` or `cuda`; else `cuda` where an NVIDIA driver is loaded, or where pip finds no CPU wheel.

And @peers: packages of a second lock in a folder beside that environment, for the targets with `peers = True` alone.
"""

_SUPPORTED = ["3.11", "3.12"]
_INSTALL_SECONDS = 3600

_BUILD = """load("@py_rules//:defs.bzl", "TOOLCHAIN_TYPE", "py_library", "py_runtime", "py_runtime_pair")

package(default_visibility = ["//visibility:public"])

exports_files(["environment"])

py_runtime(
    name = "interpreter",
    interpreter_path = "{python}",
    python_version = "PY3",
    stub_shebang = "#!/usr/bin/env python3",
)

py_runtime_pair(
    name = "runtimes",
    py3_runtime = ":interpreter",
)

toolchain(
    name = "toolchain",
    toolchain = ":runtimes",
    toolchain_type = TOOLCHAIN_TYPE,
)

[py_library(name = name) for name in {names}]
"""

# `path` is imported by the generated mains of targets with `peers = True`, before anything else.
_EXTRA_BUILD = """load("@py_rules//:defs.bzl", "py_library")

package(default_visibility = ["//visibility:public"])

exports_files(["environment"])

py_library(
    name = "path",
    srcs = ["extra_packages_path.py"],
    imports = ["."],
)

[py_library(name = name) for name in {names}]
"""

_EXTRA_PATH = """import sys

sys.path.append("{folder}")  # last: nothing of @pypi is shadowed
"""

def _find_python(ctx):
    """The path and the version of a supported Python."""
    asked = ctx.os.environ.get("VERITAB_PYTHON")
    found = []
    for name in [asked] if asked else ["python" + version for version in _SUPPORTED] + ["python3"]:
        path = ctx.which(name) if "/" not in name else ctx.path(name)
        if path:
            # A launcher of several Pythons can be on PATH without the version that it is named after.
            result = ctx.execute([path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"])
            version = result.stdout.strip()
            if result.return_code == 0 and version in _SUPPORTED:
                return path, version
            found.append("%s is %s" % (path, version or "not runnable"))
    fail("Python %s is needed (%s): install it, or name one in VERITAB_PYTHON" % (
        " or ".join(_SUPPORTED),
        "; ".join(found) if found else "found none on PATH",
    ))

def _pip(ctx, python, words, mend):
    command = [python, "-m", "pip", "--disable-pip-version-check", "--quiet"] + words
    result = ctx.execute(command, timeout = _INSTALL_SECONDS)
    if result.return_code != 0:
        fail("pip failed: %s\n%s" % (mend, result.stderr))
    return result.stdout

def _pins(text):
    """The lines of a lock that pin a package, by package."""
    return {line.split("==")[0]: line for line in text.split("\n") if "==" in line}

def _has_driver(ctx):
    return ctx.path("/proc/driver/nvidia/version").exists or ctx.which("nvidia-smi") != None

def _finds_cpu_wheel(ctx, python, pin):
    """Whether the wheel of torch that pip would take here is one of the CPU lock's."""
    asked = pin.split(" ")[0]
    words = ["install", "--dry-run", "--no-deps", "--ignore-installed", "--only-binary", ":all:", "--report", "-", asked]
    report = _pip(ctx, python, words, "no source of packages offers " + asked)
    hashes = [word[len("--hash=sha256:"):] for word in pin.split(" ") if word.startswith("--hash=")]
    return any([digest in report for digest in hashes])

def _choose_variant(ctx, python, cpu_pins):
    asked = ctx.os.environ.get("VERITAB_TORCH", "")
    if asked not in ["", "cpu", "cuda"]:
        fail("VERITAB_TORCH is '%s': set it to cpu or cuda, or leave it unset" % asked)
    if asked == "cuda" or (not asked and _has_driver(ctx)):
        return "cuda"
    if "torch" not in cpu_pins or _finds_cpu_wheel(ctx, python, cpu_pins["torch"]):
        return "cpu"
    missing = "pip finds no CPU wheel of torch that %s knows" % ctx.attr.cpu_lock
    if asked:
        fail("VERITAB_TORCH is cpu, but %s: give pip a source of CPU wheels, or set VERITAB_TORCH to cuda" % missing)
    print("%s; installing the CUDA build (3 GB)" % missing)  # buildifier: disable=print
    return "cuda"

def _sha256(ctx, python, lock):
    program = "import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], 'rb').read()).hexdigest())"
    return ctx.execute([python, "-c", program, ctx.path(lock)]).stdout.strip()

def _target_names(pins):
    return sorted([name.lower().replace("-", "_").replace(".", "_") for name in pins])

def _python_env_impl(ctx):
    base, version = _find_python(ctx)
    ctx.report_progress("Creating a virtual environment")
    result = ctx.execute([base, "-m", "venv", "venv"])
    if result.return_code != 0:
        fail("%s cannot make a virtual environment (Debian: apt-get install python3-venv)\n%s" % (base, result.stdout))
    python = ctx.path("venv/bin/python")
    variant = _choose_variant(ctx, python, _pins(ctx.read(ctx.attr.cpu_lock)))
    lock = ctx.attr.cuda_lock if variant == "cuda" else ctx.attr.cpu_lock
    pins = _pins(ctx.read(lock))
    ctx.report_progress("Installing %d packages (%s build of torch), a minute or more" % (len(pins), variant))
    words = ["install", "--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", ctx.path(lock)]
    _pip(ctx, python, words, "%s could not be installed for Python %s" % (lock, version))
    if "torch" in pins:
        result = ctx.execute([python, "-c", "import torch"])
        if result.return_code != 0:
            fail("torch (%s build) does not import: try VERITAB_TORCH=cpu or cuda\n%s" % (variant, result.stderr))
    ctx.file("environment", "python %s\ntorch %s\nlock %s\n" % (version, variant, _sha256(ctx, python, lock)))
    ctx.file("BUILD.bazel", _BUILD.format(python = python, names = _target_names(pins)))

python_env = repository_rule(
    implementation = _python_env_impl,
    attrs = {
        "cpu_lock": attr.label(mandatory = True, allow_single_file = True),
        "cuda_lock": attr.label(mandatory = True, allow_single_file = True),
    },
    environ = ["VERITAB_PYTHON", "VERITAB_TORCH"],
)

def _extra_packages_impl(ctx):
    base = ctx.path(ctx.attr.base)
    python = base.dirname.get_child("venv").get_child("bin").get_child("python")
    lock, folder = ctx.attr.lock, ctx.path("packages")
    pins = _pins(ctx.read(lock))
    ctx.report_progress("Installing %d packages" % len(pins))
    words = ["install", "--require-hashes", "--no-deps", "--only-binary", ":all:", "--target", folder, "-r", ctx.path(lock)]
    _pip(ctx, python, words, "%s could not be installed" % lock)
    ctx.file("environment", "%slock %s\n" % (ctx.read(base), _sha256(ctx, python, lock)))
    ctx.file("extra_packages_path.py", _EXTRA_PATH.format(folder = folder))
    ctx.file("BUILD.bazel", _EXTRA_BUILD.format(names = _target_names(pins)))

extra_packages = repository_rule(
    implementation = _extra_packages_impl,
    attrs = {
        "base": attr.label(
            mandatory = True,
            allow_single_file = True,
            doc = "The `environment` file of the python_env whose Python runs the packages.",
        ),
        "lock": attr.label(mandatory = True, allow_single_file = True),
    },
)
