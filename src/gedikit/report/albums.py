"""Pictures of a folder at a size that people can see, linked to their files."""

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from gedikit.data.folder import list_pictures
from gedikit.data.pictures import Unreadable, read_small
from gedikit.report.style import data_uri

_LONGEST = 160  # CSS pixels
_SHARP = 1.5  # pixels stored for each of them: screens have more than one, and a page should stay small


@dataclass(frozen=True)
class Shot:
    """A picture on the page; without an address where its file cannot be read any more."""

    name: str
    uri: str = ""
    href: str = ""
    width: int = 0  # CSS pixels


class Album:
    """The pictures of a folder by their names."""

    def __init__(self, root: Path, names: tuple[str, ...]):
        self._names = names
        self._places = dict(list_pictures(root.resolve()).files) if root.is_dir() else {}
        self._taken: dict[int, Shot] = {}

    def shot(self, row: int) -> Shot:
        """One of them, read once."""
        if row not in self._taken:
            self._taken[row] = self._take(self._names[row])
        return self._taken[row]

    def _take(self, name: str) -> Shot:
        place = self._places.get(name)
        if place is None:
            return Shot(name)
        try:
            picture = read_small(place, round(_SHARP * _LONGEST))
        except Unreadable:
            return Shot(name, href=place.as_uri())
        buffer = BytesIO()
        picture.save(buffer, format="jpeg", quality=82)
        width = max(1, round(picture.width * _LONGEST / max(picture.size)))
        return Shot(name, data_uri(buffer.getvalue(), "jpeg"), place.as_uri(), width)
