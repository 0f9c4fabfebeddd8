"""The key of a request: addresses by person, headers without a way around or into another's key."""

from __future__ import annotations

import pytest

from shmlimit.http.keys import NO_ADDRESS, address_key, key_function


def test_an_ipv4_address_is_its_own_key() -> None:
    assert address_key("203.0.113.7") == b"ip:203.0.113.7"
    assert address_key("203.0.113.8") == b"ip:203.0.113.8"


@pytest.mark.parametrize(
    "address",
    [
        "2001:db8:1:2::",
        "2001:db8:1:2::1",
        "2001:0DB8:0001:0002:ffff:ffff:ffff:ffff",
        "2001:db8:1:2:0:0:192.0.2.1",
        "2001:db8:1:2::1%eth0",
    ],
)
def test_every_address_of_a_64_is_one_key(address: str) -> None:
    assert address_key(address) == b"ip:2001:db8:1:2::/64"


def test_another_64_is_another_key() -> None:
    assert address_key("2001:db8:1:3::1") == b"ip:2001:db8:1:3::/64"


@pytest.mark.parametrize(
    "address", ["::ffff:203.0.113.7", "::FFFF:cb00:7107", "0:0:0:0:0:ffff:cb00:7107"]
)
def test_an_ipv4_mapped_address_counts_as_the_ipv4_address(address: str) -> None:
    assert address_key(address) == address_key("203.0.113.7")


def test_addresses_of_the_64_that_holds_the_mapped_ones_are_not_ipv4() -> None:
    assert address_key("::1") == address_key("::2") == b"ip:::/64"


@pytest.mark.parametrize(
    "address",
    ["", " ", "unix:", "/run/app.sock", "203.0.113.7:80", "[2001:db8::1]", "1.2.3", "01.2.3.4",
     "1.2.3.4\0", "2001:db8::1\0", "localhost", "::g", "1\u0663.2.3.4", "\udc80", "%eth0",
     "9" * 10_000],
)  # fmt: skip
def test_what_is_no_address_shares_one_key(address: str) -> None:
    assert address_key(address) == NO_ADDRESS


@pytest.mark.parametrize(
    "environ",
    [{"REMOTE_ADDR": odd} for odd in ("", None, b"203.0.113.7", ("203.0.113.7", 80))] + [{}],
)
def test_a_peer_without_an_address_shares_one_key(environ: dict[str, object]) -> None:
    assert key_function("ip")(environ) == NO_ADDRESS


def test_a_header_is_counted_by_its_stripped_bytes() -> None:
    key_of = key_function("header:X-Api-Key")
    assert key_of({"HTTP_X_API_KEY": " \tabc "}) == b"h:abc"
    assert key_of({"HTTP_X_API_KEY": "\xc3\xa4"}) == "h:ä".encode()
    assert key_of({"HTTP_X_API_KEY": "k" * 100_000}) == b"h:" + b"k" * 100_000


def test_a_header_that_is_no_latin_1_is_a_key_and_no_error() -> None:
    assert key_function("header:X")({"HTTP_X": "\u20ac"}) == b"h:\\u20ac"


@pytest.mark.parametrize("name", ["x-api-key", "X-API-KEY", "X-Api-Key"])
def test_a_header_name_has_no_case(name: str) -> None:
    assert key_function(f"header:{name}")({"HTTP_X_API_KEY": "abc"}) == b"h:abc"


def test_the_two_headers_without_prefix_are_found() -> None:
    assert key_function("header:Content-Type")({"CONTENT_TYPE": "text/plain"}) == b"h:text/plain"
    assert key_function("header:Content-Length")({"CONTENT_LENGTH": "5"}) == b"h:5"


@pytest.mark.parametrize("value", [{}, {"HTTP_X_API_KEY": ""}, {"HTTP_X_API_KEY": " \t"}])
def test_without_the_header_the_address_counts(value: dict[str, str]) -> None:
    key_of = key_function("header:X-Api-Key")
    assert key_of({"REMOTE_ADDR": "203.0.113.7", **value}) == b"ip:203.0.113.7"


@pytest.mark.parametrize("written", ["203.0.113.7", "ip:203.0.113.7", "unknown", "h:abc"])
def test_no_header_is_the_key_of_an_address(written: str) -> None:
    by_header = key_function("header:X")({"HTTP_X": written, "REMOTE_ADDR": "198.51.100.1"})
    assert by_header.startswith(b"h:")
    assert not address_key("203.0.113.7").startswith(b"h:")
    assert not NO_ADDRESS.startswith(b"h:")


@pytest.mark.parametrize("counted", ["", "IP", "ip:", "header", "header:", "path", "Header:X"])
def test_an_unknown_kind_of_key_is_refused_with_what_is_accepted(counted: str) -> None:
    with pytest.raises(ValueError, match="accepted: 'ip' or 'header:NAME'"):
        key_function(counted)


@pytest.mark.parametrize("odd", [None, b"secret", 5, "", "  "])
def test_a_header_that_is_no_text_counts_by_address(odd: object) -> None:
    environ = {"REMOTE_ADDR": "203.0.113.7", "HTTP_X_API_KEY": odd}
    assert key_function("header:X-Api-Key")(environ) == b"ip:203.0.113.7"
