"""The only rules that BUILD files here load.

    load("//tools/build_defs:defs.bzl", "package_sources", "py_library", "py_program", "pytest_test")

    package_sources()                        # once in every package: lets the repository's own checks read it

    py_library(                              # one for each module; private unless `visibility` names its readers
        name = "shards",
        srcs = ["shards.py"],
        visibility = ["//train:__pkg__"],
        deps = [":task", "//tools:files", "@pypi//:numpy", "@pypi//:pyarrow"],
    )

    py_program(                              # bazel run //priors:generate -> priors.generate.main()
        name = "generate",
        srcs = ["generate.py"],
        deps = [":shards", "//tools:failure"],
    )

    pytest_test(                             # one for each test file
        name = "shards_test",
        size = "small",
        srcs = ["shards_test.py"],
        deps = [":shards", "@pypi//:numpy", "@pypi//:pytest"],
    )

`deps` are exactly the modules that the sources import, first-party and third-party (`@pypi//:scikit_learn`), sorted;
//tools:layering_test compares. A package's `__init__.py` (committed, empty) is added to every target by these macros:
never list it. Targets are written out by hand, without globs or loops.

A target that needs other people's in-context learners, itself or through its deps, says `peers = True`: it is `manual`,
so that `//...` neither builds nor fetches them, and finds the packages of requirements-peers.lock (`@peers//:tabicl`).

A program is not a target that others can depend on. A test of a program lists the program's file in its own `srcs`
beside the test file, with the program's deps in its own `deps`, and runs it as
`[sys.executable, "-c", "from priors.generate import main; main()", ...]`.
"""

load("@py_rules//:defs.bzl", "py_binary", "py_test", _py_library = "py_library")

# Names the lock's sha256: with it among the inputs, a changed lock runs tests anew.
_ENVIRONMENT = ["@pypi//:environment"]

# What a target with `peers = True` has besides.
_PEERS_ENVIRONMENT = ["@peers//:environment"]
_PEERS_DEPS = ["@peers//:path"]
_PEERS_MAIN = ["import extra_packages_path"]

def _with_init(srcs):
    """Adds the package's `__init__.py`, so that first-party packages are never namespace packages."""
    return srcs + [name for name in native.glob(["__init__.py"], allow_empty = True) if name not in srcs]

def _generated_main(name, text, testonly = False):
    """Writes the script that Bazel starts. Its folder, which Python puts first on the path, holds no module of ours."""
    main = name + ".main.py"
    native.genrule(
        name = name + ".main",
        outs = [main],
        cmd = "printf '%%s\\n' %s > $@" % " ".join(["'%s'" % line for line in text]),
        testonly = testonly,
        visibility = ["//visibility:private"],
    )
    return main

def py_library(name, srcs, deps = [], data = [], visibility = None, testonly = False, peers = False):
    """A module.

    Args:
        name: the module's name.
        srcs: its one file.
        deps: what it imports.
        data: files that it reads.
        visibility: its readers in other packages.
        testonly: whether only tests may depend on it.
        peers: whether it needs @peers.
    """
    _py_library(
        name = name,
        srcs = _with_init(srcs),
        data = data,
        deps = deps,
        testonly = testonly,
        tags = ["manual"] if peers else [],
        visibility = visibility or ["//visibility:private"],
    )

def py_program(name, srcs, deps = [], data = [], args = [], peers = False):
    """A program: calls `main()` of the module PACKAGE.NAME; nothing can depend on it.

    Args:
        name: the module's name.
        srcs: its one file.
        deps: what it imports.
        data: files that it reads.
        args: arguments put before the user's.
        peers: whether it needs @peers.
    """
    main = _generated_main(name, (_PEERS_MAIN if peers else []) + [
        "from %s.%s import main" % (native.package_name().replace("/", "."), name),
        "if __name__ == \"__main__\":",
        "    main()",
    ])
    py_binary(
        name = name,
        srcs = _with_init(srcs) + [main],
        args = args,
        data = data + _ENVIRONMENT + (_PEERS_ENVIRONMENT if peers else []),
        legacy_create_init = 0,
        main = main,
        tags = ["manual"] if peers else [],
        visibility = ["//visibility:private"],
        deps = deps + (_PEERS_DEPS if peers else []),
    )

def pytest_test(
        name,
        srcs,
        deps = [],
        data = [],
        size = "small",
        timeout = None,
        shard_count = None,
        tags = [],
        env = None,
        peers = False,
        flaky = False):
    """A pytest file. It fails when a test fails, and when the file holds no test, sharded or not.

    Args:
        name: the test file's name without `.py`.
        srcs: NAME.py, and if need be the file of a program that it runs.
        deps: what it imports.
        data: files that it reads.
        size: `small` (1 minute), `medium` (5) or `large` (15).
        timeout: another limit than the size's: `short`, `moderate`, `long`.
        shard_count: into how many processes its tests are split.
        tags: `exclusive` runs it alone.
        env: environment variables.
        peers: whether it needs @peers.
        flaky: never; kept for the error below.
    """
    if flaky:
        fail("%s: a flaky test is a broken test" % name)
    test_file = native.package_name() + "/" + name + ".py"
    main = _generated_main(name, (_PEERS_MAIN if peers else []) + [
        "from tools.build_defs.pytest_main import main",
        "if __name__ == \"__main__\":",
        "    main(\"%s\")" % test_file,
    ], testonly = True)
    py_test(
        name = name,
        size = size,
        timeout = timeout,
        srcs = _with_init(srcs) + [main],
        data = data + _ENVIRONMENT + (_PEERS_ENVIRONMENT if peers else []) + ["//:pyproject.toml"],
        env = env,
        legacy_create_init = 0,
        main = main,
        shard_count = shard_count,
        tags = tags + (["manual"] if peers else []),
        visibility = ["//visibility:private"],
        deps = deps + ["//tools/build_defs:pytest_main"] + (_PEERS_DEPS if peers else []),
    )

def package_sources(name = "sources"):
    """Every file of the package, for the tests that check the whole repository.

    Args:
        name: keep the default.
    """
    native.filegroup(
        name = name,
        srcs = native.glob(["**"], exclude = ["**/__pycache__/**"]),
        visibility = ["//tools:__subpackages__"],
    )
