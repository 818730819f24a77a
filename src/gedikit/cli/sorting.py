"""The command that sorts pictures into folders."""

import csv
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gedikit.cli.loading import is_folder, tell_left_out
from gedikit.cli.output import console
from gedikit.cli.spreadsheets import as_it_was
from gedikit.data.folder import list_pictures
from gedikit.errors import DataError, StorageError, UsageError
from gedikit.runs import Run


@dataclass(frozen=True)
class _Task:
    """A picture, where it is and where it goes."""

    name: str
    group: str
    source: Path
    target: Path


def sort(path: Path, out: Path, *, link: bool) -> None:
    """Put the pictures of a run into a folder for each group, as labels.csv has them."""
    run = Run(path)
    config = run.config()
    if not is_folder(config.source):
        raise UsageError(f"{path} was not trained on a folder of pictures that is still there: {config.source}")
    root = Path(config.source).resolve()
    if _inside(out.resolve(), root):
        raise UsageError(f"{out} lies in {root}: pictures would be among those that a later run reads")
    tasks, left = _tasks(run, root, out)
    done = Counter[str]()
    for task in tasks:
        why = _put(task, out, link=link)
        if why is None:
            done[task.group] += 1
        else:
            left.append((task.name, why))
    into = f"{len(done)} folder{'' if len(done) == 1 else 's'} of {out}"
    console.print(f"{done.total()} pictures {'linked' if link else 'copied'} into {into}")
    for group, count in sorted(done.items()):
        console.print(f"  {group}: {count}")
    tell_left_out(left)


def _tasks(run: Run, root: Path, out: Path) -> tuple[list[_Task], list[tuple[str, str]]]:
    """What is to be done, and which pictures are left alone, and why."""
    places = dict(list_pictures(root).files)
    tasks, left = [], []
    listed = list(_groups(run))
    if any(name not in places and as_it_was(name) in places for name, _ in listed):  # marked for spreadsheets
        listed = [(as_it_was(name), group) for name, group in listed]
    for name, group in listed:
        source = places.get(name)
        if source is None:
            left.append((name, "it is not there any more"))
        elif not _inside(source.resolve(), root):
            left.append((name, "a link that leads out of the folder"))
        else:
            tasks.append(_Task(name, group, source, out / group / source.relative_to(root)))
    return tasks, left


def _groups(run: Run) -> Iterator[tuple[str, str]]:
    """Names of pictures and of the folders they belong in."""
    try:
        with run.labels_path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{run.labels_path} is damaged: {error}") from None
    except OSError:
        raise DataError(f"{run.path} has no {run.labels_path.name}: it is written when the training ends") from None
    if not rows or "file" not in rows[0] or "cluster" not in rows[0]:
        raise DataError(f"{run.labels_path} names no files")
    for row in rows:
        if not row["file"] or not (row["cluster"] or "").isdecimal():  # it becomes the name of a folder
            raise DataError(f"{run.labels_path} is damaged: a line of it has no file, or no number of a cluster")
    digits = max(len(row["cluster"]) for row in rows)
    for row in rows:
        yield row["file"], f"group-{row['cluster'].zfill(digits)}"


def _put(task: _Task, out: Path, *, link: bool) -> str | None:
    """Copy or link one picture; or say why not."""
    try:
        task.target.parent.mkdir(parents=True, exist_ok=True)
        if not _inside(task.target.parent.resolve(), out.resolve()):
            return f"{task.target.parent} is a link that leads out of {out}"
        if link:
            task.target.symlink_to(task.source)
        else:
            # made anew or not at all: what appears there meanwhile is not overwritten either
            with task.source.open("rb") as source, task.target.open("xb") as target:
                shutil.copyfileobj(source, target)
            shutil.copystat(task.source, task.target)
    except FileExistsError:
        return f"{task.target} is there already"
    except OSError as error:
        raise StorageError(f"could not write {task.target}: {error.strerror}") from error
    return None


def _inside(path: Path, root: Path) -> bool:
    return path == root or root in path.parents
