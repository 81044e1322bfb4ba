"""Common functions of all reports: jobs in two processes, terminal tables, plots, and Markdown templates.

Each experiment ``x`` has a module ``x.report`` with:

- ``table(outcome)`` and ``plot_run(outcome, file)``, for one run
- ``JOBS``, the runs of which the page in ``docs/experiments`` shows results
- ``page(found)`` and ``plot(found, file)``, for this page; ``found`` has lists of results by the name of the job

The template ``templates/x.md.j2`` has the texts and tables of the page. It also has the paper's values, with which
:func:`compare` compares Coronet's. All of Coronet's numbers are taken from the results.
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
    """One run of an experiment for a report page: the call ``run(*arguments, report)``.

    The last of ``arguments`` is the seed. ``name`` groups runs that differ only in the seed.
    """

    name: str
    run: Callable[..., Any]
    arguments: tuple[Any, ...]


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Disable Python's garbage collection until the context ends."""
    # Runs create few reference cycles, and collections would take a fifth of the run's time. The collection at the end
    # examines only objects that were created in the context.
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()
        gc.unfreeze()


def run_job(job: Job) -> Any:
    """Run a job and return the result of its ``run``."""
    with without_garbage_collection():
        return job.run(*job.arguments, lambda _what: None)


def run_all(jobs: Sequence[Job], report: Callable[[str], None]) -> dict[str, list[Any]]:
    """Run all jobs in two processes, and return the results as lists by job name.

    ``report`` is called with the name of each job that has ended.
    """
    outcomes: dict[str, list[Any]] = {}
    # Fork, because a new interpreter would have the current directory on its import path.
    with ProcessPoolExecutor(2, get_context("fork")) as pool:
        for job, outcome in zip(jobs, pool.map(run_job, jobs), strict=True):
            outcomes.setdefault(job.name, []).append(outcome)
            report(f"{job.name}, seed {job.arguments[-1]}")
    return outcomes


def command(experiment: str, setup: object, default: object, fields: Mapping[str, str]) -> str:
    """Return the command line that runs an experiment with ``setup``.

    ``fields`` maps command-line options to fields of ``setup``. An option is omitted if its field has the same value in
    ``default``.
    """
    options = [
        f" --{option} {getattr(setup, field)}"
        for option, field in fields.items()
        if getattr(setup, field) != getattr(default, field)
    ]
    return f"coronet simulate {experiment}{''.join(options)}"


def terminal_table(headings: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "", **options: Any) -> Table:
    """Return a table with right-aligned columns except for the first; ``options`` are passed to rich."""
    table = Table(box=SIMPLE_HEAD, caption=caption or None, show_header=any(headings), **options)
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left", no_wrap=bool(place))
    for row in rows:
        table.add_row(*row)
    return table


def draw(
    file: Path,
    panels: Sequence[tuple[Callable[[Any, Any], None], Any]],
    *,
    columns: int = 2,
    height: float = 4.0,
    sharey: bool = False,
) -> None:
    """Draw several panels in rows of ``columns`` panels, and write them to ``file``.

    - ``panels`` are pairs (function, data). A panel is drawn by calling ``function(axis, data)``.
    - ``height`` is the height of a row in inches.
    - ``sharey``: all panels have the same vertical axis.
    """
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
    """Render the template of a report page with ``values``, and return Markdown.

    Templates can use these filters:

    - ``form`` is Python's ``format``.
    - ``each`` and ``spread`` are the functions of this module.
    - ``mean``, ``most`` and ``least`` are the mean, the maximum and the minimum of the values that :func:`each`
      returns.
    - ``transposed`` converts lists, one per seed, to tuples, one per position in the lists.

    Templates can also call :func:`compare`, :func:`ratios` and :func:`differences`.
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
    return environment.get_template(template).render(values, compare=compare, ratios=ratios, differences=differences)


def each(items: Iterable[Any], field: str = "") -> list[Any]:
    """Return the value of ``field`` of every item; the items themselves if ``field`` is empty.

    ``field`` is a path: dots lead to nested fields, and numbers are indexes.
    """
    values = list(items)
    for name in field.split(".") if field else ():
        values = [item[int(name)] if name.isdigit() else getattr(item, name) for item in values]
    return values


NEARLY = 0.15
"""If the relative distance of Coronet's mean from the paper's range is at most this, the verdict is "within …".
Otherwise it is "not reproduced"."""


def compare(  # noqa: PLR0917 - a row of a table in a template
    figure: str, paper: str, values: Sequence[float], low: float, high: float, form: str = ".3g", why: str = ""
) -> str:
    """Return one row of a Markdown table, which compares Coronet's values with the paper's and states a verdict.

    Args:
        figure: The figure or table of the paper, and the compared quantity.
        paper: The paper's value as text.
        values: Coronet's values, one per seed.
        low: The lowest of Coronet's values that reproduces the paper's.
        high: The highest of Coronet's values that reproduces the paper's.
        form: The format specification of Coronet's values.
        why: The explanation of a difference. It is omitted if the values of all seeds are in the range.
    """
    inside = sum(low <= value <= high for value in values)
    middle = mean(values)
    bound = low if middle < low else high
    if inside == len(values):
        verdict, why = "reproduced", ""
    elif inside:
        verdict = f"reproduced with {inside} of {len(values)} seeds"
    elif bound and abs(middle / bound - 1) <= NEARLY:
        verdict = f"within {abs(middle / bound - 1):.1%}"
    else:
        verdict = "**not reproduced**"
    return f"| {figure} | {paper} | {spread(values, form=form)} | {f'{verdict}: {why}' if why else verdict} |"


def ratios(ones: Iterable[float], others: Iterable[float]) -> list[float]:
    """Return, for each seed, the value in ``ones`` divided by the value in ``others``.

    A divisor below 1e-9 is replaced by 1e-9.
    """
    return [one / max(other, 1e-9) for one, other in zip(ones, others, strict=True)]


def differences(ones: Iterable[float], others: Iterable[float]) -> list[float]:
    """Return, for each seed, the value in ``ones`` minus the value in ``others``."""
    return [one - other for one, other in zip(ones, others, strict=True)]


def spread(items: Sequence[Any], field: str = "", form: str = "", scale: float = 1.0) -> str:
    """Return the mean of a field of all items as text, followed by minimum and maximum in brackets.

    The brackets are omitted if minimum and maximum have the same text.

    - ``field`` is a path as in :func:`each`.
    - ``form`` is a format specification.
    - ``scale`` is a factor by which all values are multiplied first.
    """
    values = [value * scale for value in each(items, field)]
    shown, least, greatest = (format(value, form) for value in (mean(values), min(values), max(values)))
    return shown if least == greatest else f"{shown} ({least} to {greatest})"
