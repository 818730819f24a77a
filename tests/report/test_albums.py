"""Pictures of a folder on the page: whole, linked, and missed where they are gone."""

import base64
from io import BytesIO

import numpy as np
from PIL import Image

from gedikit.report.albums import Album


def opened(uri: str) -> Image.Image:
    return Image.open(BytesIO(base64.b64decode(uri.partition(",")[2])))


def test_a_shot_is_the_whole_picture_with_a_link_to_its_file(tmp_path):
    wide = np.zeros((100, 400, 3), np.uint8)
    wide[:, :200] = (250, 0, 0)
    (tmp_path / "a b").mkdir()
    Image.fromarray(wide).save(tmp_path / "a b" / "ä#.png")
    shot = Album(tmp_path, ("a b/ä#.png",)).shot(0)
    assert shot.name == "a b/ä#.png"
    assert shot.href.endswith("/a%20b/%C3%A4%23.png") and shot.href.startswith("file:///")
    picture = opened(shot.uri)
    assert shot.width == 160 and picture.size == (240, 60), "as wide as the page needs on a sharp screen"
    np.testing.assert_allclose(np.asarray(picture)[30, [10, 230]], [(250, 0, 0), (0, 0, 0)], atol=6)


def test_upright_and_small_pictures_keep_their_proportions(tmp_path):
    Image.new("RGB", (100, 400)).save(tmp_path / "tall.png")
    Image.new("L", (20, 10)).save(tmp_path / "tiny.png")
    album = Album(tmp_path, ("tall.png", "tiny.png"))
    assert album.shot(0).width == 40 and album.shot(1).width == 160


def test_what_is_gone_or_damaged_since_is_a_name_without_a_picture(tmp_path):
    (tmp_path / "damaged.png").write_text("no picture")
    album = Album(tmp_path, ("damaged.png", "gone.png"))
    assert (album.shot(0).uri, album.shot(0).href) == ("", (tmp_path / "damaged.png").resolve().as_uri())
    assert (album.shot(1).uri, album.shot(1).href) == ("", "")
    assert Album(tmp_path / "no folder", ("a.png",)).shot(0).name == "a.png"


def test_a_picture_is_read_once(tmp_path):
    Image.new("RGB", (40, 40), (9, 99, 9)).save(tmp_path / "a.png")
    album = Album(tmp_path, ("a.png",))
    first = album.shot(0)
    (tmp_path / "a.png").unlink()
    assert album.shot(0) is first
