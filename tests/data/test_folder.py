"""Folders of pictures: real files of every format, good and bad."""

import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gedikit.data import pictures, sources
from gedikit.data.folder import folder_blocks, list_pictures, read_folder
from gedikit.errors import DataError, UsageError
from gedikit.processes import Share

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def colours(seed: int, height: int = 32, width: int = 32) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def save(path: Path, pixels: np.ndarray, **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)
    return path


def quadrants(side: int, mode: str = "RGB") -> Image.Image:
    """Red, green over blue, white."""
    image = Image.new(mode, (side, side))
    half = side // 2
    for colour, corner in ((RED, (0, 0)), (GREEN, (half, 0)), (BLUE, (0, half)), (WHITE, (half, half))):
        image.paste(Image.new("RGB", (half, half), colour).convert(mode), corner)
    return image


def corners(picture: np.ndarray) -> list[tuple[int, ...]]:
    """Pixels well inside the four quadrants, in reading order."""
    size = len(picture)
    low, high = size // 4, 3 * size // 4
    return [tuple(int(v) for v in picture[y, x]) for y in (low, high) for x in (low, high)]


def test_pictures_of_the_right_size_come_unchanged_and_sorted(tmp_path):
    made = {name: colours(i) for i, name in enumerate(["b.png", "a.PNG", "sub/c.bmp", "sub/deep/d.ppm", "B.webp"])}
    for name, pixels in made.items():
        save(tmp_path / name, pixels, **({"lossless": True} if name.endswith("webp") else {}))
    folder = read_folder(tmp_path)
    assert folder.paths == ("B.webp", "a.PNG", "b.png", "sub/c.bmp", "sub/deep/d.ppm")
    assert folder.images.dtype == np.uint8
    assert folder.images.flags.c_contiguous
    np.testing.assert_array_equal(folder.images, [made[name] for name in folder.paths])
    assert folder.skipped == ()
    assert folder.labels is None, "one sub-folder tells nothing apart"


@pytest.mark.parametrize("ending", ["jpg", "JPEG", "png", "bmp", "gif", "webp", "tif", "tiff", "ppm"])
@pytest.mark.parametrize("side", [16, 64, 1000])
def test_every_format_is_scaled(tmp_path, ending, side):
    for name in "ab":
        quadrants(side).save(tmp_path / f"{name}.{ending}", quality=98)
    folder = read_folder(tmp_path, size=16)
    assert folder.images.shape == (2, 16, 16, 3)
    np.testing.assert_allclose(corners(folder.images[0]), [RED, GREEN, BLUE, WHITE], atol=6)


def test_the_longer_side_is_cropped_on_both_ends(tmp_path):
    wide = np.zeros((40, 120, 3), np.uint8)
    wide[:, :40], wide[:, 40:80], wide[:, 80:] = RED, GREEN, BLUE
    save(tmp_path / "wide.png", wide)
    save(tmp_path / "tall.png", wide.transpose(1, 0, 2))
    for picture in read_folder(tmp_path, size=8).images:
        np.testing.assert_allclose(picture, np.broadcast_to(GREEN, (8, 8, 3)), atol=20)
        np.testing.assert_array_equal(picture[3:5, 3:5], np.broadcast_to(GREEN, (2, 2, 3)))


def test_shrinking_averages_instead_of_dropping_pixels(tmp_path):
    stripes = np.zeros((512, 512, 3), np.uint8)
    stripes[:, ::2] = 255
    for name in ("a.png", "b.tif"):
        save(tmp_path / name, stripes)
    images = read_folder(tmp_path, size=32).images
    assert np.abs(images.astype(int) - 127).max() <= 4


@pytest.mark.parametrize("ending", ["jpg", "png", "tif", "webp"])
@pytest.mark.parametrize(
    ("orientation", "expected"),
    [
        (1, [RED, GREEN, BLUE, WHITE]),
        (2, [GREEN, RED, WHITE, BLUE]),
        (3, [WHITE, BLUE, GREEN, RED]),
        (6, [BLUE, RED, WHITE, GREEN]),
        (8, [GREEN, WHITE, RED, BLUE]),
    ],
)
def test_photos_are_turned_upright(tmp_path, ending, orientation, expected):
    exif = Image.Exif()
    exif[0x0112] = orientation
    for name in "ab":
        quadrants(256).save(tmp_path / f"{name}.{ending}", exif=exif)
    np.testing.assert_allclose(corners(read_folder(tmp_path).images[0]), expected, atol=6)


