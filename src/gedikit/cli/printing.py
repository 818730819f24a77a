"""Text for terminals."""

# names of files and columns may hold what terminals obey
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}


def printable(text: str) -> str:
    """Text without control characters but tabs and ends of lines."""
    return text.translate(_CONTROLS)
