"""A matrix of cells as a heat map: a pure function to SVG, styled by the page's stylesheet.

A column for each partition, a row for each replica; the stronger the colour, the more names.
"""

from typing import Final
from xml.etree import ElementTree as ET

from markupsafe import Markup

from service.console.discovery import Matrix

_CELL: Final = 18
_GAP: Final = 2
_SHADES: Final = 5
_MOST: Final = 64


def matrix_svg(matrix: Matrix) -> Markup:
    """Return the picture; of a matrix with very many partitions, or replicas, the first ones."""
    columns, rows = min(matrix.partitions, _MOST), min(matrix.replicas, _MOST)
    svg = ET.Element(
        "svg",
        {
            "class": "matrix",
            "viewBox": f"0 0 {columns * _CELL} {rows * _CELL}",
            "width": str(columns * _CELL),
            "height": str(rows * _CELL),
            "role": "img",
        },
    )
    words = f"{matrix.partitions} partitions by {matrix.replicas} replicas of {matrix.pair}"
    ET.SubElement(svg, "title").text = words
    fullest = max(matrix.names, default=0) or 1
    for partition, names in enumerate(matrix.names[:columns]):
        shade = min(int(names / fullest * _SHADES), _SHADES - 1)
        for replica in range(rows):
            place = {"x": str(partition * _CELL), "y": str(replica * _CELL)}
            size = {"width": str(_CELL - _GAP), "height": str(_CELL - _GAP)}
            cell = ET.SubElement(svg, "rect", {"class": f"full-{shade}", **place, **size, "rx": "3"})
            ET.SubElement(cell, "title").text = f"Partition {partition}, replica {replica}: {names:,} names"
    return Markup(ET.tostring(svg, encoding="unicode"))  # noqa: S704 - ElementTree escaped every text in it