def test_damaged_metadata_does_not_cost_the_picture(tmp_path):
    for name in "ab":
        quadrants(64).save(tmp_path / f"{name}.jpg", exif=b"Exif\x00\x00MM\x00*\x00\x00\x00\x08\xff\xff\x01\x12")
    folder = read_folder(tmp_path)
    assert folder.skipped == ()
    np.testing.assert_allclose(corners(folder.images[0]), [RED, GREEN, BLUE, WHITE], atol=6)


def test_what_is_transparent_shows_white(tmp_path):
    clear = np.zeros((32, 32, 4), np.uint8)
    clear[:16] = (*RED, 255)
    clear[16:24] = (0, 0, 0, 128)
    save(tmp_path / "rgba.png", clear)
    save(tmp_path / "la.png", np.dstack([np.zeros((32, 32), np.uint8), clear[..., 3]]))
    palette = quadrants(32).convert("P", palette=Image.Palette.ADAPTIVE, colors=4)
    palette.save(tmp_path / "palette.png", transparency=palette.getpixel((0, 0)))
    la, marked, rgba = read_folder(tmp_path).images
    for y, colour in ((8, RED), (20, (127, 127, 127)), (30, WHITE)):
        assert tuple(rgba[y, 5]) == colour
    assert tuple(la[8, 5]) == (0, 0, 0)
    assert tuple(la[30, 5]) == WHITE
    assert corners(marked) == [WHITE, GREEN, BLUE, WHITE]


def test_cmyk_sixteen_bits_and_one_bit(tmp_path):
    quadrants(64).convert("CMYK").save(tmp_path / "cmyk.jpg", quality=95)
    ramp = np.arange(32 * 32, dtype=np.uint16).reshape(32, 32) * 64
    save(tmp_path / "ramp.png", ramp)
    save(tmp_path / "ramp.tif", ramp)
    save(tmp_path / "ramp32.tif", ramp.astype(np.int32))
    save(tmp_path / "share.tif", (ramp / 65535).astype(np.float32))
    save(tmp_path / "share_wrong.tif", ramp.astype(np.float32))
    save(tmp_path / "wide.tif", ramp.astype(np.int32) * 1000)
    Image.fromarray(ramp > 9999).save(tmp_path / "ink.png")
    folder = read_folder(tmp_path)
    read = dict(zip(folder.paths, folder.images, strict=True))
    np.testing.assert_allclose(corners(read["cmyk.jpg"]), [RED, GREEN, BLUE, WHITE], atol=8)
    for name in ("ramp.png", "ramp.tif", "ramp32.tif"):
        np.testing.assert_array_equal(read[name], np.repeat((ramp >> 8)[..., None], 3, axis=-1))
    np.testing.assert_array_equal(read["share.tif"][..., 0], np.round(ramp.astype(np.float32) / 65535 * 255))
    np.testing.assert_array_equal(read["ink.png"][..., 0], np.where(ramp > 9999, 255, 0))
    reasons = dict(folder.skipped)
    assert "floating-point values outside 0 to 1" in reasons["share_wrong.tif"]
    assert "32-bit values from 0 to" in reasons["wide.tif"]


def test_grey_only_if_every_picture_is(tmp_path):
    grey = colours(0)[..., 0]
    save(tmp_path / "a.png", grey)
    save(tmp_path / "b.png", np.repeat(grey[..., None], 3, axis=-1))
    folder = read_folder(tmp_path)
    np.testing.assert_array_equal(folder.images, [grey[..., None]] * 2)
    assert folder.images.flags.c_contiguous
    assert read_folder(tmp_path, channels=3).images.shape == (2, 32, 32, 3)
    tinted = np.repeat(grey[..., None], 3, axis=-1)
    tinted[0, 0, 2] ^= 1
    save(tmp_path / "c.png", tinted)
    np.testing.assert_array_equal(read_folder(tmp_path).images[2], tinted)
    luma = read_folder(tmp_path, channels=1).images
    np.testing.assert_array_equal(luma[:2], [grey[..., None]] * 2)
    assert {block.images.shape[-1] for block in folder_blocks(tmp_path, block=1)} == {3}


