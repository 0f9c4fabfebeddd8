"""The agent's life: whom it follows, when it works, when it leaves.

    python -m shmlimit.agent.life SPEC

A leader starts a follower and tries to get byte 0 of the segment's locks, and works when it has it.
A follower waits for its leader's end and takes its place. So after a death the next one works a
moment later, though nobody in the server notices: a master reaps its children and tells nobody.

An agent ends when its master has ended, however that was, and at SIGTERM. It ignores the signals
that a terminal or a server's group gets, and its exit status is 0 or 1. One that is run by hand
(shmlimit/commands/agent.py) has no follower, since its supervisor starts it again, and heeds the
terminal.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from setproctitle import setproctitle

from shmlimit.agent import agent_log
from shmlimit.agent.duty import Duty
from shmlimit.agent.hosts_duty import HostsDuty
from shmlimit.agent.limits_duty import LimitsDuty
from shmlimit.agent.spec import AgentSpec, ProcessId
from shmlimit.agent.start import AgentUser, spawn
from shmlimit.agent.watched import WatchedProcess
from shmlimit.config import Config, TableConfig
from shmlimit.errors import AgentNotStarted, ConfigError
from shmlimit.lock import AGENT_BYTE, EXCLUSIVE, try_lock
from shmlimit.segment import KEYS_PER_LINE, Segment
from shmlimit.segment_opening import borrow

log = logging.getLogger("shmlimit")

TICK_S = 0.5  # between two signs of life
SHORT_LIFE_S = 10.0  # a leader that ends sooner may have ended by itself
SHORT_LIVES_PARDONED = 3
PAUSE_MOST_S = 60.0  # after further ones
FOLLOWER_AGAIN_S = 1.0  # after a follower that ended
_IGNORED = ("SIGUSR1", "SIGUSR2", "SIGPIPE", "SIGTTIN", "SIGTTOU")
_OF_TERMINALS = ("SIGINT", "SIGHUP", "SIGQUIT")


class Agent:
    """One process. `close` of the segment is up to who has opened it."""

    def __init__(
        self, segment: Segment, config: Path, master: ProcessId | None, spec: AgentSpec | None
    ) -> None:
        """Without a master it ends only at a signal; without a spec it is run by hand."""
        self._segment = segment
        self._config = config
        self._spec = spec
        self._master = WatchedProcess(master) if master else None
        self._leader = WatchedProcess(spec.leader) if spec and spec.leader else None
        self._self = ProcessId.of(os.getpid())
        self._follower: subprocess.Popen[bytes] | None = None
        self._follower_at_s = float("-inf")  # when one was started last
        self._short_lives = spec.short_lives if spec else 0
        self._begins_at_s = time.monotonic()
        self._works = False
        self._name_lost = False
        self._told_to_leave = False
        with segment.reopened() as descriptor:
            self._lock_descriptor = os.dup(descriptor)
        self._woken, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def run(self) -> int:
        """The exit status: 1 when it was run by hand and the name leads to another segment now."""
        self._set_signals()
        self._title()
        while not self._leaves():
            if self._spec is None and not self._segment.has_name:
                log.error(
                    "agent: segment %s has lost its name, or the name is another segment's: start "
                    "this agent again, to work for that one", self._segment.path,
                )  # fmt: skip
                return 1
            if self._leader is not None and self._leader.ended():
                self._succeed(self._leader)
            if self._leader is None:
                self._lead()
            self._wait()
        if self._works:
            log.info("agent: %d leaves", os.getpid())
        return 0

    def _set_signals(self) -> None:
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        for name in _IGNORED:
            signal.signal(getattr(signal, name), signal.SIG_IGN)
        for name in _OF_TERMINALS:
            heeded = self._on_term if self._spec is None else signal.SIG_IGN
            signal.signal(getattr(signal, name), heeded)
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # so that it wakes
        signal.pthread_sigmask(signal.SIG_SETMASK, [])

    def _on_term(self, *_: object) -> None:
        self._told_to_leave = True

    def _leaves(self) -> bool:
        return self._told_to_leave or (self._master is not None and self._master.ended())

    def _title(self) -> None:
        waits = "" if self._works else ", waiting"
        setproctitle(f"shmlimit: agent {self._segment.header.name}{waits}")

    def _wait(self) -> None:
        """Until something happens, or it is time for the next sign of life."""
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        for process in (self._master, self._leader):
            if process is not None and process.descriptor is not None:
                poll.register(process.descriptor, select.POLLIN)
        poll.poll(TICK_S * 1000)
        with suppress(BlockingIOError):
            os.read(self._woken, 4096)

    def _succeed(self, leader: WatchedProcess) -> None:
        """The leader is dead. When leaders die one after the other, there is something that kills
        them, and no use in dying as fast as possible."""
        soon = time.monotonic() - self._begins_at_s < SHORT_LIFE_S
        self._short_lives = self._short_lives + 1 if soon else 0
        pause_s = 0.0
        if self._short_lives > SHORT_LIVES_PARDONED:
            pause_s = min(2.0 ** (self._short_lives - SHORT_LIVES_PARDONED), PAUSE_MOST_S)
        log.warning(
            "agent: %d has ended, %d takes its place%s", leader.process.pid, os.getpid(),
            f" in {pause_s:g} s, since they end one after the other" if pause_s else "",
        )  # fmt: skip
        leader.close()
        self._leader = None
        self._begins_at_s = time.monotonic() + pause_s

    def _lead(self) -> None:
        if time.monotonic() < self._begins_at_s:
            return
        self._keep_follower()
        if not self._works and not try_lock(self._lock_descriptor, AGENT_BYTE, EXCLUSIVE):
            return
        if self._self is not None:
            self._segment.table.hosts.beat(self._self.pid, self._self.start_ticks)
        if not self._works:
            self._work()
        if not self._name_lost and not self._segment.has_name:
            self._name_lost = True
            log.warning(
                "agent: segment %s has lost its name: the server's workers go on together, but who "
                "opens the name now counts for itself; restart the server", self._segment.path,
            )  # fmt: skip

    def _work(self) -> None:
        """Begins to. The threads do what may take time; this one gives signs of life."""
        self._works = True
        self._title()
        log.info("agent: %d works for %s", os.getpid(), self._segment.path)
        hosts = HostsDuty(self._segment.table, lambda: hosts_thread.wake())
        limits = LimitsDuty(
            self._segment, self._runs(), hosts.configure, lambda: limits_thread.wake()
        )
        hosts_thread = Duty("the count of hosts", hosts.turn)
        limits_thread = Duty("the watch over the configuration", limits.turn)
        hosts_thread.start()
        limits_thread.start()

    def _runs(self) -> Config:
        """What the file says now is what it said before the first change that this agent sees."""
        header = self._segment.header
        try:
            return Config.load(self._config)
        except ConfigError:  # told by the duty
            keys = header.lines * KEYS_PER_LINE
            return Config(TableConfig(header.name, keys, header.worker_rows), (), self._config)

    def _keep_follower(self) -> None:
        if self._spec is None or self._self is None:
            return
        if self._follower is not None and self._follower.poll() is None:
            return
        now_s = time.monotonic()
        if now_s - self._follower_at_s < FOLLOWER_AGAIN_S:
            return
        self._follower_at_s = now_s
        with self._segment.reopened() as descriptor:
            spec = dataclasses.replace(
                self._spec,
                descriptor=descriptor,
                leader=self._self,
                short_lives=self._short_lives,
            )
            try:
                self._follower = spawn(spec, AgentUser())
            except AgentNotStarted as error:
                log.error("agent: there is nobody to take the place of %d: %s", os.getpid(), error)


def main(arguments: list[str]) -> int:
    spec = AgentSpec.of_text(arguments[0])
    agent_log.install(spec.log_file, spec.log_level)
    try:
        segment = borrow(spec.descriptor, spec.name, spec.owner)
        return Agent(segment, Path(spec.config), spec.master, spec).run()
    except Exception:
        log.exception("agent: %d ends, which it should not", os.getpid())
        return 1


if __name__ == "__main__":
    status = main(sys.argv[1:])
    logging.shutdown()
    os._exit(status)  # a thread may be waiting for a name server
