"""The members of a tar archive, found by its headers alone: nothing is unpacked, and names lead nowhere."""

import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_HEADER = 512
_LONGEST = 2**16  # bytes of a name or of what a header says beside the usual
LARGEST = 2**28  # bytes of a member that is read
_GZIP = b"\x1f\x8b"
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
_BESIDE = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)
_NO_FILES = {
    tarfile.LNKTYPE: "a link",
    tarfile.SYMTYPE: "a link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe",
    tarfile.GNUTYPE_SPARSE: "a file with holes",
}
Read = Callable[[int, int], bytes]  # from a place on, so many bytes or as many as there are


class BrokenArchive(Exception):
    """Why nothing more can be found in an archive, for people."""


@dataclass(frozen=True)
class Member:
    """A file in an archive: where its bytes are, or why they are not read."""

    name: str
    offset: int
    length: int
    refused: str = ""


def members(read: Read, size: int) -> Iterator[Member]:
    """Files of an archive of `size` bytes in their order; folders are passed over."""
    if not size:
        raise BrokenArchive("the file is empty")
    if read(0, 2) == _GZIP:
        raise BrokenArchive("it is compressed, and a member of it cannot be read by itself: unpack it with gunzip")
    at, name, length = 0, None, None  # the last two from headers before the header that they are about
    while at < size:
        head = read(at, _HEADER)
        if len(head) == _HEADER and not any(head):
            return
        info = _parsed(head, at)
        start = at + _HEADER
        held = info.size if length is None or info.type not in _PLAIN else length
        if start + held > size:
            raise BrokenArchive(
                f"cut short at byte {at}: a member announces {held} bytes and {size - start} are left"
            )
        at = start + -(-held // _HEADER) * _HEADER
        if info.type in (*_BESIDE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK):
            if held > _LONGEST:
                raise BrokenArchive(f"a header of {held} bytes at byte {start}: no file has so long a name")
            said = read(start, held)
            if info.type == tarfile.GNUTYPE_LONGNAME:
                name = _text(said)
            elif info.type in _BESIDE:
                name, length = _beside(said, name)
            continue
        own = info.name if name is None else name
        name = length = None
        if info.type in _PLAIN:
            why = f"{held} bytes: more than {LARGEST >> 20} MiB" if held > LARGEST else ""
            yield Member(own, start, held, why)
        elif info.type != tarfile.DIRTYPE:
            yield Member(own, start, 0, f"{_NO_FILES.get(info.type, 'something unknown')}, not a file")


def _parsed(head: bytes, at: int) -> tarfile.TarInfo:
    try:
        info = tarfile.TarInfo.frombuf(head, "utf-8", "backslashreplace")
    except (tarfile.HeaderError, ValueError, OverflowError) as error:
        raise BrokenArchive(f"no header of a member at byte {at} ({error}): damaged, or no tar archive") from None
    if info.size < 0:
        raise BrokenArchive(f"a member of negative size at byte {at}")
    return info


def _beside(said: bytes, name: str | None) -> tuple[str | None, int | None]:
    """Name and size of the next member as a header of POSIX 2001 has them: lines "length key=value"."""
    length, at = None, 0
    while at < len(said):
        digits, _, _ = said[at : at + 20].partition(b" ")
        if not digits.isdigit() or int(digits) <= len(digits) + 1:
            break
        line = said[at + len(digits) + 1 : at + int(digits)]
        key, _, value = line.rstrip(b"\n").partition(b"=")
        if key == b"path":
            name = _text(value)
        elif key == b"size" and value.isdigit() and len(value) < 19:
            length = int(value)
        at += int(digits)
    return name, length


def _text(raw: bytes) -> str:
    return raw.rstrip(b"\0").decode("utf-8", "backslashreplace")
