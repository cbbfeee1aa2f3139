"""Makes @py_rules: the Python rules of the Bazel at hand behind one name.

Bazel 4 has them built in; Bazel 9 has them only in rules_python, which MODULE.bazel brings.
"""

_BUILT_IN = """load("@bazel_tools//tools/python:toolchain.bzl", _pair = "py_runtime_pair")

TOOLCHAIN_TYPE = "@bazel_tools//tools/python:toolchain_type"
py_binary = native.py_binary
py_library = native.py_library
py_runtime = native.py_runtime
py_runtime_pair = _pair
py_test = native.py_test
"""

_MODULE = """load("@rules_python//python:py_binary.bzl", _binary = "py_binary")
load("@rules_python//python:py_library.bzl", _library = "py_library")
load("@rules_python//python:py_runtime.bzl", _runtime = "py_runtime")
load("@rules_python//python:py_runtime_pair.bzl", _pair = "py_runtime_pair")
load("@rules_python//python:py_test.bzl", _test = "py_test")

TOOLCHAIN_TYPE = "@rules_python//python:toolchain_type"
py_binary = _binary
py_library = _library
py_runtime = _runtime
py_runtime_pair = _pair
py_test = _test
"""

def _py_rules_impl(ctx):
    ctx.file("BUILD.bazel", "exports_files([\"defs.bzl\"])\n")
    ctx.file("defs.bzl", _BUILT_IN if ctx.attr.source == "built_in" else _MODULE)

py_rules = repository_rule(
    implementation = _py_rules_impl,
    attrs = {"source": attr.string(mandatory = True, values = ["built_in", "rules_python"])},
)
