"""The commands that change what runs, and what they show of it: set and hosts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import shmlimit
from shmlimit import segment_choice
from shmlimit.errors import ConfigError, SegmentNotFound
from shmlimit.hosts_facts import agent_state
from shmlimit.process import process_start_ticks
from shmlimit.rate import Rate
from shmlimit.segment_choice import chosen
from shmlimit.segment_listing import Listed
from tests.segment_file import SegmentFile
from tests.test_cli import Answer, Run, as_user, inspected, left, path, run

__all__ = ["left", "path", "run"]  # fixtures

NOBODY = 65534  # uid


@pytest.fixture
def limiter(segment_name: str) -> Iterator[shmlimit.Limiter]:
    with shmlimit.Limiter(segment_name, keys=100, workers=4, a="10/s burst 20", b="5/10m") as made:
        yield made


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no shmlimit.toml."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SHMLIMIT_CONFIG", raising=False)


@pytest.fixture
def ask(run: Run, segment_name: str) -> Run:
    """Runs a command about this test's table."""

    def call(*arguments: str) -> Answer:
        return run(*arguments, "--table", segment_name)

    return call


# set


def test_a_rate_is_changed_for_all_who_use_the_table_and_buckets_are_kept(
    ask: Run, limiter: shmlimit.Limiter, segment_name: str
) -> None:
    assert limiter["b"].hit("x", 4)
    answer = ask("set", "b", "rate=8/10m")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines() == [
        f"limit b of table {segment_name} ran at 5/10min, enforce, evict when full",
        "and runs at 8/10min, enforce, evict when full now, in all processes of this host",
        "until the configuration is loaded again: at HUP, or when shmlimit.toml changes",
    ]
    assert limiter["b"].rates == (Rate.parse("8/10m"),)
    assert limiter["b"].by_hand
    assert limiter["b"].peek("x", 0).remaining in (1, 2), "eight minutes are owed, of ten"


def test_only_what_is_named_changes(ask: Run, limiter: shmlimit.Limiter) -> None:
    assert ask("set", "a", "mode=shadow").code == 0
    assert ask("set", "a", "scope=host", "when_full=deny").code == 0
    a = limiter["a"]
    assert (a.rates, a.mode, a.scope, a.when_full) == (
        Rate.parse_several("10/s burst 20"), "shadow", "host", "deny",
    )  # fmt: skip
    assert limiter["b"].mode == "enforce"
    assert not limiter["b"].by_hand


def test_several_rates_become_others(ask: Run, limiter: shmlimit.Limiter) -> None:
    assert ask("set", "a", "rate=10/s; 100/day; 50/h").code == 0
    assert list(limiter["a"].rates) == list(Rate.parse_several("10/s; 100/day; 50/h"))
    assert ask("set", "a", "rate=7/s burst 9").code == 0
    assert list(limiter["a"].rates) == [Rate.parse("7/s burst 9")]
    assert limiter.check()


def test_the_share_of_this_host_is_told(ask: Run, limiter: shmlimit.Limiter) -> None:
    assert ask("hosts", "set", "4").code == 0
    told = ask("set", "a", "rate=200/s burst 2k").out
    assert "of the 4 hosts, this one was told: it enforces 50/s burst 500\n" in told
    assert "this one was told" not in ask("set", "a", "scope=host").out


def test_what_a_change_lets_pass_beyond_both_is_told(ask: Run, limiter: shmlimit.Limiter) -> None:
    told = ask("set", "a", "rate=20/s burst 100").out
    assert "debts are kept as time: who owes all of the old burst may take 60 at once" in told


def test_a_share_of_less_than_one_request_is_told(ask: Run, limiter: shmlimit.Limiter) -> None:
    assert ask("hosts", "set", "10").out.count("leaves each 0.5 requests a period") == 1
    assert "leaves each 0.2 requests a period" in ask("set", "b", "rate=2/10m").out


