"""Test of what figures were measured on."""

import json

import torch

from bench.machine_facts import machine_facts


def test_the_facts_are_json_values_and_tell_cores_versions_and_load() -> None:
    facts = machine_facts()
    assert json.loads(json.dumps(facts)) == facts
    assert list(facts) == ["cores", "cpu", "gpu", "torch", "python", "load"]
    assert facts["cores"] >= 1 and facts["torch"] == torch.__version__ and facts["load"] >= 0
    assert (facts["gpu"] is None) == (not torch.cuda.is_available())
