"""The command that sorts pictures into folders."""

import csv
import shutil
from collections import Counter
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gedikit.cli.loading import is_folder, own_source, tell_left_out
from gedikit.cli.output import console
from gedikit.cli.spreadsheets import as_it_was
from gedikit.data.folder import list_pictures
from gedikit.data.index import Index
from gedikit.data.sources import picture_shards
from gedikit.data.stored import StoredPictures
from gedikit.errors import DataError, StorageError, UsageError
from gedikit.runs import Run, RunConfig


@dataclass(frozen=True)
class _Task:
    """A picture, where it is, as a file or as bytes of a shard, and where it goes."""

    name: str
    group: str
    source: Path | Callable[[], bytes]
    target: Path


_Tasks = tuple[list[_Task], list[tuple[str, str]]]  # what is to be done; what is left alone, and why


def sort(path: Path, out: Path, *, link: bool) -> None:
    """Put the pictures of a run into a folder for each group, as labels.csv has them."""
    run = Run(path)
    config = run.config()
    tasks, left = _tasks_of_shards(run, config, out, link=link) or _tasks_of_folder(run, config, out)
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


def _tasks_of_shards(run: Run, config: RunConfig, out: Path, *, link: bool) -> _Tasks | None:
    """The same of pictures in shards, by the index that the run has of them."""
    if not run.index_path.exists():
        return None
    if link:
        raise UsageError(f"{config.source} holds pictures in shards, which nothing can link to: leave out --link")
    index = Index.load(run.index_path)
    if not index.is_of(picture_shards(own_source(run, config))):
        raise UsageError(f"the shards of {config.source} have changed since {run.path} was made of them")
    pictures = StoredPictures(index, config.image_shape[0], config.image_shape[2])
    rows = {name: row for row, name in enumerate(index.names)}
    tasks, left = [], []
    for name, group in _as_there(list(_groups(run)), rows):
        if name not in rows:
            left.append((name, "it is not there any more"))
        elif Path(name).is_absolute() or ".." in Path(name).parts:
            left.append((name, "its name leads out of the folder"))
        else:
            tasks.append(_Task(name, group, partial(pictures.content, rows[name]), out / group / name))
    return tasks, left


def _tasks_of_folder(run: Run, config: RunConfig, out: Path) -> _Tasks:
    """What is to be done, and which pictures are left alone, and why."""
    if not is_folder(config.source):
        raise UsageError(f"{run.path} was not trained on a folder of pictures that is still there: {config.source}")
    root = Path(config.source).resolve()
    if _inside(out.resolve(), root):
        raise UsageError(f"{out} lies in {root}: pictures would be among those that a later run reads")
    places = dict(list_pictures(root).files)
    tasks, left = [], []
    for name, group in _as_there(list(_groups(run)), places):
        source = places.get(name)
        if source is None:
            left.append((name, "it is not there any more"))
        elif not _inside(source.resolve(), root):
            left.append((name, "a link that leads out of the folder"))
        else:
            tasks.append(_Task(name, group, source, out / group / source.relative_to(root)))
    return tasks, left


def _as_there(listed: list[tuple[str, str]], places: Container[str]) -> list[tuple[str, str]]:
    """Names as they are where the pictures are: they may be marked for spreadsheets."""
    if any(name not in places and as_it_was(name) in places for name, _ in listed):
        return [(as_it_was(name), group) for name, group in listed]
    return listed


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
        if callable(task.source):
            content = task.source()
            with task.target.open("xb") as target:
                target.write(content)
        elif link:
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
