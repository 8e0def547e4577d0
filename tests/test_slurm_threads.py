"""A cluster whose cores have two hardware threads each: a worker per core, on all nodes."""

import json

import pytest
from slurm_lab import Allocation, cluster, slow_model

pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module")
def slurm():
    with cluster(THREADS="2", NODES="2") as environment:
        yield environment


@pytest.mark.parametrize("asked", [["--exclusive"], ["--exclusive", "--hint=nomultithread"]])
def test_each_core_has_one_worker_and_no_node_is_idle(slurm, tmp_path, asked):
    model = slow_model(tmp_path, seconds=0.02, epochs=10)
    asked = ["--nodes=2", "--mem=6000", *asked]
    small = {"models": ["mlp"], "strategies": ["serial"], "seeds": [0, 1, 2, 3]}
    allocation = Allocation(slurm, tmp_path, model=model, asked=asked, **small)
    allocation.ends_well()
    runs = [
        json.loads(file.read_text())
        for file in (allocation.project.results / "runs").rglob("metrics.json")
    ]
    assert len(runs) == 8
    hosts = [run["nodes"][0]["host"] for run in runs]
    assert {hosts.count(host) for host in hosts} == {4}
    assert "Provided cores: 4" in allocation.log.read_text()
