"""The look that all figures share, and their way into the page."""

import base64
from collections.abc import Sequence
from io import BytesIO

from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK = "#1f2937"
MUTED = "#6b7280"
HAIRLINE = "#d1d5db"
ACCENT = "#33608c"
OPTIMUM = "#b4532a"
SAMPLE = "#f2711c"
# Okabe and Ito without yellow and black, then four of Tol's "muted": told apart by colour-blind eyes too
CLUSTERS = (
    *("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"),
    *("#882255", "#999933", "#332288", "#aa4499"),
)
DENSITY_MAP = "YlGnBu"
_DPI = 200


def cluster_color(cluster: int) -> str:
    return CLUSTERS[cluster % len(CLUSTERS)]


def new_figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), dpi=_DPI, facecolor="white", layout="constrained")


def axes(ax: Axes | None, width: float, height: float) -> Axes:
    """The axes that are given, or those of a new figure; quiet ones either way."""
    return quiet(new_figure(width, height).add_subplot() if ax is None else ax)


def quiet(ax: Axes) -> Axes:
    """Axes that stay in the background."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(HAIRLINE)
    ax.tick_params(colors=MUTED, labelsize=8, width=0.6, length=3)
    for axis in (ax.xaxis, ax.yaxis):
        axis.label.set_color(MUTED)
        axis.label.set_fontsize(9)
    return ax


def label_axes(ax: Axes, names: Sequence[str]) -> None:
    """Names as they are: a dollar sign in a column name is no formula."""
    ax.set_xlabel(names[0], parse_math=False)
    if len(names) > 1:
        ax.set_ylabel(names[1], parse_math=False)


def note(ax: Axes, text: str) -> None:
    """A remark above the axes."""
    ax.annotate(
        text,
        (0, 1),
        xycoords="axes fraction",
        xytext=(2, 4),
        textcoords="offset points",
        va="bottom",
        fontsize=8,
        color=MUTED,
    )


def note_beyond(ax: Axes, n: int, mark: str = "") -> None:
    """Say how many rows are not where they are drawn, and what marks them."""
    if n:
        note(ax, f"{mark}{n:,} row{' lies' if n == 1 else 's lie'} beyond the edge")


def png_uri(ax: Axes) -> str:
    return data_uri(png(ax))


def png(drawn: Figure | Axes) -> bytes:
    """A figure, or the one that axes are part of."""
    figure = drawn if isinstance(drawn, Figure) else drawn.get_figure(root=True)
    assert figure is not None
    buffer = BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def data_uri(image: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64," + base64.b64encode(image).decode("ascii")
