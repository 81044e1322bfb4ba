"""Every setting is documented."""

import ast
from itertools import pairwise

from service.settings import Settings
from tests.architecture.sources import ROOT, parsed


def documented_settings() -> set[str]:
    """Return the names of the settings that are followed by a docstring."""
    classes = (node for node in ast.walk(parsed(ROOT / "service/settings.py")) if isinstance(node, ast.ClassDef))
    (settings,) = (node for node in classes if node.name == Settings.__name__)
    return {
        field.target.id
        for field, text in pairwise(settings.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }


def test_every_setting_has_a_docstring() -> None:
    assert Settings.model_fields.keys() - documented_settings() == set()


def test_every_setting_is_in_the_operators_guide() -> None:
    guide = (ROOT / "docs" / "operators.md").read_text(encoding="utf-8")
    assert [name for name in Settings.model_fields if f"`{name}`" not in guide] == []
