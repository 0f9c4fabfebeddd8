"""What shmlimit.toml may say, and that every refusal names the place, the value and the cure."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shmlimit.config import (
    KEYS_MAX,
    Config,
    LimitConfig,
    TableConfig,
)
from shmlimit.errors import ConfigError
from shmlimit.rate import Rate

UNHURRIED = settings(deadline=None)  # a busy machine is no failure

GOOD = '[table]\nname = "shop"\n[limits.per_ip]\nrate = "100/s burst 500"\nkey = "ip"\n'

Load = Callable[[str | bytes], Config]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def write_and_load(content: str | bytes) -> Config:
        file = tmp_path / "shmlimit.toml"
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return Config.load(file)

    return write_and_load


def refusal_of(load: Load, content: str | bytes) -> str:
    """The message, without the file's path at its start."""
    with pytest.raises(ConfigError) as refusal:
        load(content)
    message = str(refusal.value)
    path, _, rest = message.partition("shmlimit.toml: ")
    assert Path(path).is_absolute(), "the file is named"
    assert "accepted" in rest
    assert message.isprintable()
    assert len(message) < 800
    return rest


# What is accepted.


def test_defaults(load: Load, tmp_path: Path) -> None:
    assert load(GOOD) == Config(
        TableConfig("shop", keys=1_000_000, workers=64),
        (LimitConfig("per_ip", Rate.parse_several("100/s burst 500"), "ip", "enforce", "evict"),),
        tmp_path / "shmlimit.toml",
    )


def test_everything(load: Load) -> None:
    config = load("""
        [table]
        name = "shop-2.eu"
        keys = "250k"
        workers = 4096

        [limits.per_ip]
        rate = "5/min"
        key = "header:X-Api-Key"
        mode = "shadow"
        when_full = "deny"

        [limits."per.user"]      # a comment
        rate = "0.5/s"
        mode = "off"
        when_full = "allow"
    """)
    assert config.table == TableConfig("shop-2.eu", 250_000, 4096)
    assert config.limits == (
        LimitConfig("per_ip", Rate.parse_several("5/min"), "header:X-Api-Key", "shadow", "deny"),
        LimitConfig("per.user", Rate.parse_several("0.5/s"), None, "off", "allow"),
    )


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("1", 1),
        ("1_000_000", 1_000_000),
        ("0x10", 16),
        ('"1"', 1),
        ('"1M"', 1_000_000),
        ('"250k"', 250_000),
        ('"1.5M"', 1_500_000),
        ('"1_000_000"', 1_000_000),
        (str(KEYS_MAX), KEYS_MAX),
    ],
)
def test_numbers_of_keys(load: Load, text: str, keys: int) -> None:
    assert load(GOOD.replace("[limits", f"keys = {text}\n[limits")).table.keys == keys


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + GOOD.encode(),
        GOOD.replace("\n", "\r\n").encode(),
        b"\xef\xbb\xbf# caf\xc3\xa9\r\n" + GOOD.replace("\n", "\r\n").encode(),
        GOOD.rstrip("\n").encode(),
    ],
    ids=["byte order mark", "CRLF", "both", "no last line end"],
)
def test_editors_leave_their_marks(load: Load, content: bytes) -> None:
    assert load(content) == load(GOOD)


def test_256_limits_but_no_more(load: Load) -> None:
    table = '[table]\nname = "shop"\n'
    limits = [f'[limits.l{number}]\nrate = "1/s"\n' for number in range(257)]
    config = load(table + "".join(limits[:256]))
    assert [limit.name for limit in config.limits] == [f"l{number}" for number in range(256)]
    message = refusal_of(load, table + "".join(limits))
    assert message == "limits: there are 257 rates in them; accepted: at most 256 in all"


def test_a_config_survives_pickling(load: Load) -> None:
    config = load(GOOD)
    assert pickle.loads(pickle.dumps(config)) == config


# What is refused, in the file.

