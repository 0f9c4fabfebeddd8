"""The [hosts] section: what it may say, and that every refusal names the place and the cure."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shmlimit.config import Config
from shmlimit.errors import ConfigError
from shmlimit.hosts.settings import HostsConfig, nameserver_address

UNHURRIED = settings(deadline=None)  # a busy machine is no failure

TABLE = '[table]\nname = "shop"\n[limits.per_ip]\nrate = "100/s"\n'

Load = Callable[[str], Config]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def write_and_load(content: str) -> Config:
        file = tmp_path / "shmlimit.toml"
        file.write_text(content)
        return Config.load(file)

    return write_and_load


def refusal(**values: Any) -> str:
    with pytest.raises(ConfigError) as failure:
        HostsConfig(**values)
    message = str(failure.value)
    assert "accepted" in message
    assert message.isprintable()
    assert len(message) < 900
    return message


def test_without_a_section_this_host_is_alone(load: Load) -> None:
    assert load(TABLE).hosts == HostsConfig()
    assert (HostsConfig().source, HostsConfig().fallback) == ("static:1", 1)
    assert load(TABLE + "[hosts]\n").hosts == HostsConfig()


def test_everything(load: Load) -> None:
    config = load(
        TABLE
        + """
        [hosts]
        source = "dns:web.prod.svc.cluster.local"
        fallback = 10
        min = 2
        max = 500
        settle = "1min"
        reread = 2.5
        nameservers = ["10.0.0.53", "10.0.0.54:5353", "2001:db8::53", "[2001:db8::53]:5353"]
        timeout = "500ms"
        min_ttl = "1s"
        max_ttl = 30
        """
    )
    assert config.hosts == HostsConfig(
        source="dns:web.prod.svc.cluster.local",
        fallback=10,
        min=2,
        max=500,
        settle=60.0,
        reread=2.5,
        nameservers=("10.0.0.53", "10.0.0.54:5353", "2001:db8::53", "[2001:db8::53]:5353"),
        timeout=0.5,
        min_ttl=1.0,
        max_ttl=30.0,
    )
    assert isinstance(config.hosts.max_ttl, float)
    assert pickle.loads(pickle.dumps(config)) == config
    assert hash(config.hosts) == hash(pickle.loads(pickle.dumps(config.hosts)))


@pytest.mark.parametrize(
    "source",
    [
        "static:3",
        "static:1_000",
        "file:/etc/shop/hosts",
        "file:///etc/shop/hosts",
        "file:/with blanks/and:colons",
        "dns:web",
        "dns:web.example.net.",
        "dns:_http._tcp.web-1.example.net",
        "dns+srv:_http._tcp.example.net",
        "env:SHOP_HOSTS",
        "shop.fleet:hosts",
        "shop:Fleet.hosts",
    ],
)
def test_sources(source: str) -> None:
    assert HostsConfig(source=source, fallback=3).source == source


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("", "source: '' is no source; accepted: static:N, file:PATH"),
        (3, "source: 3 is no source"),
        (None, "source: None is no source"),
        ("static", "source: 'static' has no ':'; did you mean 'static'?"),
        ("/etc/hosts", "source: '/etc/hosts' has no ':'; accepted: static:N, file:PATH"),
        ("static:0", "source: 'static:0': accepted: a whole number from 1 to 1000000"),
        ("static:-1", "source: 'static:-1': accepted: a whole"),
        ("static:2.5", "source: 'static:2.5': accepted: a whole"),
        ("static:", "source: 'static:': accepted: a whole"),
        ("static:9999999999", "accepted: a whole number from 1 to 1000000"),
        ("file:hosts", "source: 'file:hosts': accepted: an absolute path"),
        ("file:~/hosts", "accepted: an absolute path"),
        ("file:", "accepted: an absolute path"),
        ("file:/a\0b", "is no source"),
        ("fiel:/etc/hosts", "is no source; did you mean 'file'?"),
        ("dnss:web", "is no source; did you mean 'dns'?"),
        ("dns-srv:web", "is no source; did you mean 'dns+srv'?"),
        ("DNS:web", "is no source; did you mean 'dns'?"),
        ("dns:", "accepted: a full name, such as dns:web.prod"),
        ("dns:10.0.0.1", "is an address, no name; accepted: a full name"),
        ("dns:[2001:db8::1]", "is an address, no name"),
        ("dns:web..example", "accepted: a full name"),
        ("dns:web example", "accepted: a full name"),
        ("dns:-web", "accepted: a full name"),
        ("dns:caf\xe9.example", "is not ASCII: write the name as it is on the wire (xn--...)"),
        ("dns:" + "a" * 64, "accepted: a full name"),
        ("dns:" + "a." * 130, "accepted: a full name"),
        ("dns+srv:.", "accepted: a full name"),
        ("env:", "accepted: the name of an environment variable"),
        ("env:A B", "accepted: the name of an environment variable"),
        ("env:$HOSTS", "accepted: the name of an environment variable"),
        ("shop.fleet:", "is no source; accepted: static:N"),
        ("shop..fleet:hosts", "is no source; accepted: static:N"),
        ("shop-fleet:hosts", "is no source; accepted: static:N"),
        ("http://consul/hosts", "is no source; accepted: static:N"),
    ],
)
def test_what_is_no_source(source: Any, words: str) -> None:
    assert words in refusal(source=source, fallback=3)


def test_sources_that_can_fail_need_a_fallback() -> None:
    for source in ("file:/hosts", "dns:web", "dns+srv:web", "env:HOSTS", "shop:hosts"):
        assert refusal(source=source).startswith(
            f"fallback: is missing, the count until {source!r} was read for the first time; "
        )
        assert HostsConfig(source=source, fallback=3).fallback == 3
    assert HostsConfig(source="static:7").fallback == 7
    assert HostsConfig(source="static:7", max=5).fallback == 5


@pytest.mark.parametrize("field", ["fallback", "min", "max"])
@pytest.mark.parametrize(
    "value", [0, -1, 1.5, "3", True, 1_000_001, pytest.param(10**5000, id="huge")]
)
def test_counts_are_whole_numbers(field: str, value: Any) -> None:
    assert refusal(**{field: value}).startswith(f"{field}: ")


def test_bounds_that_do_not_fit_together() -> None:
    assert refusal(min=5, max=4) == "min: 5 is more than max, 4; accepted: at most it"
    assert refusal(fallback=1, min=2, source="dns:web") == (
        "fallback: 1 is not between min and max; accepted: 2 to 100000"
    )
    assert refusal(fallback=9, max=8, source="dns:web").startswith("fallback: 9 is not between")
    assert refusal(min_ttl=61).startswith("min_ttl: 61 s is more than max_ttl, 60 s; accepted")


@pytest.mark.parametrize("field", ["settle", "reread", "timeout", "min_ttl", "max_ttl"])
@pytest.mark.parametrize(
    "value",
    [
        -1,
        "",
        "soon",
        "-1s",
        "2d",
        True,
        None,
        float("nan"),
        float("inf"),
        [1],
        pytest.param(10**5000, id="huge"),
        "1e9",
    ],
)
def test_durations_are_bounded(field: str, value: Any) -> None:
    message = refusal(**{field: value})
    assert message.startswith(f"{field}: ")
    assert 'as seconds or as a text such as "200ms", "10s" or "5min"' in message


def test_only_settle_may_be_zero() -> None:
    assert HostsConfig(settle=0).settle == 0.0
    for field in ("reread", "timeout", "min_ttl", "max_ttl"):
        refusal(**{field: 0})


@pytest.mark.parametrize(
    "value",
    [
        "10.0.0.53",
        [],
        ["ns.example.net"],
        ["10.0.0.53:"],
        ["10.0.0.53:0"],
        ["10.0.0.53:65536"],
        ["10.0.0.53:5e1"],
        ["[2001:db8::53"],
        ["[2001:db8::53]x"],
        ["10.0.0.53", 53],
        ["10.0.0.53"] * 17,
        {"10.0.0.53": 53},
    ],
)
def test_what_is_no_list_of_nameservers(value: Any) -> None:
    assert refusal(nameservers=value).startswith("nameservers: ")


def test_addresses_of_nameservers() -> None:
    assert nameserver_address("10.0.0.53") == ("10.0.0.53", 53)
    assert nameserver_address("10.0.0.53:5353") == ("10.0.0.53", 5353)
    assert nameserver_address("2001:db8::53") == ("2001:db8::53", 53)
    assert nameserver_address("[2001:db8::53]") == ("2001:db8::53", 53)
    assert nameserver_address("[2001:db8::53]:5353") == ("2001:db8::53", 5353)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        (
            'hosts = 3\n[table]\nname = "shop"',
            "hosts: 3 is not accepted; accepted: a table: [hosts]",
        ),
        ('[hosts]\nsuorce = "static:3"', "hosts.suorce: is unknown; did you mean 'source'?"),
        ('[hosts]\nsource = "static:x"', "hosts.source: 'static:x': accepted: a whole number"),
        ('[hosts]\nsource = "dns:web"', "hosts.fallback: is missing, the count until 'dns:web'"),
        (
            '[hosts]\nsettle = "soon"',
            "hosts.settle: 'soon' is not accepted; accepted: from 0s to 24h",
        ),
        ('[host]\nsource = "static:3"', "host: is unknown; did you mean 'hosts'?"),
        ("[[hosts]]\nmin = 1", "hosts: [{'min': 1}] is not accepted; accepted: a table"),
    ],
)
def test_a_section_is_refused_by_its_place_in_the_file(
    load: Load, section: str, words: str
) -> None:
    content = section + "\n" + (TABLE if "[table]" not in section else TABLE.split("\n", 2)[2])
    with pytest.raises(ConfigError) as failure:
        load(content)
    assert f"shmlimit.toml: {words}" in str(failure.value)


@UNHURRIED
@given(st.text(max_size=40) | st.from_regex(r"(dns|file|env|static|dns\+srv):.{0,20}"))
def test_every_text_is_a_source_or_refused(text: str) -> None:
    message = ""
    try:
        HostsConfig(source=text, fallback=1)
    except ConfigError as error:
        message = str(error)
    assert not message or (message.startswith("source: ") and "accepted: " in message)
