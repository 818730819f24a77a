"""How files are damaged: bytes changed, lost, repeated, moved, and numbers and words that break readers."""

import struct

from hostile_readers import Damage, Reader
from hypothesis import strategies as st

NUMBERS = [
    struct.pack(end + size, value)
    for end in "<>"
    for size, value in (
        *(("I", n) for n in (0, 1, 2**16, 10**9, 2**31 - 1, 2**31, 2**32 - 1)),
        *(("Q", n) for n in (2**32, 2**40, 2**63 - 1, 2**64 - 1)),
        *(("H", n) for n in (0, 2**15, 2**16 - 1)),
    )
]
WORDS = [
    *(
        b"nan",
        b"inf",
        b"-1",
        b"1e309",
        b"1e9",
        b"1000000000",
        b"99999999999999999999",
        b"0",
        b'"',
        b"'",
        b"\0",
        b"",
    ),
    *(
        b",",
        b";",
        b"\n",
        b"\r",
        b"[",
        b"]",
        b"{",
        b"}",
        b"(",
        b")",
        b"=",
        b".",
        b"%",
        b"\\",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
    ),
    *(b"true", b"null", b"none", b"../../x", b"/dev/zero", b"=1+1", b"<script>", b"$x$", b"\x1b[31m", b"a" * 5000),
    *(b"[" * 3000, b"(" * 3000, b'{"a":' * 3000, b"9" * 5000, b"9**9**9", b"2**64**8", b"a.a" * 500, b"1979-05-27"),
    *(
        b"query(",
        b"::",
        b":-",
        b"nn(d, [X], Y, [0,1]) ::",
        b"digit(",
        b"s(s(s(",
        b"X",
        b"between(1, 1000000000, X)",
    ),
    *(
        b'"nesting": {}, ',
        b'"n_clusters": 1000000000',
        b"[[0]]",
        b'"a" * 9',
        b"&#65;",
        b"<!DOCTYPE x [",
        b'r="XFD1048576"',
    ),
]
EDITS = ("flip", "set", "cut", "insert", "delete", "repeat", "swap", "number", "word", "digits")
Edit = tuple[str, float, float, int, int]

edits = st.lists(
    st.tuples(
        st.sampled_from(EDITS),
        st.one_of(st.floats(0, 1), st.floats(0, 0.1), st.floats(0.9, 1)),
        st.floats(0, 1),
        st.integers(0, 255),
        st.integers(0, 10**6),
    ),
    min_size=1,
    max_size=6,
)
choices = st.tuples(st.integers(0, 100), st.booleans(), edits)


def damaged(reader: Reader, choice: tuple[int, bool, list[Edit]]) -> bytes:
    """A whole file of a reader after some edits, of itself or of what is packed in it."""
    which, inside, chosen = choice
    whole = reader.whole()
    content = whole[which % len(whole)]
    damage = _all(chosen)
    return reader.inside(content, damage) if inside and reader.inside is not None else damage(content)


def _all(chosen: list[Edit]) -> Damage:
    def damage(content: bytes) -> bytes:
        for edit in chosen:
            content = _one(content, edit)
        return content

    return damage


def _one(content: bytes, edit: Edit) -> bytes:
    kind, where, length, byte, number = edit
    at = min(int(where * len(content)), max(len(content) - 1, 0))
    n = 1 + int(length * length * 64)
    before, piece, after = content[:at], content[at : at + n], content[at + n :]
    match kind:
        case "flip":
            return before + bytes(b ^ (1 << byte % 8) for b in piece[:1]) + piece[1:] + after
        case "set":
            return before + bytes([byte]) * len(piece) + after
        case "cut":
            return before
        case "insert":
            return before + bytes([byte]) * n + piece + after
        case "delete":
            return before + after
        case "repeat":
            return before + piece * (2 + number % 50) + after
        case "swap":
            return after + before + piece
        case "number":
            new = NUMBERS[number % len(NUMBERS)]
            return before + new + content[at + len(new) :]
        case "word":
            return before + WORDS[number % len(WORDS)] + (content[at:] if byte % 2 else after)
        case _:  # the next number that is written in digits
            start = next((i for i in range(at, len(content)) if 48 <= content[i] < 58), len(content))
            end = next((i for i in range(start, len(content)) if not 48 <= content[i] < 58), len(content))
            return content[:start] + str(number * (1, 10**6, -1)[byte % 3]).encode() + content[end:]