TABLE = '[table]\nname = "shop"\n'
LIMIT = '[limits.per_ip]\nrate = "1/s"\n'


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        # places and unknown keys
        ("", "table: is missing; accepted: a [table] with name"),
        (LIMIT, "table: is missing; accepted: a [table] with name"),
        (TABLE, "limits: is missing; accepted: a [table] with name"),
        (TABLE + "[limits]", "limits: there are none; accepted: a [table] with name"),
        ("table = 1\n" + LIMIT, "table: 1 is not accepted; accepted: a table"),
        ("[[table]]\n" + LIMIT, "table: [{}] is not accepted; accepted: a table"),
        ("limits = 'x'\n" + TABLE, "limits: 'x' is not accepted; accepted: a table"),
        ("[tabel]\n" + GOOD, "tabel: is unknown; did you mean 'table'?; accepted here: table"),
        ("[limit.a]\n" + GOOD, "limit: is unknown; did you mean 'limits'?; accepted here"),
        ("[zzz]\n" + GOOD, "zzz: is unknown; accepted here: table, hosts, limits"),
        ('"a\\u001bb" = 1\n' + GOOD, r"'a\x1bb': is unknown; accepted here: table, hosts, limits"),
        (
            TABLE + "key = 1\n" + LIMIT,
            "table.key: is unknown; did you mean 'keys'?; accepted here: name, keys, workers",
        ),
        (
            TABLE + LIMIT + "Rate = 1",
            "limits.per_ip.Rate: is unknown; did you mean 'rate'?; "
            "accepted here: rate, key, scope, mode, when_full",
        ),
        (
            TABLE + LIMIT + "whenfull = 'deny'",
            "limits.per_ip.whenfull: is unknown; did you mean 'when_full'?",
        ),
        (
            TABLE + '[limits."per.ip"]\nrate = "1/s"\nx = 1',
            "limits.'per.ip'.x: is unknown; accepted here: rate",
        ),
        (
            TABLE + '[limits.per.ip]\nrate = "1/s"',
            "limits.per.ip: is unknown; a limit's name with a dot needs quotes: "
            '[limits."per.ip"]; accepted here: rate',
        ),
        # the table
        ("[table]\n" + LIMIT, "table.name: is missing; accepted: the segment's name"),
        ("[table]\nname = 1\n" + LIMIT, "table.name: 1 is not accepted; accepted: 1 to 200 let"),
        ("[table]\nname = ''\n" + LIMIT, "table.name: '' is not accepted; accepted: 1 to 200"),
        ("[table]\nname = '..'\n" + LIMIT, "table.name: '..' is not accepted; accepted: 1 to"),
        ("[table]\nname = '/x'\n" + LIMIT, "table.name: '/x' is not accepted; accepted: 1 to"),
        ('[table]\nname = "x\\u0000"\n' + LIMIT, r"table.name: 'x\x00' is not accepted; accept"),
        ('[table]\nname = "x\\n"\n' + LIMIT, r"table.name: 'x\n' is not accepted; accepted: 1"),
        ("[table]\nname = 'é'\n" + LIMIT, "table.name: 'é' is not accepted; accepted: 1 to 200"),
        (f"[table]\nname = '{'x' * 201}'\n" + LIMIT, "table.name: 'xxxxxxxx"),
        (TABLE + "workers = 0\n" + LIMIT, "table.workers: 0 is not accepted; accepted: a whole"),
        (TABLE + "workers = 4097\n" + LIMIT, "table.workers: 4097 is not accepted; accepted"),
        (TABLE + "workers = '64'\n" + LIMIT, "table.workers: '64' is not accepted; accepted"),
        (TABLE + "workers = 2.0\n" + LIMIT, "table.workers: 2.0 is not accepted; accepted: a"),
        (TABLE + "workers = true\n" + LIMIT, "table.workers: True is not accepted; accepted:"),
        (TABLE + "keys = 0\n" + LIMIT, "table.keys: 0 is not accepted; accepted: a whole numbe"),
        (TABLE + "keys = -1\n" + LIMIT, "table.keys: -1 is not accepted; accepted: a whole num"),
        (TABLE + f"keys = {KEYS_MAX + 1}\n" + LIMIT, "table.keys: 2147483649 is not accepted;"),
        (TABLE + "keys = '3G'\n" + LIMIT, "table.keys: '3G' is not accepted; accepted: a whole"),
        (TABLE + "keys = '1.5'\n" + LIMIT, "table.keys: '1.5' is not accepted; accepted: a who"),
        (TABLE + "keys = '3000M'\n" + LIMIT, "table.keys: '3000M' is not accepted; accepted: a"),
        (TABLE + "keys = 1e6\n" + LIMIT, "table.keys: 1000000.0 is not accepted; accepted: a w"),
        (TABLE + "keys = true\n" + LIMIT, "table.keys: True is not accepted; accepted: a whole"),
        (TABLE + f"keys = 0x{'f' * 9000}\n" + LIMIT, "table.keys: (a huge int) is not accepted"),
        # the limits
        (TABLE + '[limits]\na = "1/s"', "limits.a: '1/s' is not accepted; accepted: a table: ["),
        (TABLE + '[limits."1a"]\nrate = "1/s"', "limits.1a: is no limit's name; accepted: 1 to"),
        (TABLE + '[limits."a b"]\nrate = "1/s"', "limits.'a b': is no limit's name; accepted:"),
        (TABLE + '[limits.""]\nrate = "1/s"', "limits.'': is no limit's name; accepted: 1 to 5"),
        (TABLE + f'[limits.{"a" * 56}]\nrate = "1/s"', f"limits.{'a' * 56}: is no limit's name;"),
        (TABLE + "[limits.a]", "limits.a.rate: is missing; accepted: a text such as rate ="),
        (TABLE + "[limits.a]\nrate = 5", "limits.a.rate: 5 is not accepted; accepted: a text"),
        (TABLE + "[limits.a]\nrate = 0.5", "limits.a.rate: 0.5 is not accepted; accepted: a te"),
        (TABLE + "[limits.a]\nrate = ['1/s']", "limits.a.rate: ['1/s'] is not accepted; accept"),
        (TABLE + "[limits.a]\nrate = 2020-01-01", "limits.a.rate: datetime.date(2020, 1, 1) is"),
        (
            TABLE + "[limits.a]\nrate = '1/fortnight'",
            "limits.a.rate: rate '1/fortnight': 'fortnight' is not a unit of time; accepted: COU",
        ),
        (TABLE + LIMIT + "key = 'path'", "limits.per_ip.key: 'path' is not accepted; accepted:"),
        (TABLE + LIMIT + "key = 'IP'", "limits.per_ip.key: 'IP' is not accepted; accepted: 'ip"),
        (TABLE + LIMIT + "key = 'header:'", "limits.per_ip.key: 'header:' is not accepted; acc"),
        (TABLE + LIMIT + "key = 'header:A B'", "limits.per_ip.key: 'header:A B' is not accepte"),
        (TABLE + LIMIT + "key = 'header:é'", "limits.per_ip.key: 'header:é' is not accepted; a"),
        (TABLE + LIMIT + "key = 1", "limits.per_ip.key: 1 is not accepted; accepted: 'ip' or"),
        (
            TABLE + LIMIT + "mode = 'shaddow'",
            "limits.per_ip.mode: 'shaddow' is not accepted; did you mean 'shadow'?; "
            "accepted: 'enforce', 'shadow', 'off'",
        ),
        (TABLE + LIMIT + "mode = false", "limits.per_ip.mode: False is not accepted; accepted:"),
        (TABLE + LIMIT + "mode = []", "limits.per_ip.mode: [] is not accepted; accepted: 'enfo"),
        (
            TABLE + LIMIT + "when_full = 'drop'",
            "limits.per_ip.when_full: 'drop' is not accepted; accepted: 'evict', 'deny', 'allow'",
        ),
        # the text
        ("[table\n", "is not TOML: Expected ']' at the end of a table declaration (at line 1, c"),
        (GOOD + GOOD, "is not TOML: Cannot declare ('table',) twice (at line 6, column 7)"),
        (b"# ok\n# \xff\n" + GOOD.encode(), "is not UTF-8: byte 0xff in line 2; accepted: TOML"),
        (GOOD.encode("utf-16"), "is UTF-16 in line 1; accepted: TOML in UTF-8"),
        (b"\0", "is not TOML: Invalid"),
        (f"keys = {'9' * 5000}", "holds a value that cannot be read: Exceeds the limit"),
        (f"a = {'[' * 50_000}", "is nested too deeply; accepted: TOML"),
        ("#" * (1 << 20) + "\n", "is too large; accepted: at most 1048576 bytes"),
    ],
)
def test_refused(load: Load, content: str | bytes, expected: str) -> None:
    assert refusal_of(load, content).startswith(expected)