def test_what_is_set_stands_until_the_configuration_is_loaded_again(
    ask: Run, segment_name: str, tmp_path: Path
) -> None:
    file = tmp_path / "other.toml"
    file.write_text(f'[table]\nname = "{segment_name}"\nkeys = 100\n[limits.a]\nrate = "10/s"\n')
    with shmlimit.Limiter.from_config(file) as limiter:
        assert ask("set", "a", "rate=77/s").code == 0
        limiter.close()
    with shmlimit.Limiter.from_config(file) as limiter:
        assert ask("set", "a", "rate=77/s").code == 0
        with shmlimit.Limiter(segment_name, keys=100, a="5/s") as other:
            assert other["a"].rates == (Rate.parse("77/s"),), "who opens it is no reload"
        limiter.reload()
        assert limiter["a"].rates == (Rate.parse("10/s"),)
        assert not limiter["a"].by_hand


WRONG: dict[str, tuple[tuple[str, ...], int, str]] = {
    "no change": (("set", "a"), 2, "required: FIELD=VALUE"),
    "no value": (("set", "a", "rate"), 2, "'rate' is not accepted"),
    "no rate": (("set", "a", "rate="), 2, "accepted: COUNT/PERIOD"),
    "a rate of nothing": (("set", "a", "rate=0/s"), 2, "rate: "),
    "the same rate twice": (("set", "a", "rate=1/s;1/s"), 2, "accepted: each rate once"),
    "a misspelt field": (("set", "a", "rat=1/s"), 2, "did you mean 'rate'?"),
    "a field of workers": (("set", "a", "key=ip"), 2, "accepted: FIELD=VALUE with a field of rate"),
    "a misspelt value": (("set", "a", "mode=shadwo"), 2, "did you mean 'shadow'?"),
    "a field twice": (("set", "a", "mode=off", "mode=shadow"), 2, "mode: is there twice"),
    "no such limit": (("set", "nope", "rate=1/s"), 1, "has no limit 'nope'; it has: a, b"),
    "no name of one": (("set", "\x1b[31m", "rate=1/s"), 1, "it has: a, b"),
    "no count": (("hosts", "set"), 2, "shmlimit hosts set N"),
    "a count for auto": (("hosts", "auto", "4"), 2, "shmlimit hosts auto"),
    "a count of none": (("hosts", "set", "0"), 2, "'0' is not accepted; accepted: a whole number"),
    "half a host": (("hosts", "set", "1.5"), 2, "'1.5' is not accepted"),
    "too many hosts": (("hosts", "set", "1000001"), 2, "from 1 to 1000000"),
    "very many hosts": (("hosts", "set", "9" * 10_000), 2, "from 1 to 1000000"),
    "an action": (("hosts", "pin", "4"), 2, "invalid choice: 'pin'"),
    "a pin for machines": (("hosts", "set", "4", "--json"), 2, "--json: only with"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_not_accepted_changes_nothing(
    ask: Run, limiter: shmlimit.Limiter, wrong: str
) -> None:
    arguments, code, told = WRONG[wrong]
    with SegmentFile.of(limiter.path) as file:
        before = bytes(file.memory)
        answer = ask(*arguments)
        assert bytes(file.memory) == before
    assert (answer.code, answer.out, answer.err.count("\n")) == (code, "", 1)
    assert answer.err.isascii()
    assert told in answer.err
    assert "\x1b" not in answer.err


def test_a_limit_that_was_removed_is_not_brought_back(ask: Run, limiter: shmlimit.Limiter) -> None:
    limiter._segment.table.remove("a")
    answer = ask("set", "a", "rate=1/s")
    assert (answer.code, answer.out) == (1, "")
    assert "removed" in answer.err
    assert list(limiter) == ["b"]


def test_more_rates_than_there_is_room_for(ask: Run, segment_name: str) -> None:
    with shmlimit.Limiter(segment_name, keys=10, a="10/s") as limiter:
        for i in range(253):
            limiter._segment.table.publish(f"l{i}", [Rate.parse("1/s")])
        answer = ask("set", "a", "rate=10/s; 20/min; 30/h; 40/d")
        assert (answer.code, answer.out) == (1, "")
        assert "has no room for limit 'a'" in answer.err
        assert limiter["a"].rates == (Rate.parse("10/s"),)


@pytest.mark.parametrize("command", [("set", "a", "rate=1/s"), ("hosts", "set", "4")])
def test_what_nobody_uses_is_not_changed(
    ask: Run, left: int, path: Path, command: tuple[str, ...]
) -> None:
    content = path.read_bytes()
    answer = ask(*command)
    assert (answer.code, answer.out) == (1, "")
    assert "left behind, nobody uses it: start the server first" in answer.err
    assert path.read_bytes() == content
    path.unlink()


@pytest.mark.parametrize("command", [("set", "a", "rate=1/s"), ("hosts", "set", "4"), ("hosts",)])
def test_what_is_no_segment_is_refused(ask: Run, path: Path, command: tuple[str, ...]) -> None:
    for content in (b"", b"x" * 8192):
        path.write_bytes(content)
        path.chmod(0o600)
        assert ask(*command).code == 1
        assert path.read_bytes() == content
    path.unlink()
    os.mkfifo(path, 0o600)
    assert "is not a regular file" in ask(*command).err
    path.unlink()
    path.symlink_to("/etc/passwd")
    assert "is not a regular file" in ask(*command).err
    path.unlink()
    assert "no segment" in ask(*command).err


def test_who_changes_a_segment_is_no_user_of_it(ask: Run, segment_name: str, path: Path) -> None:
    limiter = shmlimit.Limiter(segment_name, keys=100, a="1/s")
    assert ask("set", "a", "rate=2/s").code == 0
    assert limiter.worker_counters().keys() <= {0}
    limiter.close()
    assert not path.exists()


# hosts


def test_a_pinned_count_divides_until_auto(ask: Run, limiter: shmlimit.Limiter) -> None:
    whole = limiter["a"].shares
    answer = ask("hosts", "set", "4")
    assert answer.code == 0
    assert "limits are divided by 4 now, until `shmlimit hosts auto`; by 1 before" in answer.out
    assert limiter["a"].shares[0].interval_ticks == 4 * whole[0].interval_ticks
    assert (limiter.hosts.pinned, limiter.hosts.counted) == (4, 1)
    assert ask("hosts").out.startswith("hosts   4, pinned; without that 1")
    assert "are divided by 1 now, as static:1 says; by 4 before" in ask("hosts", "auto").out
    assert limiter["a"].shares == whole
    assert "no count was pinned; limits are divided by 1" in ask("hosts", "auto").out


def test_a_pin_survives_what_the_source_says(ask: Run, limiter: shmlimit.Limiter) -> None:
    hosts = limiter._segment.table.hosts
    ask("hosts", "set", "4")
    hosts.read(7, 7)
    assert limiter.hosts.in_force == 4
    assert "divided by 7 now" in ask("hosts", "auto").out


def test_hosts_tells_what_the_source_and_the_agent_do(
    ask: Run, run: Run, limiter: shmlimit.Limiter
) -> None:
    hosts = limiter._segment.table.hosts
    assert "agent   none" in ask("hosts").out
    hosts.follow("dns:web.example", 9)
    assert "dns:web.example, has not answered yet: the count is assumed" in ask("hosts").out
    hosts.read(6, 5)
    hosts.failed("dns:web.example: no answer")
    hosts.refuse("shmlimit.toml: limits: there are none")
    pid = os.getpid()
    hosts.beat(pid, process_start_ticks(pid) or 0)
    told = ask("hosts").out
    assert "hosts    6, for 0." in told
    assert "source   dns:web.example, said 5 0." in told
    assert "failing  for 0." in told
    assert "s: dns:web.example: no answer\n" in told
    assert "refused  shmlimit.toml: limits: there are none\n" in told
    assert f"agent    {pid} works, last sign of life 0." in told
    facts = json.loads(ask("hosts", "--json").out)
    assert (facts["in_force"], facts["counted"], facts["read_count"]) == (6, 6, 5)
    assert (facts["agent"]["state"], facts["agent"]["pid"]) == ("works", pid)
    assert facts.keys() == inspected(run, limiter.name)["hosts"].keys()
    assert "dns:web.example: no answer" in run("inspect", limiter.name).out


@pytest.mark.parametrize(
    ("age_s", "same_pids", "state"),
    [
        (1.9, True, "works"), (1.9, False, "works"), (2.1, True, "stale"), (2.1, False, "unknown"),
        (None, True, "stale"),
    ],
)  # fmt: skip
def test_an_agent_without_a_sign_of_life_is_stale(
    limiter: shmlimit.Limiter, age_s: float | None, same_pids: bool, state: str
) -> None:
    pid = os.getpid()
    hosts = limiter.hosts._replace(
        agent_pid=pid, agent_start_ticks=process_start_ticks(pid), heartbeat_age=age_s
    )
    assert agent_state(hosts, same_pids) == state
    if state == "stale":
        assert agent_state(hosts._replace(agent_start_ticks=1), same_pids) == "gone"


# Which table is meant.


def test_the_table_of_the_configuration_is_meant(
    run: Run, limiter: shmlimit.Limiter, segment_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Path("shmlimit.toml")
    file.write_text(f'[table]\nname = "{segment_name}"\n[limits.a]\nrate = "1/s"\n')
    assert run("set", "a", "rate=3/s").code == 0
    assert limiter["a"].rates == (Rate.parse("3/s"),)
    assert run("hosts", "set", "3").code == 0
    assert limiter.hosts.in_force == 3
    file.write_text("[table]\nname = 7\n")
    answer = run("hosts")
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert "or say which is meant, by --table NAME and --owner UID" in answer.err
    assert run("hosts", "--table", segment_name).code == 0
    monkeypatch.setenv("SHMLIMIT_CONFIG", "missing.toml")
    assert "missing.toml: there is no such file" in run("hosts").err


def segments(*found: tuple[str, int], finished: bool = True, named: bool = True) -> list[Listed]:
    return [Listed(name, owner, f"/{name}", finished, 1, named=named) for name, owner in found]


def test_without_one_the_only_segment_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int | None] = []

    def there_are(found: list[Listed]) -> None:
        def listed(owner: int | None) -> list[Listed]:
            asked.append(owner)
            return [each for each in found if owner in (None, each.owner)]

        monkeypatch.setattr(segment_choice, "listed", listed)

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    there_are(segments(("shop", 33)))
    assert chosen(None, None) == chosen("shop", None) == ("shop", 33)
    assert asked == [None, None], "root looks at everybody's"
    there_are(segments(("shop", 33), ("shop", 0)))
    assert chosen("shop", None) == ("shop", 0), "its own first"
    assert chosen("shop", 33) == ("shop", 33)
    there_are(segments(("shop", 33), ("shop", 34), ("api", 33)))
    assert chosen("api", None) == ("api", 33)
    with pytest.raises(ConfigError, match=r"\('shop' of uid 33, 'shop' of uid 34\)"):
        chosen("shop", None)
    with pytest.raises(ConfigError, match=r"several .* --table NAME and --owner UID"):
        chosen(None, None)
    there_are(segments(("shop", 33), named=False) + segments(("shop", 34), finished=False))
    with pytest.raises(SegmentNotFound, match=r"no segment /dev/shm/shmlimit\.0\.shop"):
        chosen("shop", None)
    with pytest.raises(SegmentNotFound, match="there is no segment in /dev/shm: is the server"):
        chosen(None, None)
    with pytest.raises(ConfigError, match="accepted are 1 to 200 letters"):
        chosen("a/b", None)
    monkeypatch.setattr(os, "geteuid", lambda: 34)
    there_are(segments(("shop", 33), ("shop", 34)))
    assert chosen(None, None) == ("shop", 34)
    assert asked[-1] == 34


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes segments for another user")
def test_others_do_not_change_what_is_not_theirs(run: Run, segment_name: str) -> None:
    with shmlimit.Limiter(segment_name, keys=100, owner=NOBODY, a="1/s") as limiter:
        about = ("--table", segment_name, "--owner", str(NOBODY))
        as_user(NOBODY - 1, lambda: "run as uid" in run("set", "a", "rate=2/s", *about).err)
        as_user(NOBODY - 1, lambda: run("hosts", "set", "2", *about).code == 1)
        assert str(limiter["a"].rates[0]) == "1/s"
        as_user(NOBODY, lambda: run("set", "a", "rate=2/s", *about[:2]).code == 0)
        assert str(limiter["a"].rates[0]) == "2/s"
        assert run("hosts", "set", "2", *about[:2]).code == 0, "root finds whose it is"
        assert limiter.hosts.in_force == 2
        limiter.path.unlink()
