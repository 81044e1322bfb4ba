"""Functions that all reports share: running jobs in two processes, terminal tables, plots, and Markdown templates.

Each experiment ``x`` has a module ``x.report`` with:

- ``table(outcome)`` and ``plot_run(outcome, file)``, which show the results of one run
- ``JOBS``, the runs whose results are shown on the experiment's page in ``docs/experiments``
- ``page(found)`` and ``plot(found, file)``, which make the text and the plots of this page; ``found`` maps the name of
  each job to the list of its results

The template ``templates/x.md.j2`` contains the texts and tables of the page. It also contains the paper's values, which
:func:`compare` compares with Coronet's results.
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

    The last of ``arguments`` is the seed. Jobs that differ only in the seed have the same ``name``.
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
    """Call the function ``run`` of a job with its arguments, and return the result. Progress reports are discarded."""
    with without_garbage_collection():
        return job.run(*job.arguments, lambda _what: None)


def run_all(jobs: Sequence[Job], report: Callable[[str], None]) -> dict[str, list[Any]]:
    """Run all jobs in two processes; map each job's name to the list of its results.

    After each job, ``report`` is called with the job's name and seed.
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

    ``fields`` maps command-line options to names of fields of ``setup``. An option is omitted if its field has the same
    value in ``default``.
    """
    options = [
        f" --{option} {getattr(setup, field)}"
        for option, field in fields.items()
        if getattr(setup, field) != getattr(default, field)
    ]
    return f"coronet simulate {experiment}{''.join(options)}"


def terminal_table(headings: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "", **options: Any) -> Table:
    """Return a table whose columns are right-aligned, except for the first one.

    ``options`` are passed to the table class of the library rich.
    """
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
    """Draw several panels in rows of ``columns`` panels each, and save the figure to ``file``.

    - ``panels`` contains pairs (function, data). A panel is drawn by calling ``function(axis, data)``.
    - ``height`` is the height of a row in inches.
    - ``sharey``: if true, all panels share the scale of the vertical axis.
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
    """Render the template of a report page with ``values``, and return the page as Markdown.

    Templates can use these filters:

    - ``form``: Python's function ``format``.
    - ``each``, ``spread``: the functions of this module with these names.
    - ``mean``, ``most``, ``least``: the mean, the maximum and the minimum of a field over all items. These filters
      take the same arguments as :func:`each`.
    - ``transposed``: converts a list of rows to a list of columns.

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
    """Return the value of ``field`` for every item, or the items themselves if ``field`` is empty.

    ``field`` is a path of field names and indices, separated by dots, such as ``name.0``.
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
    """Return a row of a Markdown table that compares Coronet's values with a value of the paper.

    The last cell of the row states how well they agree.

    Args:
        figure: The text of the first cell. It names a figure or table of the paper, and the compared quantity.
        paper: The paper's value as text.
        values: Coronet's values, one per seed.
        low: The lowest value that counts as reproducing the paper's value.
        high: The highest value that counts as reproducing the paper's value.
        form: The format specification for Coronet's values.
        why: An explanation of the difference. It is left out if all values are between ``low`` and ``high``.
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

    A divisor below 1e-9 is replaced with 1e-9.
    """
    return [one / max(other, 1e-9) for one, other in zip(ones, others, strict=True)]


def differences(ones: Iterable[float], others: Iterable[float]) -> list[float]:
    """Return, for each seed, the value in ``ones`` minus the value in ``others``."""
    return [one - other for one, other in zip(ones, others, strict=True)]


def spread(items: Sequence[Any], field: str = "", form: str = "", scale: float = 1.0) -> str:
    """Return the mean of a field over all items as text, followed by "(minimum to maximum)".

    The parenthesis is omitted if minimum and maximum have the same text.

    - ``field`` is a path as in :func:`each`.
    - ``form`` is a format specification.
    - ``scale`` is a factor by which all values are multiplied first.
    """
    values = [value * scale for value in each(items, field)]
    shown, least, greatest = (format(value, form) for value in (mean(values), min(values), max(values)))
    return shown if least == greatest else f"{shown} ({least} to {greatest})"