WORDS = st.sampled_from(
    re.findall(
        r"\S+|\s",
        """[table] [limits.a] [limits. "a.b" ] = " ' name keys rate workers key mode 1/s 1M ip 1
        true [] {} table limits . , # [[table]] \u00e9 1979-05-27 nan -inf 0x1 \\u0000 \'\'\'
        """,
    )
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.one_of(st.binary(max_size=100), st.lists(WORDS, max_size=40).map("".join)))
def test_any_content_is_read_or_refused(load: Load, content: bytes | str) -> None:
    try:
        config = load(content)
    except ConfigError as error:
        message = str(error)
    else:
        assert config.limits
        return
    assert "shmlimit.toml: " in message
    assert message.isprintable()


VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.binary()
    ),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
    max_leaves=5,
)


@UNHURRIED
@given(VALUES, VALUES, VALUES)
def test_any_values_in_code_are_accepted_or_refused(one: object, two: object, six: object) -> None:
    with pytest.raises(ConfigError, match=r"^(name|rates|key|mode|when_full): .*accepted"):
        LimitConfig(one, two, six, one, two)  # type: ignore[arg-type]
    try:
        TableConfig(one, two, six)  # type: ignore[arg-type]
    except ConfigError as error:
        message = str(error)
    else:
        return
    assert "accepted" in message
    assert message.isprintable()