def _huge_png(path: Path) -> None:
    """A header that announces 20000 × 20000 pixels, and hardly any data."""

    def part(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", 20_000, 20_000, 8, 2, 0, 0, 0)
    data = part(b"IHDR", header) + part(b"IDAT", zlib.compress(bytes(100))) + part(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + data)


def test_what_cannot_be_read_is_listed_with_a_reason(tmp_path, recwarn):
    for name in ("a.jpg", "z.png"):
        save(tmp_path / name, colours(0, 200, 300))
    whole_jpeg, whole_png = (tmp_path / "a.jpg").read_bytes(), (tmp_path / "z.png").read_bytes()
    (tmp_path / "cut.jpg").write_bytes(whole_jpeg[: len(whole_jpeg) // 2])
    (tmp_path / "cut.png").write_bytes(whole_png[: len(whole_png) // 2])
    (tmp_path / "empty.png").touch()
    (tmp_path / "text.jpeg").write_text("this is no picture")
    (tmp_path / "script.gif").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    (tmp_path / "gone.png").symlink_to("nowhere.png")
    (tmp_path / "self.png").symlink_to("self.png")
    os.mkfifo(tmp_path / "pipe.png")
    _huge_png(tmp_path / "bomb.png")
    (tmp_path / "notes.txt").write_text("not looked at")
    folder = read_folder(tmp_path)
    assert folder.paths == ("a.jpg", "z.png")
    expected = {
        "bomb.png": "more than 179 million pixels",
        "cut.jpg": "damaged or cut short",
        "cut.png": "damaged or cut short",
        "empty.png": "the file is empty",
        "gone.png": "a link that leads nowhere",
        "pipe.png": "not a regular file",
        "script.gif": "not a picture of a known format",
        "self.png": "a link that leads nowhere",
        "text.jpeg": "not a picture of a known format",
    }
    assert [name for name, _ in folder.skipped] == list(expected)
    for name, reason in folder.skipped:
        assert reason.startswith(expected[name]), (name, reason)
    assert not list(recwarn)


def test_hidden_things_loops_and_links(tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    save(root / "one" / "a.png", colours(0))
    save(root / "two" / "b.png", colours(1))
    save(root / ".hidden" / "c.png", colours(2))
    save(root / "._a.png", colours(3))
    save(outside / "d.png", colours(4))
    (root / "one" / "loop").symlink_to(root, target_is_directory=True)
    (root / "again").symlink_to(root / "two", target_is_directory=True)
    (root / "up").symlink_to(tmp_path, target_is_directory=True)
    (root / "zone").symlink_to(outside, target_is_directory=True)
    (outside / "back").symlink_to(root / "one", target_is_directory=True)
    (root / "e.png").symlink_to(outside / "d.png")
    folder = read_folder(root)
    assert folder.paths == ("e.png", "one/a.png", "two/b.png", "zone/d.png")
    labels = folder.labels
    assert labels is not None
    assert labels.tolist() == [None, "one", "two", "zone"]
    assert sources.load(str(root)).y is None, "nobody asked for labels"
    np.testing.assert_array_equal(sources.load(str(root), labels_from="folders").y, labels)


def test_what_shows_something_and_is_not_read_is_named(tmp_path):
    for i in range(2):
        save(tmp_path / f"{i}.png", colours(i))
    for name in ("sub/clip.MP4", "scan.pdf", "raw.NEF", "notes.txt", "data.csv", ".hidden.mov"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"anything")
    folder = read_folder(tmp_path)
    assert [name for name, _ in folder.skipped] == ["raw.NEF", "scan.pdf", "sub/clip.MP4"]
    assert dict(folder.skipped)["sub/clip.MP4"] == "a video"
    (blocks,) = folder_blocks(tmp_path)
    assert blocks.skipped == folder.skipped


def test_heic_is_named_with_the_extra_that_reads_it(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "_optional_formats", dict)
    for i in range(2):
        save(tmp_path / f"{i}.png", colours(i))
    (tmp_path / "IMG_0001.HEIC").write_bytes(b"anything")
    assert dict(read_folder(tmp_path).skipped) == {
        "IMG_0001.HEIC": "HEIC is read with the extra heic: pip install 'gedikit[heic]'"
    }
    monkeypatch.setattr(pictures, "_optional_formats", lambda: {"HEIF": (".heic",)})
    why = dict(read_folder(tmp_path).skipped)["IMG_0001.HEIC"]
    assert "extra" not in why, "it was opened"


def test_the_fingerprint_of_a_listing_changes_with_its_files(tmp_path):
    for i in range(2):
        save(tmp_path / f"{i}.png", colours(i))
    first = list_pictures(tmp_path).fingerprint
    (tmp_path / "notes.txt").write_text("no picture")
    assert list_pictures(tmp_path).fingerprint == first
    os.utime(tmp_path / "1.png", (1, 1))
    touched = list_pictures(tmp_path).fingerprint
    (tmp_path / "1.png").rename(tmp_path / "2.png")
    renamed = list_pictures(tmp_path).fingerprint
    assert len({first, touched, renamed}) == 3


def test_a_small_copy_is_whole_and_upright(tmp_path):
    wide = np.zeros((60, 240, 3), np.uint8)
    wide[:, :120], wide[:, 120:] = RED, BLUE
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    Image.fromarray(wide[::-1, ::-1]).save(tmp_path / "a.png", exif=exif)
    small = pictures.read_small(tmp_path / "a.png", 80)
    assert small.size == (80, 20)
    np.testing.assert_array_equal(np.asarray(small)[10, [4, 75]], [RED, BLUE])
    assert pictures.read_small(tmp_path / "a.png", 500).size == (240, 60), "nothing is enlarged"
    with pytest.raises(pictures.Unreadable, match="not a regular file"):
        pictures.read_small(tmp_path, 80)


def test_odd_names_can_be_written_down(tmp_path):
    save(tmp_path / "größe ä.png", colours(0))
    save(tmp_path / "plain.png", colours(1)).rename(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.png"))
    folder = read_folder(tmp_path)
    assert folder.paths == ("\\xff.png", "größe ä.png")
    "".join(folder.paths).encode("utf-8")


def test_too_few_pictures_is_a_sentence(tmp_path):
    with pytest.raises(DataError, match=r"has no picture: files ending in \.jpg"):
        read_folder(tmp_path)
    with pytest.raises(DataError, match="has no picture"):
        list(folder_blocks(tmp_path))
    (tmp_path / "bad.png").write_bytes(b"x")
    with pytest.raises(DataError, match=r"no picture that can be read; 1 cannot, the first being bad\.png: not a"):
        read_folder(tmp_path)
    save(tmp_path / "only.png", colours(0))
    with pytest.raises(DataError, match="has only one picture"):
        read_folder(tmp_path)
    (block,) = folder_blocks(tmp_path)
    assert block.paths == ("only.png",), "one picture is enough to be predicted"
    with pytest.raises(UsageError, match="there is no folder"):
        read_folder(tmp_path / "absent")


@pytest.mark.parametrize("size", [0, 4, 30, -32])
def test_sizes_that_cannot_be_used(tmp_path, size):
    with pytest.raises(UsageError, match=f"multiple of 4 and at least 8, not {size}"):
        read_folder(tmp_path, size=size)


def test_blocks_hold_what_the_whole_holds(tmp_path):
    for i in range(7):
        save(tmp_path / f"{i}.png", colours(i, 40 + i, 60))
    for name in ("2x.png", "7x.png", "8x.png"):
        (tmp_path / name).touch()
    whole, blocks = read_folder(tmp_path, size=16), list(folder_blocks(tmp_path, size=16, block=2))
    np.testing.assert_array_equal(np.concatenate([block.images for block in blocks]), whole.images)
    assert sum((block.paths for block in blocks), ()) == whole.paths
    assert sum((block.skipped for block in blocks), ()) == whole.skipped
    assert len(whole.skipped) == 3


def test_processes_take_blocks_in_turns(tmp_path):
    for i in range(5):
        save(tmp_path / f"{i}.png", colours(i))
    for name in ("2x.png", "2y.png", "7x.png"):
        (tmp_path / name).touch()
    (tmp_path / "film.mov").touch()
    whole = read_folder(tmp_path, size=16)
    shares = [Share(rank, 3) for rank in range(3)]
    of_each = [list(folder_blocks(tmp_path, size=16, block=2, share=share)) for share in shares]
    assert [[block.paths for block in own] for own in of_each] == [
        [("0.png", "1.png"), ("4.png",)],
        [("2.png",)],
        [("3.png",)],
    ]
    blocks = [*(own[0] for own in of_each), of_each[0][1]]
    np.testing.assert_array_equal(np.concatenate([block.images for block in blocks]), whole.images)
    assert sum((block.skipped for block in blocks), ()) == whole.skipped


def test_progress_counts_every_file(tmp_path):
    for i in range(5):
        save(tmp_path / f"{i}.png", colours(i))
    (tmp_path / "bad.png").touch()
    seen = []
    read_folder(tmp_path, on_progress=lambda done, total: seen.append((done, total)))
    assert seen == [(i, 6) for i in range(1, 7)]


def test_a_folder_is_a_source(tmp_path):
    for i in range(3):
        save(tmp_path / "photos" / "ab"[i % 2] / f"{i}.png", colours(i))
    (tmp_path / "photos" / "bad.png").touch()
    source = str(tmp_path / "photos")
    data = sources.load(source, labels_from="folders")
    assert data.x.shape == (3, 3072)
    assert data.x.dtype == np.uint8
    assert np.shares_memory(data.x, data.x.base)
    assert data.image_shape == (32, 32, 3)
    assert data.names == ("a/0.png", "a/2.png", "b/1.png")
    assert data.y is not None
    assert data.y.tolist() == ["a", "a", "b"]
    assert data.skipped == (("bad.png", "the file is empty"),)
    np.testing.assert_array_equal(data.x[1].reshape(32, 32, 3), colours(2))
    assert sources.load(source, image_size=8).image_shape == (8, 8, 3)
    (block,) = sources.blocks(source, image_size=8, image_channels=1)
    assert block.x.shape == (3, 64)
    assert block.names == data.names
    assert block.skipped == data.skipped
    with pytest.raises(UsageError, match=r"'nowhere' is neither a built-in .* nor an existing folder"):
        sources.load("nowhere")


def test_bytes_of_images_in_array_files_have_a_shape(tmp_path):
    rng = np.random.default_rng(0)
    for name, shape, image_shape in (
        ("grey", (6, 8, 12), (8, 12, 1)),
        ("one", (6, 8, 12, 1), (8, 12, 1)),
        ("rgb", (6, 8, 12, 3), (8, 12, 3)),
    ):
        x = rng.integers(0, 256, shape, dtype=np.uint8)
        np.save(tmp_path / f"{name}.npy", x)
        np.savez(tmp_path / f"{name}.npz", x=x, y=np.arange(6))
        for ending in ("npy", "npz"):
            data = sources.load(str(tmp_path / f"{name}.{ending}"))
            assert data.image_shape == image_shape
            assert data.x.dtype == np.uint8
            np.testing.assert_array_equal(data.x, x.reshape(6, -1))
            (block,) = sources.blocks(str(tmp_path / f"{name}.{ending}"))
            np.testing.assert_array_equal(block.x, x.reshape(6, -1))
    np.save(tmp_path / "floats.npy", rng.normal(size=(6, 4, 5)))
    floats = sources.load(str(tmp_path / "floats.npy"))
    assert floats.x.shape == (6, 20)
    assert floats.image_shape is None
    for wrong in (np.zeros((6, 3, 32, 32), np.uint8), np.zeros((6, 8, 8, 3))):
        np.save(tmp_path / "wrong.npy", wrong)
        with pytest.raises(DataError, match=r"wrong.npy has shape .* images are uint8 of shape"):
            sources.load(str(tmp_path / "wrong.npy"))
