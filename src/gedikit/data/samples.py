"""Pictures of a shard one after the other, with their names, their labels and where they are."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby

from gedikit.data.pictures import is_picture, why_left_out
from gedikit.data.shards import ReadAhead, Shard
from gedikit.data.tar_members import BrokenArchive, Member, members

_LABEL_BYTES = 2**16
_LONGEST_LABEL = 256  # letters: what is longer describes a picture
_LABELS = (".cls", ".json")  # members beside a picture that may hold its label
_LABEL_KEYS = ("label", "cls", "class", "target")  # of JSON


@dataclass(frozen=True)
class Sample:
    """A picture as a shard holds it, or why there is none.

    `place` is where it is found again: a member's offset and length, or a row group and the row in it.
    """

    name: str
    place: tuple[int, int] = (0, 0)
    content: bytes = b""
    label: str | None = None
    refused: str = ""  # it should have been a picture
    other: str = ""  # it is something else, which is passed over


class BrokenShard(Exception):
    """Why nothing more can be read of a shard, for people."""


def tar_samples(shard: Shard) -> Iterator[Sample]:
    """As WebDataset has them: what follows each other and has one name up to its first dot belongs together."""
    read = ReadAhead(shard)
    seen, broken = set[str](), list[str]()

    def found() -> Iterator[Member]:
        try:
            yield from (member for member in members(read, shard.size) if not _base(member.name).startswith("."))
        except BrokenArchive as why:  # after what came before it
            broken.append(str(why))

    for key, together in groupby(found(), lambda member: _key(member.name)):
        own = list(together)
        if key in seen:
            yield from (Sample(member.name, refused="its key is there twice") for member in _shown(own))
            continue
        seen.add(key)
        yield from _of_one_key(own, read)
    if broken:
        raise BrokenShard(broken[0])


def _of_one_key(own: list[Member], read: Callable[[int, int], bytes]) -> Iterator[Sample]:
    shown = _shown(own)
    label = None
    if any(not member.refused for member in shown):
        said = (
            _label(_ending(member.name), read(member.offset, member.length)) for member in own if _tells(member)
        )
        label = next((label for label in said if label is not None), None)
    plain = [member for member in shown if "." not in _ending(member.name)[1:]]
    for number, member in enumerate(plain or shown):
        place = member.offset, member.length
        why = member.refused or ("its key is there twice" if plain and number else "")
        yield Sample(member.name, place, b"" if why else read(*place), label, refused=why)
    if not shown:
        for member in own:
            if (what := why_left_out(_last(member.name))) is not None or member.refused:
                yield Sample(member.name, other=what or "", refused=member.refused)


def _shown(own: list[Member]) -> list[Member]:
    return [member for member in own if is_picture(_last(member.name))]


def _tells(member: Member) -> bool:
    return _ending(member.name) in _LABELS and member.length <= _LABEL_BYTES and not member.refused


def _label(ending: str, content: bytes) -> str | None:
    """What a member beside a picture says it shows."""
    try:
        text = content.decode("utf-8").strip()
        said = json.loads(text) if ending == ".json" else {"label": text}
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    values = (str(said[key]) for key in _LABEL_KEYS if isinstance(said.get(key), str | int))
    return next((value for value in values if 0 < len(value) <= _LONGEST_LABEL), None)


def _base(name: str) -> str:
    return name.rsplit("/", 1)[-1]


def _key(name: str) -> str:
    folder, slash, base = name.rpartition("/")
    return f"{folder}{slash}{base.split('.', 1)[0]}"


def _ending(name: str) -> str:
    """All after the first dot of a name, with the dot."""
    _, dot, ending = _base(name).partition(".")
    return f"{dot}{ending}".lower()


def _last(name: str) -> str:
    _, dot, ending = _base(name).rpartition(".")
    return f"{dot}{ending}".lower()
