"""The repositories that WORKSPACE and MODULE.bazel both declare: @py_rules, @pypi and @peers."""

load(":py_rules.bzl", "py_rules")
load(":python_env.bzl", "extra_packages", "python_env")

def declare_repositories(py_rules_source):
    """Declares @py_rules, @pypi, and @peers, which is fetched only for targets with `peers = True`.

    Args:
        py_rules_source: `built_in` (WORKSPACE, Bazel 4) or `rules_python` (MODULE.bazel, Bazel 7 and later).
    """
    py_rules(name = "py_rules", source = py_rules_source)
    python_env(
        name = "pypi",
        cpu_lock = Label("//:requirements.lock"),
        cuda_lock = Label("//:requirements-cuda.lock"),
    )
    extra_packages(
        name = "peers",
        base = Label("@pypi//:environment"),
        lock = Label("//:requirements-peers.lock"),
    )
