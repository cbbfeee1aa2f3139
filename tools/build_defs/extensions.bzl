"""The module extension of MODULE.bazel (Bazel 7 and later)."""

load(":repositories.bzl", "declare_repositories")

def _repositories_impl(_module_ctx):
    declare_repositories(py_rules_source = "rules_python")

repositories = module_extension(implementation = _repositories_impl)
