"""Reading a small regular file whole, without ever waiting for anybody."""

from __future__ import annotations

import os
import stat
from pathlib import Path


class UnreadableFile(Exception):
    """The text says what is wrong: "is a directory". Whoever reads puts the path before it."""

    def __init__(self, fault: str, remedy: str = "", *, missing: bool = False) -> None:
        super().__init__(fault)
        self.remedy = remedy  # "" when it depends on what the file is for
        self.missing = missing  # there is no such file


def content_of(path: Path, bytes_max: int) -> bytes:
    """UnreadableFile: there is no such file, it is no regular one, too large, or cannot be read."""
    try:
        # Opening a FIFO would wait for its writer, were it not for O_NONBLOCK.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                kind = "a directory" if stat.S_ISDIR(mode) else "no regular file"
                raise UnreadableFile(f"is {kind}")
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read(bytes_max + 1)
        finally:
            os.close(descriptor)
    except (FileNotFoundError, NotADirectoryError):
        raise UnreadableFile("there is no such file", missing=True) from None
    except PermissionError:
        raise UnreadableFile(
            f"may not be read by user id {os.geteuid()}",
            "make the file readable, and the directories above it searchable, for that user",
        ) from None
    except (OSError, UnicodeError) as error:  # UnicodeError: no file system can spell the name
        reason = error.strerror if isinstance(error, OSError) else "its name is not UTF-8"
        raise UnreadableFile(f"cannot be read: {reason}") from None
    if len(content) > bytes_max:
        raise UnreadableFile("is too large", f"accepted: at most {bytes_max} bytes")
    return content


def printable(path: Path) -> str:
    """The path for a message: bytes that are no text must not break the log that it goes to."""
    text = str(path)
    return text if text.isprintable() else ascii(text)
