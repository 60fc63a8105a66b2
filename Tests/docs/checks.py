"""What can be said of a page without a database: its programs, its request bodies, its links."""

import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from page import ROOT, Page

# The file's name, the compilers that will do, and what they are to be told.
COMPILERS = {
    "js": ("page.mjs", ["node"], ["--check"]),
    "java": ("Page.java", ["javac"], ["-proc:none", "-Xlint:all", "-Werror", "-d", "."]),
    "swift": ("Page.swift", ["swiftc"], ["-parse"]),
    "lua": ("page.lua", ["luac", "luac5.4", "luac5.1"], ["-p"]),
}


def compiler(language):
    """The command that checks a program, or None: there is no such compiler here."""
    _, names, options = COMPILERS[language]
    found = next(filter(None, map(shutil.which, names)), None)
    return [found, *options] if found else None


def program_fault(block):
    """What a compiler says of a program; None: nothing."""
    file = COMPILERS[block.language][0]
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / file).write_text(block.text)
        done = subprocess.run([*compiler(block.language), file], cwd=directory, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=600)
    return done.stdout[-1000:] or "the compiler fails" if done.returncode else None


def yaml_fault(block):
    """Why a block is no YAML; None: it is, or there is no reader of YAML."""
    try:
        import yaml
    except ImportError:
        return None
    try:
        list(yaml.safe_load_all(block.text))
    except yaml.YAMLError as error:
        return f"no YAML: {error}"
    return None


def link_fault(page, target, anchors={}):
    """Why a link leads nowhere; None: it does not, or it leads out of the repository."""
    if re.match(r"[a-z]+:", target):
        return None
    path, _, anchor = target.partition("#")
    file = (ROOT / page.name).parent / path if path else ROOT / page.name
    if not file.exists():
        return f"link to {target}: no such file"
    if anchor:
        if file not in anchors:
            anchors[file] = Page(str(file.resolve().relative_to(ROOT))).anchors
        if anchor not in anchors[file]:
            return f"link to {target}: no such heading"
    return None


def runbook_faults():
    """Alerts, dashboards, shortcuts and hints of the schema name pages of docs/operations: those that are not there."""
    for path in sorted([*(ROOT / "deploy").rglob("*"), *(ROOT / "migrations").rglob("*")]):
        if path.suffix in (".yml", ".yaml", ".json", ".md", ".psqlrc", ".sql"):
            for page in re.findall(r"docs/operations[\w/-]*(?:\.md(?:#[\w-]+)?)?", path.read_text()):
                if not (ROOT / page).exists():
                    yield f"{path.relative_to(ROOT)} names {page}: no such page"


def openapi():
    """The API's description; None where it, or a reader of YAML, is not there."""
    file = ROOT / "openapi.yaml"
    try:
        import yaml
    except ImportError:
        return None
    return yaml.safe_load(file.read_text()) if file.exists() else None


def body_fault(block, request, document):
    """What is wrong with the JSON of a block as the body of a request; None: nothing."""
    text = block.text
    if block.language == "sh":
        body = re.search(r"(?:-d|--data|--json)\s+'([^']*)'", text)
        if not body:
            return "no JSON body found"
        text = body[1]
    try:
        value = json.loads(text)
    except ValueError as error:
        return f"no JSON: {error}"
    if document is None:
        return None
    method, path = request.split(" ")
    operation = document["paths"].get(path, {}).get(method.lower())
    if operation is None:
        return f"openapi.yaml has no {request}"
    body = resolve(operation.get("requestBody", {}), document)
    if "content" not in body:
        return f"openapi.yaml has no body for {request}"
    return schema_fault(value, body["content"]["application/json"]["schema"], document, "body")


def resolve(part, document):
    """A part of the description, behind its references."""
    while "$ref" in part:
        target = document
        for name in part["$ref"].removeprefix("#/").split("/"):
            target = target[name]
        part = target
    return part


def schema_fault(value, schema, document, where):
    """The part of JSON Schema that requests need; None: nothing wrong."""
    schema = resolve(schema, document)
    for word in ("oneOf", "anyOf"):
        if word in schema:
            faults = [schema_fault(value, choice, document, where) for choice in schema[word]]
            if all(faults):
                return faults[0]
    for part in schema.get("allOf", []):
        fault = schema_fault(value, part, document, where)
        if fault:
            return fault
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    kind = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number",
            type(None): "null"}[type(value)]
    if kinds and kind not in kinds and not (kind == "integer" and "number" in kinds):
        return f"{where}: is {kind}, must be {' or '.join(kinds)}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{where}: must be one of {schema['enum']}"
    if kind == "object":
        properties = schema.get("properties", {})
        missing = [name for name in schema.get("required", []) if name not in value]
        unknown = [name for name in value if name not in properties]
        if missing:
            return f"{where}.{missing[0]}: is missing"
        if unknown and schema.get("additionalProperties") is False:
            return f"{where}.{unknown[0]}: is not known"
        faults = (schema_fault(value[name], properties[name], document, f"{where}.{name}")
                  for name in value if name in properties)
        return next(filter(None, faults), None)
    if kind == "array" and "items" in schema:
        faults = (schema_fault(item, schema["items"], document, f"{where}[{index}]")
                  for index, item in enumerate(value))
        return next(filter(None, faults), None)
    return None


def security_faults(page, columns):
    """What is wrong with what is stored where, and with the tables of attacks and of audited actions; one None where nothing is.

    columns: by table.
    """
    stored = re.search(r"^## What is stored where$(.*?)^## ", page.text, re.M | re.S)[1]
    rows = {row[1]: row[0] for row in re.finditer(r"^\| `push\.([a-z_]+)` \|.*$", stored, re.M)}
    attacks = re.search(r"^## Attacks, tests and answers$(.*?)^## ", page.text, re.M | re.S)[1]
    found = [f"push.{table} is not named in what is stored where" for table in columns if f"`push.{table}`" not in stored]
    found += [f"push.{table}.{column} is not named in its row of what is stored where"
              for table, names in columns.items() for column in names if f"`{column}`" not in rows.get(table, "")]
    found += [f"finding {number} has no row among the attacks" for number in range(1, 14) if f"\n| {number}. " not in attacks]
    functions = "".join(path.read_text() for path in sorted(ROOT.glob("migrations/functions/*.sql")))
    actions = re.findall(r"into push\.audit \([a-z, ]+\) values \('(\w+)'|'(pause_lane|resume_lane)'", functions)
    incident = re.search(r"^## In an incident$(.*)", page.text, re.M | re.S)[1]
    found += [f"the action {action} of push.audit is not named" for action in sorted({a or b for a, b in actions})
              if f"`{action}`" not in incident]
    found += [f"there is no test {test}" for test in re.findall(r"`([\w./-]+\.(?:py|sql|swift|sh)|\w+Tests)`", page.text)
              if not any(ROOT.glob(test if "/" in test else f"Tests/**/{test}" + ("" if "." in test else ".swift")))]
    return found or [None]
