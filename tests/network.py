"""Hosts of a network of their own, as far as one kernel can have them: each with its addresses and
its /dev/shm, behind a switch on which this process can listen."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

GATEWAY = "198.18.0.1"  # of the addresses that are set aside for tests
_CLONE_NEWNET = 0x40000000


@dataclass(frozen=True)
class Network:
    switch: str  # the namespace that all hosts reach at GATEWAY
    hosts: tuple[str, ...]  # a namespace each

    def command(self, host: int) -> list[str]:
        """What comes before a command that is to run on that host."""
        own_memory = 'mount -t tmpfs tmpfs /dev/shm && exec "$@"'
        return ["ip", "netns", "exec", self.hosts[host], "sh", "-c", own_memory, "sh"]


def address(host: int) -> str:
    return f"198.18.0.{10 + host}"


def why_not(name: str) -> str | None:
    """Why there can be no such network here, if there cannot."""
    try:
        with network(name, 1) as made:
            subprocess.run([*made.command(0), "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no network namespaces can be made here: {error}"
    return None


@contextmanager
def network(name: str, hosts: int) -> Iterator[Network]:
    made = Network(f"{name}-switch", tuple(f"{name}-host{host}" for host in range(hosts)))
    with ExitStack() as stack:
        for namespace in (made.switch, *made.hosts):
            _ip("netns", "add", namespace)
            stack.callback(_ip, "netns", "delete", namespace)
        _ip("-n", made.switch, "link", "add", "switch", "type", "bridge")
        _ip("-n", made.switch, "address", "add", f"{GATEWAY}/24", "dev", "switch")
        _ip("-n", made.switch, "link", "set", "switch", "up")
        for host, namespace in enumerate(made.hosts):
            end = ("peer", "name", f"port{host}", "netns", made.switch)
            _ip("-n", namespace, "link", "add", "eth0", "type", "veth", *end)
            _ip("-n", made.switch, "link", "set", f"port{host}", "master", "switch", "up")
            _ip("-n", namespace, "address", "add", f"{address(host)}/24", "dev", "eth0")
            _ip("-n", namespace, "link", "set", "eth0", "up")
        yield made


@contextmanager
def inside(namespace: str) -> Iterator[None]:
    """Sockets that this thread makes in the block are that namespace's, as long as they live."""
    libc = ctypes.CDLL(None, use_errno=True)
    with ExitStack() as stack:
        entered = []
        for path in ("/proc/thread-self/ns/net", f"/run/netns/{namespace}"):
            entered.append(os.open(path, os.O_RDONLY))
            stack.callback(os.close, entered[-1])
        own, other = entered

        def enter(descriptor: int) -> None:
            if libc.setns(descriptor, _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")

        stack.callback(enter, own)
        enter(other)
        yield


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
