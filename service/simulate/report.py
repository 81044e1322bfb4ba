"""What reports of all experiments share: jobs run in two processes, terminal tables, plots, and Markdown templates.

An experiment ``x`` has a module ``x_report`` with ``JOBS``, ``table(outcome)`` and ``plot_run(outcome, file)`` for one
run, and ``page(found)`` and ``plot(found, file)`` for ``docs/experiments``, where ``found`` has the outcomes of
``JOBS`` by name. A page is rendered from ``templates/x.md.j2``: the template has its words, tables and verdicts, and
reads all figures from the outcomes.
"""

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from rich.box import SIMPLE_HEAD
from rich.table import Table

SEEDS = (1, 2, 3, 4, 5)
DPI = 100


class Job(NamedTuple):
    """One run of a page: ``run(*arguments, report)``, of which the last argument is the seed."""

    name: str
    run: Callable[..., Any]
    arguments: tuple[Any, ...]


@contextmanager
def no_collection() -> Iterator[None]:
    """Switch the garbage collector off: runs make few cycles, and searching all their objects takes a fifth of them."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()


def run_job(job: Job) -> Any:
    """Return what a job came to."""
    with no_collection():
        return job.run(*job.arguments, lambda _what: None)


def run_all(jobs: Sequence[Job], report: Callable[[str], None]) -> dict[str, list[Any]]:
    """Run all jobs, two at a time; return their outcomes by name. Other processes must be able to import ``run``."""
    found: dict[str, list[Any]] = {}
    # Forked: a new interpreter would import modules of the current directory.
    with ProcessPoolExecutor(2, get_context("fork")) as pool:
        for job, outcome in zip(jobs, pool.map(run_job, jobs), strict=True):
            found.setdefault(job.name, []).append(outcome)
            report(f"{job.name}, seed {job.arguments[-1]}")
    return found


def command(experiment: str, setup: object, usual: object, fields: Mapping[str, str]) -> str:
    """Return the command that runs a setup. ``fields`` has the field of each option; usual values are left out."""
    given = [
        f" --{option} {getattr(setup, field)}"
        for option, field in fields.items()
        if getattr(setup, field) != getattr(usual, field)
    ]
    return f"coronet simulate {experiment}{''.join(given)}"


def terminal_table(headings: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "", **options: Any) -> Table:
    """Return a table whose columns but the first are numbers; ``options`` are rich's."""
    shown = Table(box=SIMPLE_HEAD, caption=caption or None, show_header=any(headings), **options)
    for place, heading in enumerate(headings):
        shown.add_column(heading, justify="right" if place else "left", no_wrap=bool(place))
    for row in rows:
        shown.add_row(*row)
    return shown


def draw(
    file: Path,
    panels: Sequence[tuple[Callable[[Any, Any], None], Any]],
    *,
    columns: int = 2,
    height: float = 4.0,
    sharey: bool = False,
) -> None:
    """Draw panels, each a function of an axis and its data, row by row."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra, and slow to load

    mpl.use("agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - same

    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(6 * columns, height * rows), sharey=sharey, squeeze=False)
    for axis, (panel, data) in zip(axes.flat, panels, strict=False):
        panel(axis, data)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize="small")
    for unused in axes.flat[len(panels) :]:
        unused.axis("off")
    figure.tight_layout()
    figure.savefig(file, dpi=DPI, metadata={"Software": None})
    plt.close(figure)


def render(template: str, **values: object) -> str:
    """Return a page.

    Filters of templates: ``form`` is Python's ``format``; ``mean``, ``most`` and ``least`` are those of a field of all
    items (see :func:`each`), or of the items themselves; ``transposed`` turns a list per seed into a tuple per place.
    """
    environment = Environment(  # noqa: S701 - Markdown, not HTML
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        extensions=["jinja2.ext.do"],
    )
    filters: dict[str, Callable[..., Any]] = {
        "form": format,
        "each": each,
        "mean": lambda items, field="": mean(each(items, field)),
        "most": lambda items, field="": max(each(items, field)),
        "least": lambda items, field="": min(each(items, field)),
        "spread": spread,
        "transposed": lambda lists: list(zip(*lists, strict=True)),
    }
    environment.filters.update(filters)
    return environment.get_template(template).render(values)


def each(items: Iterable[Any], field: str = "") -> list[Any]:
    """Return a field of all items; dots lead to fields of fields, and numbers to places in sequences."""
    found = list(items)
    for name in field.split(".") if field else ():
        found = [item[int(name)] if name.isdigit() else getattr(item, name) for item in found]
    return found


def spread(items: Sequence[Any], field: str = "", form: str = "", scale: float = 1.0) -> str:
    """Return the mean, and in brackets the least and the greatest if they look different."""
    values = [value * scale for value in each(items, field)]
    shown, least, greatest = (format(value, form) for value in (mean(values), min(values), max(values)))
    return shown if least == greatest else f"{shown} ({least} to {greatest})"
