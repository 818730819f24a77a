"""The figure of a task: what every variant reached with every seed."""

from collections.abc import Mapping, Sequence

from gedikit.report.style import INK, cluster_color, new_figure, png, quiet

_APART = 0.12  # between variants of the same task


def spread_of_measures(points: Mapping[str, Sequence[tuple[str, Sequence[float]]]], label: str) -> bytes:
    """From variants to tasks and what was measured there: a dot a seed."""
    tasks = [task for task, _ in next(iter(points.values()))]
    figure = new_figure(max(4.5, 1.1 * len(tasks) + 2), 3.2)
    ax = quiet(figure.subplots())
    for i, (variant, of_tasks) in enumerate(points.items()):
        place = (i - (len(points) - 1) / 2) * _APART
        xy = [(at + place, value) for at, (_, values) in enumerate(of_tasks) for value in values]
        x, y = zip(*xy, strict=True) if xy else ((), ())
        ax.scatter(x, y, s=14, color=cluster_color(i), label=variant, linewidths=0)
    ax.set_xticks(range(len(tasks)), tasks, fontsize=7)
    ax.set_xlim(-0.6, len(tasks) - 0.4)
    ax.set_ylim(-0.02, 1.02)
    ax.set_ylabel(label)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=7, labelcolor=INK)
    return png(figure)
