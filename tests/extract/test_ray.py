"""Extraction on a real Ray cluster: a head and two nodes on this machine, one of them lost, and the driver killed."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from eagletui.extract.host_folders import HostFolders
from eagletui.extract.manifest import read_manifest
from eagletui.extract.shards import ShardReader
from eagletui.extract.storage import open_storage
from eagletui.extract.verify import verify
from eagletui.ledger.reader import LedgerReader
from eagletui.runs.folder import RunFolder
from tests.extract.small_run import answer_samples, create_run, finish_run
from tests.tiny_models import Kind, random_samples

pytestmark = [pytest.mark.ray, pytest.mark.timeout(420)]

SHARDS = 60
SAMPLE_TOKENS = 900
"""One sample fills more than half a shard of a mebibyte, so each has one of its own."""
DEADLINE_S = 180.0
BUCKET = "features"


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head that computes nothing, and two nodes with room for one worker each."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        nodes.first = nodes.add_node(num_cpus=1)
        nodes.second = nodes.add_node(num_cpus=1)
        nodes.wait_for_nodes()
        yield nodes
    finally:
        nodes.shutdown()


def _run(path: Path, model: Path) -> RunFolder:
    folder = create_run(path, model)
    ids = random_samples((SAMPLE_TOKENS,) * SHARDS)
    answer_samples(folder, [(sample[:10], sample[10:]) for sample in ids])
    finish_run(folder)
    return folder


def _driver(folder: RunFolder, *args: str) -> "subprocess.Popen[bytes]":
    code = "from eagletui.cli.app import main; main()"
    with (folder.path / "driver.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-c", code, "extract", str(folder.path), *args], stdout=log, stderr=log
        )


def _until(is_so: Callable[[], bool], driver: "subprocess.Popen[bytes]", folder: RunFolder) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        log = (folder.path / "driver.log").read_text()
        assert driver.poll() is None, f"the driver ended with {driver.returncode}:\n{log}"
        assert time.monotonic() < deadline, f"did not happen in time:\n{log}"
        time.sleep(0.05)


def _committed(folder: RunFolder) -> int:
    with LedgerReader(folder.ledger_path) as reader:
        return len(reader.shards())


def _states(folder: RunFolder) -> dict[str, torch.Tensor]:
    storage = open_storage(folder.features_dir, read_manifest(folder.features_dir).storage)
    found: dict[str, torch.Tensor] = {}
    with LedgerReader(folder.ledger_path) as reader:
        shards = reader.shards()
    assert storage.paths() == {shard.path for shard in shards}
    assert storage.remove_orphans([shard.path for shard in shards]) == ()
    for shard in shards:
        assert storage.digest(shard.path) == shard.xxh3
        with storage.fetched(shard.path) as file, ShardReader(file) as reader_:
            for position, key in enumerate(reader_.keys):
                assert key not in found, f"{key} lies in two shards"
                found[key] = reader_.record(position).hidden_states.clone()
    return found


def _extract_through_losses(folder: RunFolder, cluster: Any, *storage: str) -> None:
    args = ("--engine", "ray", "--address", cluster.address, *storage)
    driver = _driver(folder, *args)
    try:
        _until(lambda: _committed(folder) >= 8, driver, folder)
        cluster.remove_node(cluster.first, allow_graceful=False)
        _until(lambda: _committed(folder) >= 14, driver, folder)
        cluster.add_node(num_cpus=1)
        _until(lambda: _committed(folder) >= 22, driver, folder)
        os.kill(driver.pid, signal.SIGKILL)
        driver.wait(30)
        assert _committed(folder) < SHARDS, "the driver was to be killed in mid-run"
        driver = _driver(folder, *args)
        assert driver.wait(DEADLINE_S) == 0, (folder.path / "driver.log").read_text()
    finally:
        driver.kill()
        driver.wait(30)


def _assert_like_local(folder: RunFolder, model: Path, tmp_path: Path) -> None:
    assert _committed(folder) == SHARDS
    # Of one sample: of more than a thousand tokens it is a fault that these are random ones, not the model's own.
    verdict = verify(folder.features_dir, model, compared=1)
    assert verdict.ok, [check for check in verdict.checks if not check.ok]
    local = _run(tmp_path / "local", model)
    assert _driver(local).wait(DEADLINE_S) == 0, (local.path / "driver.log").read_text()
    there, here = _states(folder), _states(local)
    assert there.keys() == here.keys()
    assert len(there) == SHARDS
    for key, states in here.items():
        assert torch.equal(there[key], states), key


def test_a_lost_node_a_new_one_and_a_killed_driver_leave_every_shard_once(
    cluster: Any, tmp_path: Path, tiny_models: dict[Kind, Path]
) -> None:
    folder = _run(tmp_path / "run", tiny_models["llama"])
    _extract_through_losses(folder, cluster)
    assert not list(folder.features_dir.rglob("*.tmp"))
    _assert_like_local(folder, tiny_models["llama"], tmp_path)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An S3-compatible server in this process, and where its bucket is."""
    pytest.importorskip("s3fs")
    server_module = pytest.importorskip("moto.server")
    import s3fs

    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(name, value)
        s3fs.S3FileSystem(skip_instance_cache=True).mkdir(BUCKET)
        yield f"s3://{BUCKET}/run"
    finally:
        server.stop()


def test_the_same_with_shards_in_an_s3_bucket(
    bucket: str, cluster: Any, tmp_path: Path, tiny_models: dict[Kind, Path]
) -> None:
    folder = _run(tmp_path / "run", tiny_models["llama"])
    _extract_through_losses(folder, cluster, "--storage", bucket)
    assert not list(folder.features_dir.rglob("*.safetensors*"))
    left = HostFolders.of(folder.features_dir.resolve(), bucket).prefix
    assert not list(Path(tempfile.gettempdir()).glob(f"{left}*")), (
        "killed workers' folders are removed by the next ones"
    )
    _assert_like_local(folder, tiny_models["llama"], tmp_path)