# What is refused in code.


def test_keys_in_code_may_be_text_and_become_a_number() -> None:
    assert TableConfig("shop", "1M").keys == 1_000_000  # type: ignore[arg-type]
    assert TableConfig("shop", "1M") == TableConfig("shop", 1_000_000)  # type: ignore[arg-type]


def test_a_rate_in_code_is_a_rate() -> None:
    with pytest.raises(ConfigError, match=r"rates: '1/s' is not accepted; accepted: a tuple"):
        LimitConfig("a", "1/s")  # type: ignore[arg-type]


def test_a_name_twice_in_code_is_refused() -> None:
    limit = LimitConfig("a", Rate.parse_several("1/s"))
    assert Config(TableConfig("shop"), (limit,)).path is None
    with pytest.raises(ConfigError, match="limits: 'a' is there twice; accepted: each name once"):
        Config(TableConfig("shop"), (limit, limit))


def test_names_at_their_bounds() -> None:
    rates = Rate.parse_several("1/s")
    assert LimitConfig("a" * 51, rates).name == "a" * 51
    assert LimitConfig("_", rates).name == "_"
    assert TableConfig("x" * 200).name == "x" * 200
    assert TableConfig("...").name == "..."
    for name in ("a" * 52, "-a", ".a", "a/b", "a\n", "é"):
        with pytest.raises(ConfigError, match=r"name: .* accepted: 1 to 51"):
            LimitConfig(name, rates)
