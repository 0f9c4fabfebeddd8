"""The hash of keys, against published values and two implementations that are not ours.

Published are values of SipHash-2-4. They prove the plain one below, whose rounds are parameters;
with 1 and 3 rounds it then stands for SipHash-1-3. CPython's own hash of bytes is another.
"""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from shmlimit import _core

PUBLISHED_KEY = bytes(range(16))
# Length of the message 00 01 02 ... -> SipHash-2-4; 15 bytes are the example of the paper.
PUBLISHED_2_4 = {
    0: 0x726FDB47DD0E0E31,
    1: 0x74F839C593DC67FD,
    2: 0x0D6C8009D9A94F5A,
    3: 0x85676696D7FB7E2D,
    15: 0xA129CA6149BE45E5,
    63: 0x958A324CEB064572,
}
# The first and the last of the reference implementation's 64 values for 1 and 3 rounds.
PUBLISHED_1_3 = {0: 0xABAC0158050FC4DC, 63: 0x9D199062B7BBB3A8}

WORD = 2**64 - 1


def rotated(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) & WORD


class PlainSipHash:
    """SipHash with any number of rounds, in whole numbers as the paper has it."""

    def __init__(self, key: bytes, block_rounds: int, final_rounds: int) -> None:
        low, high = (int.from_bytes(half, "little") for half in (key[:8], key[8:]))
        text = b"somepseudorandomlygeneratedbytes"
        constants = [int.from_bytes(text[i : i + 8], "big") for i in range(0, 32, 8)]
        self.v = [c ^ k for c, k in zip(constants, (low, high, low, high), strict=True)]
        self.block_rounds = block_rounds
        self.final_rounds = final_rounds

    def _rounds(self, count: int) -> None:
        v0, v1, v2, v3 = self.v
        for _ in range(count):
            v0, v2 = (v0 + v1) & WORD, (v2 + v3) & WORD
            v1, v3 = rotated(v1, 13) ^ v0, rotated(v3, 16) ^ v2
            v0 = rotated(v0, 32)
            v2, v0 = (v2 + v1) & WORD, (v0 + v3) & WORD
            v1, v3 = rotated(v1, 17) ^ v2, rotated(v3, 21) ^ v0
            v2 = rotated(v2, 32)
        self.v = [v0, v1, v2, v3]

    def of(self, message: bytes) -> int:
        padding = bytes(7 - len(message) % 8) + bytes([len(message) % 256])
        padded = message + padding
        for start in range(0, len(padded), 8):
            block = int.from_bytes(padded[start : start + 8], "little")
            self.v[3] ^= block
            self._rounds(self.block_rounds)
            self.v[0] ^= block
        self.v[2] ^= 0xFF
        self._rounds(self.final_rounds)
        return self.v[0] ^ self.v[1] ^ self.v[2] ^ self.v[3]


def plain_1_3(key: bytes, message: bytes) -> int:
    return PlainSipHash(key, 1, 3).of(message)


def messages() -> list[bytes]:
    """Random bytes of every length to 64, and of longer ones around the length byte's overflow."""
    draw = random.Random(1)
    lengths = [*range(65), 127, 128, 255, 256, 257, 511, 1000, 4096]
    return [draw.randbytes(length) for length in lengths]


@pytest.mark.parametrize("length", PUBLISHED_2_4)
def test_the_plain_one_gives_the_published_values(length: int) -> None:
    plain = PlainSipHash(PUBLISHED_KEY, 2, 4)
    assert plain.of(bytes(range(length))) == PUBLISHED_2_4[length]


@pytest.mark.parametrize("length", PUBLISHED_1_3)
def test_published_values_of_one_and_three_rounds(length: int) -> None:
    message = bytes(range(length))
    assert plain_1_3(PUBLISHED_KEY, message) == PUBLISHED_1_3[length]
    assert _core.siphash13(PUBLISHED_KEY, message) == PUBLISHED_1_3[length]


def test_every_length_agrees_with_the_plain_one() -> None:
    draw = random.Random(2)
    for message in messages():
        for key in (PUBLISHED_KEY, bytes(16), b"\xff" * 16, draw.randbytes(16)):
            found = _core.siphash13(key, message)
            assert found == plain_1_3(key, message), (key, len(message))


@pytest.mark.skipif(
    sys.hash_info.algorithm != "siphash13", reason="this Python hashes bytes in another way"
)
def test_python_hashes_bytes_alike_under_a_key_of_zeros() -> None:
    told = [message for message in messages() if message]  # Python gives empty bytes a fixed 0
    program = (
        "import sys\n"
        "for line in sys.stdin:\n"
        "    print(hash(bytes.fromhex(line)) % 2**64)\n"  # hash() is signed
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input="\n".join(message.hex() for message in told),
        env={"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    hashes = [int(line) for line in done.stdout.splitlines()]
    assert len(hashes) == len(told)
    for message, expected in zip(told, hashes, strict=True):
        assert _core.siphash13(bytes(16), message) == expected, len(message)


def test_a_secret_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        _core.siphash13(bytes(15), b"")
