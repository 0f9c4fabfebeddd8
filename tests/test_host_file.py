"""file:PATH: which contents are a count of hosts, and that all else is refused with its reason."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shmlimit.errors import SourceFailed
from shmlimit.hosts.file import FileSource
from shmlimit.hosts.source import Reading


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "hosts"


def read(path: Path) -> Reading:
    return FileSource(str(path), 10.0).read()


def fault(path: Path) -> str:
    """The message, without the path at its start."""
    with pytest.raises(SourceFailed) as failure:
        read(path)
    message = str(failure.value)
    assert message.startswith(f"{path}: ")
    assert message.isprintable()
    assert len(message) < 600
    return message.removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("content", "count"),
    [
        (b"3", 3),
        (b"3\n", 3),
        (b"3\r\n", 3),
        (b"\xef\xbb\xbf3", 3),
        (b"\xef\xbb\xbf3\r\n", 3),
        (b"  007\t\n\n", 7),
        (b"# hosts\n\n3 # of them\n", 3),
        (b"1000000", 1_000_000),
        (b"web-1\nweb-2\n", 2),
        (b"web-1\r\nweb-2\r\n\r\n# web-3\r\n", 2),
        (b"web-1\rweb-2\r", 2),
        (b"\xef\xbb\xbfweb-1\nweb-2", 2),
        (b"localhost", 1),
        (b"web-1 # caf\xc3\xa9\nweb_2.Example.net\n", 2),
        (b"3com.example.net\n1.web\n", 2),
    ],
)
def test_what_is_a_count(path: Path, content: bytes, count: int) -> None:
    path.write_bytes(content)
    assert read(path) == Reading(count, 10.0)


@pytest.mark.parametrize(
    "content",
    [
        "web-1\nweb-1\n",
        "web-1\nWEB-1.\n",
        "10.0.0.7\n10.0.0.7\n",
        "10.0.0.7\n::ffff:10.0.0.7\n",
        "2001:DB8::1\n2001:db8:0::1\n",
        "web-1\n# web-2\nweb-1 # again",
    ],
)
def test_a_host_that_is_there_twice_counts_once(path: Path, content: str) -> None:
    path.write_text(content)
    assert read(path).count == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b" \r\n\n# 3\n", "is empty"),
        (b"0", "0 is no count of hosts"),
        (b"-3", "line 1: '-3'"),
        (b"+3", "line 1: '+3'"),
        (b"3.0", "line 1: '3.0'"),
        (b"3.", "line 1: '3.'"),
        (b"3 4", "line 1: '3 4'"),
        (b"3\n4\n", "line 1: '3'"),
        (b"\n\nweb-1\n3\n", "line 4: '3'"),
        (b"3e2", "line 1: '3e2'"),
        (b"1_000", "line 1: '1_000'"),
        (b"1,000", "line 1: '1,000'"),
        (b"1000001", "1000001 is no count of hosts"),
        (b"9" * 20, "is no count of hosts"),
        (b"9" * 5000, "line 1: '999"),
        ("٣".encode(), "line 1: '٣'"),
        (b"10.0.0.256", "line 1: '10.0.0.256'"),
        (b"10.0.0.0/8", "line 1: '10.0.0.0/8'"),
        (b"web-1 web-2", "line 1: 'web-1 web-2'"),
        (b"web-1:8080", "line 1: 'web-1:8080'"),
        (b"web-1, web-2", "line 1"),
        (b"-web", "line 1"),
        (b"web..1", "line 1"),
        (b"a" * 254, "line 1"),
        (b"a-" * 100_000, "line 1"),
        (b"web\0", r"line 1: 'web\x00'"),
        (b'{"hosts": 3}', "line 1"),
        (b"3\n\xff\n", "is not UTF-8: byte 0xff in line 2"),
        ("3\n".encode("utf-16"), "is not UTF-8"),
    ],
)
def test_what_is_no_count(path: Path, content: bytes, words: str) -> None:
    path.write_bytes(content)
    message = fault(path)
    assert message.startswith(words) or words in message
    assert (
        "accepted: one whole number from 1 to 1000000, or one host name or address" in message
        or ("accepted: a whole number from 1 to 1000000" in message)
    )


def test_bytes_that_are_no_text_and_then_a_valid_6(path: Path) -> None:
    source = FileSource(str(path), 10.0)
    path.write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(SourceFailed):
        source.read()
    path.write_bytes(b"6")
    assert source.read().count == 6


def test_100_000_hosts_are_a_list_but_a_huge_file_is_none(path: Path) -> None:
    path.write_text("".join(f"web-{number}.example.net\n" for number in range(100_000)))
    assert read(path).count == 100_000
    path.write_bytes(b"#" * ((4 << 20) + 1))
    assert fault(path) == "is too large; accepted: at most 4194304 bytes"


def test_what_is_no_regular_file_is_refused_without_waiting(path: Path) -> None:
    assert fault(path).startswith("there is no such file; accepted: a file with one whole number")
    os.mkfifo(path)
    assert fault(path).startswith("is no regular file; accepted: a file with")
    path.unlink()
    path.mkdir()
    assert fault(path).startswith("is a directory; accepted: a file with")
    assert fault(path / "under" / "it").startswith("there is no such file")
    path.rmdir()
    path.symlink_to(path)
    assert fault(path).startswith("cannot be read: ")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_file_that_may_not_be_read_names_the_user(path: Path) -> None:
    # The user may enter the directory, which pytest makes private, by being there already.
    path.write_text("3")
    path.chmod(0o600)
    code = (
        "import os, sys\nfrom shmlimit.hosts.file import FileSource\n"
        "from shmlimit.errors import SourceFailed\n"
        "os.chmod('.', 0o755); os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try: FileSource(sys.argv[1], 1).read()\n"
        "except SourceFailed as failure: print(failure)\n"
    )
    path.parent.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        cwd=path.parent,
    )
    assert "may not be read by user id 65534; make the file readable" in done.stdout
