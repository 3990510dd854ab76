"""What the documents say is what the code does, where a machine can compare them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from broker.errors import Refusal
from broker.rejections import REFUSALS
from broker.turns.verdict import KILLED
from mcp_server.surface import TOOLS
from shims.agent import agents
from shims.headless import CODES

ROOT = Path(__file__).resolve().parents[2]

CALLS = {"Refusal": 0, "Unreachable": 0, "failed": 2, "_end": 2, "Verdict": 3}
"""Calls that carry a code, and at which place."""


def codes_in_source() -> set[str]:
    found: set[object] = {*REFUSALS, *CODES, KILLED}
    for path in (*(ROOT / "broker").rglob("*.py"), *(ROOT / "mcp_server").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                place = CALLS.get(name)
                values = [k.value for k in node.keywords if k.arg == "code"]
                values += [node.args[place]] if place is not None and len(node.args) > place else []
                found |= {v.value for v in values if isinstance(v, ast.Constant) and isinstance(v.value, str)}
            elif isinstance(node, ast.Dict):
                pairs = zip(node.keys, node.values, strict=True)
                found |= {
                    v.value
                    for k, v in pairs
                    if isinstance(k, ast.Constant) and k.value == "code" and isinstance(v, ast.Constant) and v.value
                }
            elif isinstance(node, ast.ClassDef):
                for statement in node.body:
                    if isinstance(statement, ast.Assign) and getattr(statement.targets[0], "id", "") == "code":
                        found.add(ast.literal_eval(statement.value))
    return {code for code in found if isinstance(code, str)}


def codes_in(document: str) -> set[str]:
    text = (ROOT / "docs" / document).read_text(encoding="utf-8")
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {code for cell in cells for code in re.findall(r"`(\w+)`", cell)}


@pytest.mark.requirement("MC-05")
def test_every_code_is_documented_and_no_other() -> None:
    assert codes_in("errors.md") == codes_in_source()


def test_the_readme_names_every_tool_and_the_test_command() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [tool.name for tool in TOOLS if f"`{tool.name}`" not in readme] == []
    assert "./bin/test" in readme
    assert "./bin/cross-agent demo" in readme


@pytest.mark.requirement("MC-34")
def test_how_sessions_are_named_is_told_for_each_product() -> None:
    text = (ROOT / "docs" / "naming.md").read_text(encoding="utf-8")
    assert [agent.product for agent in agents().values() if f"| {agent.product} |" not in text] == []
    assert [agent.store_variable for agent in agents().values() if agent.store_variable not in text] == []
    assert "docs/naming.md" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_setting_of_a_caller_and_of_the_broker_is_documented() -> None:
    source = "".join(
        (ROOT / "broker" / f"{name}.py").read_text(encoding="utf-8") for name in ("settings", "callers", "logs", "baseline")
    )
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    started_turns = {"CROSS_AGENT_SELF_SESSION", "CROSS_AGENT_CONVERSATION_ID"}  # what the broker tells them; nobody sets it
    assert set(re.findall(r"CROSS_AGENT_[A-Z_]+[A-Z]", source)) - started_turns <= set(re.findall(r"CROSS_AGENT_[A-Z_]+", page))


@pytest.mark.requirement("EN-25", "MC-03")
def test_what_costs_the_loop_is_bounded_by_the_tool() -> None:
    (tool,) = (tool for tool in TOOLS if tool.name == "list_agent_sessions")
    assert tool.input_schema()["properties"]["limit"]["maximum"] == 500
    assert tool.arguments({"limit": 500})["limit"] == 500
    for limit in (0, -1, 501, 1_000_000):
        with pytest.raises(Refusal, match="at least 1 and at most 500"):
            tool.arguments({"limit": limit})


def test_the_architecture_page_names_modules_that_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:broker|shims|mcp_server)/[\w/<>]+)`", text))
    missing = [name for name in named if not any(ROOT.glob(name.replace("<agent>", "claude") + suffix) for suffix in (".py", ""))]
    assert missing == []
