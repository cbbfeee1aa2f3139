"""The training step of another package's network, timed on request.

    bazel run //eval:peer_step -- tabicl

A line {"sizes": {…}, "rows", "features", "batch", "steps", "threads", "dtype"} on standard input is answered by
{"seconds", "parameters"} or {"error"}, until the input ends; `//tools:bench -- train` asks it so. The network is
TabICL's own, in training mode; its loss is the cross-entropy of its logits, and its optimizer torch's fused AdamW,
which costs less than the Muon that it was pretrained with.
"""

import contextlib
import functools
import json
import sys
import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tools.failure import ExitCode, Failure, run_program


def main() -> None:
    """Runs the program."""
    run_program(_main)


def _main(argv: list[str]) -> None:
    if argv != ["tabicl"]:
        raise Failure(ExitCode.BAD_FLAG, f"{' '.join(argv) or 'no package'} is not known: give tabicl")
    answers = sys.stdout
    answers.write(json.dumps({"ready": True}) + "\n")
    answers.flush()
    for line in sys.stdin:
        try:
            with contextlib.redirect_stdout(sys.stderr):  # nothing that they print is taken for an answer
                answer = _answer(json.loads(line))
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            answer = {"error": f"the request cannot be answered ({error})"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    torch.set_num_threads(int(request["threads"]))
    model, optimizer = _made(json.dumps(request["sizes"], sort_keys=True), request["dtype"])
    x, y, cut = *_tables(request), request["rows"] // 2
    start = time.perf_counter()
    for _ in range(int(request["steps"])):
        with torch.autocast("cpu", torch.bfloat16, enabled=request["dtype"] == "bfloat16"):
            logits = model(x, y[:, :cut])
        optimizer.zero_grad()
        F.cross_entropy(logits.float().flatten(0, 1), y[:, cut:].flatten().long()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return {"seconds": time.perf_counter() - start, "parameters": sum(p.numel() for p in model.parameters())}


@functools.cache
def _made(sizes: str, dtype: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A network of these sizes, kept for each precision."""
    from tabicl._model.tabicl import TabICL  # here, since only this program's environment has it

    model = TabICL(**json.loads(sizes)).train()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)


def _tables(request: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """x [B, R, C] of normal numbers, and which of two classes [B, R] each row has."""
    shape = (request["batch"], request["rows"], request["features"])
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    return x, (x[..., 0] > 0).float()
