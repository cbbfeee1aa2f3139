"""The repository's layering: imports equal declared deps, forbidden paths are empty, programs are leaves."""

import importlib.metadata
import pathlib

import pytest

from tools import build_files, layering
from tools.layering import Repository

_DISTRIBUTIONS = {name: [name] for name in ("mlflow", "numpy", "pytest", "ray", "torch")}


def _repository(**changes: str) -> Repository:
    """A small repository without violations, with some files changed; `__` in a name stands for `/`."""
    sources = {
        "model__net": "import torch\nfrom tools import files",
        "priors__task": "import numpy",
        "priors__generate": "from priors.task import Task\ndef main(): pass",
        "priors__task_test": "import pytest\nfrom priors import task",
        "tools__files": "import json",
        "train__loop": "from model.net import Net",
        "train__workers": "import ray\nfrom train import loop",
    }
    builds = {
        "model": "py_library(name='net', srcs=['net.py'], deps=['//tools:files', '@pypi//:torch'])",
        "priors": "py_library(name='task', srcs=['task.py'], deps=['@pypi//:numpy'])\n"
        "py_program(name='generate', srcs=['generate.py'], deps=[':task'])\n"
        "pytest_test(name='task_test', srcs=['task_test.py'], deps=[':task', '@pypi//:pytest'])",
        "tools": "py_library(name='files', srcs=['files.py'])",
        "train": "py_library(name='loop', srcs=['loop.py'], deps=['//model:net'])\n"
        "py_library(name='workers', srcs=['workers.py'], deps=[':loop', '@pypi//:ray'])",
    }
    builds |= {name: text for name, text in changes.items() if "__" not in name}
    sources |= {name: text for name, text in changes.items() if "__" in name}
    targets = [target for package, text in builds.items() for target in build_files.read_targets(text, package=package)]
    files = {name.replace("__", "/") + ".py": text for name, text in sources.items()}
    return Repository(targets=tuple(targets), sources=files)


def _violations(**changes: str) -> list[str]:
    return list(layering.violations(_repository(**changes), distributions=_DISTRIBUTIONS))


def test_the_repository_has_no_violation() -> None:
    distributions = importlib.metadata.packages_distributions()
    repository = Repository.read(pathlib.Path.cwd())
    assert len(repository.targets) > 50
    assert list(layering.violations(repository, distributions=distributions)) == []


def test_the_small_repository_has_no_violation() -> None:
    assert _violations() == []


@pytest.mark.parametrize(
    ("changes", "violation"),
    [
        ({"tools__files": "import numpy"}, "//tools:files imports @pypi//:numpy without declaring it"),
        ({"train__loop": "from priors.task import x"}, "//train:loop imports //priors:task without declaring it"),
        ({"train__loop": ""}, "//train:loop declares //model:net without importing it"),
        ({"model__net": "from tools import files"}, "//model:net declares @pypi//:torch without importing it"),
        ({"tools__files": "import xgboost"}, "//tools:files imports xgboost, which the locks do not bring"),
        ({"tools__more": ""}, "tools/more.py belongs to no target"),
        (
            {"tools": "py_library(name='files', srcs=['files.py', 'more.py'])", "tools__more": ""},
            "//tools:files has the sources ['tools/files.py', 'tools/more.py']: its own is files.py alone",
        ),
        (
            {"tools": "py_library(name='a', srcs=['files.py'])\npy_library(name='files', srcs=['files.py'])"},
            "tools/files.py is in //tools:a and in //tools:files: one file, one target",
        ),
        (
            {"tools": "py_library(name='gone', srcs=['gone.py'])"},
            "//tools:gone lists tools/gone.py, which does not exist",
        ),
        (
            {
                "train": "py_library(name='loop', srcs=['loop.py'], deps=['//model:net', '//priors:generate'])",
                "train__loop": "import model.net, priors.generate",
            },
            "//train:loop depends on //priors:generate, which is no library",
        ),
        (
            {
                "priors": "py_library(name='task', srcs=['task.py'], deps=['//model:net'])",
                "priors__task": "import model.net",
            },
            "//priors:task imports //model:net: priors may not read model",
        ),
        (
            {
                "reports": "py_library(name='page', srcs=['page.py'], deps=['//eval:scores'])",
                "reports__page": "import eval.scores",
                "eval": "py_library(name='scores', srcs=['scores.py'])",
                "eval__scores": "",
            },
            "//reports:page imports //eval:scores: reports may read //eval:results alone",
        ),
        (
            {
                "priors": "py_library(name='task', srcs=['task.py'], deps=[':draws'])\n"
                "py_library(name='draws', srcs=['draws.py'], deps=['@pypi//:torch'])",
                "priors__task": "import priors.draws",
                "priors__draws": "import torch",
            },
            "//priors:task reaches torch through //priors:draws",
        ),
        (
            {"train__loop": "import ray\nimport model.net"},
            "train/loop.py imports ray: only priors/workers.py, tools/ray_connection.py, train/submit.py, "
            "train/workers.py may",
        ),
        ({"tools__files": "def f():\n    import mlflow"}, "tools/files.py imports mlflow: only tools/tracking.py may"),
        (
            {
                "train": "py_library(name='loop', srcs=['loop.py'], deps=['//model:net', '@peers//:tabicl'])",
                "train__loop": "import tabicl\nfrom model import net",
            },
            "//train:loop reaches @peers: it must say peers = True",
        ),
        (
            {
                "train": "py_library(name='loop', srcs=['loop.py'], deps=['//model:net'], peers=True)",
            },
            "//train:loop says peers = True and reaches none of @peers",
        ),
        (
            {
                "model": "py_library(name='net', srcs=['net.py'], deps=['//tools:files', '@peers//:tabpfn'],"
                "peers=True)",
                "model__net": "import tabpfn\nfrom tools import files",
            },
            "//model:net reaches @peers: only tests and libraries of eval may",
        ),
        ({"tools__files": "import tabpfn"}, "//tools:files imports @peers//:tabpfn without declaring it"),
    ],
)
def test_each_kind_of_violation_is_found(changes: dict[str, str], violation: str) -> None:
    assert violation in _violations(**changes)


def test_a_test_may_list_the_file_of_a_program_and_run_it() -> None:
    test = "pytest_test(name='run_test', srcs=['run_test.py', 'generate.py'], deps=['//priors:task'])"
    build = "\n".join([test, "py_program(name='generate', srcs=['generate.py'], deps=[':task'])"])
    library = "py_library(name='task', srcs=['task.py'], deps=['@pypi//:numpy'])"
    own_test = "pytest_test(name='task_test', srcs=['task_test.py'], deps=[':task', '@pypi//:pytest'])"
    changes = {
        "priors": "\n".join([build, library, own_test]),
        "priors__run_test": "COMMAND = ['-c', 'from priors.generate import main; main()']",
    }
    assert _violations(**changes) == []
    assert _violations(**changes, priors__task="import numpy, priors.generate") != []


def test_a_test_and_a_library_of_eval_may_read_peers() -> None:
    changes = {
        "eval": "py_library(name='peers', srcs=['peers.py'], deps=['@peers//:evoforest_tab'], peers=True)\n"
        "pytest_test(name='peers_test', srcs=['peers_test.py'], deps=[':peers'], peers=True)",
        "eval__peers": "import evoforest_tab",
        "eval__peers_test": "from eval import peers",
    }
    assert _violations(**changes) == []
