"""The manifest of requirements is honest both ways."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.requirements import DEFERRED, HELD, PARTLY

TESTS = Path(__file__).resolve().parents[1]
SPECIFICATION = TESTS.parents[1] / "shared" / "spec"


def marked() -> dict[str, set[str]]:
    """Every requirement id that a test names by the marker, and those tests: functions, their classes, their modules."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path in sorted(TESTS.rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        module_ids = {i for node in tree.body if _assigns_pytestmark(node) for i in _ids_in(node)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                class_ids = {i for decorator in node.decorator_list for i in _ids_in(decorator)}
                for member in node.body:
                    if _is_test(member):
                        _note(found, path, member, class_ids | module_ids)
            elif _is_test(node):
                _note(found, path, node, module_ids)
    return found


def _note(found: defaultdict[str, set[str]], path: Path, test: ast.AST, inherited: set[str]) -> None:
    assert isinstance(test, (ast.FunctionDef, ast.AsyncFunctionDef))
    own = {i for decorator in test.decorator_list for i in _ids_in(decorator)}
    for identifier in own | inherited:
        found[identifier].add(f"{path.name}::{test.name}")


def _is_test(node: ast.AST) -> bool:
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_")


def _assigns_pytestmark(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "pytestmark" for t in node.targets)


def _ids_in(node: ast.AST) -> set[str]:
    """The ids in calls of ``….requirement(…)`` below ``node``, also inside ``pytest.param(…, marks=…)``."""
    found = set()
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "requirement":
            found |= {a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)}
    return found


def test_every_id_has_exactly_one_place() -> None:
    assert not HELD & PARTLY.keys()
    assert not HELD & DEFERRED.keys()
    assert not PARTLY.keys() & DEFERRED.keys()


def test_what_is_held_has_a_test() -> None:
    tests = marked()
    assert sorted((HELD | PARTLY.keys()) - tests.keys()) == []


def test_a_test_names_only_what_exists_and_is_not_deferred() -> None:
    named = marked().keys()
    assert sorted(named - HELD - PARTLY.keys()) == []


def test_the_manifest_knows_every_id_of_the_specification() -> None:
    if not SPECIFICATION.is_dir():
        pytest.skip("the specification does not lie beside this checkout")
    text = "\n".join(path.read_text(encoding="utf-8") for path in SPECIFICATION.glob("*.md"))
    specified = set(re.findall(r"^- ([A-Z]{2}-\d\d)\b", text, re.MULTILINE))
    assert specified == HELD | PARTLY.keys() | DEFERRED.keys()
