"""Repositories that Bazel 4 would download for itself, written here in full so that nothing is downloaded.

Bazel 4's own build files load C++, Java and proto rules from them, although the rules are built in. Bazel 7 and later
bring these as modules and never see this file.
"""

_RULES = {
    "rules_cc": {
        "cc": [
            "cc_binary",
            "cc_import",
            "cc_library",
            "cc_proto_library",
            "cc_test",
            "cc_toolchain",
            "cc_toolchain_suite",
            "fdo_prefetch_hints",
            "fdo_profile",
            "objc_import",
            "objc_library",
        ],
    },
    "rules_java": {
        "java": [
            "java_binary",
            "java_import",
            "java_library",
            "java_package_configuration",
            "java_plugin",
            "java_runtime",
            "java_test",
            "java_toolchain",
        ],
    },
    "rules_proto": {"proto": ["proto_lang_toolchain", "proto_library"]},
}

# Names that Bazel's files load but that nothing here calls.
_ABSENT = {"rules_cc": ["cc_flags_supplier", "compiler_flag"]}

_CONSTRAINTS = {
    "cpu": [
        "aarch64",
        "all",
        "arm",
        "arm64_32",
        "arm64e",
        "armv6-m",
        "armv7",
        "armv7-m",
        "armv7e-m",
        "armv7e-mf",
        "armv7k",
        "armv8-m",
        "i386",
        "mips64",
        "ppc",
        "riscv64",
        "s390x",
        "wasm32",
        "wasm64",
        "x86_32",
        "x86_64",
    ],
    "os": [
        "android",
        "emscripten",
        "freebsd",
        "fuchsia",
        "ios",
        "linux",
        "netbsd",
        "nixos",
        "none",
        "openbsd",
        "osx",
        "qnx",
        "tvos",
        "wasi",
        "watchos",
        "windows",
    ],
}

def _stub_repository_impl(ctx):
    ctx.file("WORKSPACE", "workspace(name = \"%s\")\n" % ctx.name)
    ctx.file("BUILD.bazel", "")
    for path, content in ctx.attr.files.items():
        ctx.file(path, content)

_stub_repository = repository_rule(
    implementation = _stub_repository_impl,
    attrs = {"files": attr.string_dict(doc = "Path to content.")},
)

def _reexports(repository, names):
    lines = ["%s = native.%s" % (name, name) for name in names]
    lines += ["%s = None" % name for name in _ABSENT.get(repository, [])]
    return "\n".join(lines) + "\n"

def _constraints(setting, values):
    lines = ["package(default_visibility = [\"//visibility:public\"])", "constraint_setting(name = \"%s\")" % setting]
    lines += ["constraint_value(name = \"%s\", constraint_setting = \":%s\")" % (value, setting) for value in values]
    return "\n".join(lines) + "\n"

def stub_repositories():
    """Declares rules_cc, rules_java, rules_proto, platforms and remote_coverage_tools."""
    for repository, folders in _RULES.items():
        files = {}
        for folder, names in folders.items():
            files[folder + "/BUILD.bazel"] = ""
            files[folder + "/defs.bzl"] = _reexports(repository, names)
        _stub_repository(name = repository, files = files)
    _stub_repository(
        name = "platforms",
        files = {
            setting + "/BUILD.bazel": _constraints(setting, values)
            for setting, values in _CONSTRAINTS.items()
        },
    )
    _stub_repository(
        name = "remote_coverage_tools",
        files = {
            "BUILD.bazel": """filegroup(
    name = "coverage_report_generator",
    srcs = ["report.sh"],
    visibility = ["//visibility:public"],
)
""",
            "report.sh": "#!/bin/sh\n",
        },
    )
