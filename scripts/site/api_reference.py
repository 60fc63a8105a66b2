"""The page about the HTTP API, made from openapi.yaml."""

import json

import yaml

import repository

METHODS = ("get", "put", "post", "delete", "patch", "head", "options")


def page():
    return render(yaml.safe_load((repository.ROOT / "openapi.yaml").read_text()))


def render(document):
    return "\n".join([*introduction(document), *requests(document), *answers(document), *schemas(document)]) + "\n"


def introduction(document):
    info = document["info"]
    yield from ["# HTTP reference", "", "This page is made from [openapi.yaml](openapi.yaml), which clients can be generated from.",
                "[The HTTP API](http-api.md) is the introduction.", "", info["description"].strip(), ""]
    yield from ["**Address.** " + " ".join(f"`{server['url']}`: {sentence(server)}" for server in document["servers"]), ""]
    for name, scheme in document["components"]["securitySchemes"].items():
        yield from [f"**Authorization.** `Authorization: {scheme['scheme'].capitalize()} {scheme['bearerFormat']}`. {sentence(scheme)}",
                    ""]


def requests(document):
    for tag in document["tags"]:
        yield from [f"## Requests: {tag['name']}", "", sentence(tag), ""]
        for path, item in document["paths"].items():
            for method in METHODS:
                operation = item.get(method)
                if operation and tag["name"] in operation["tags"]:
                    yield from request(document, path, method, item, operation)


def request(document, path, method, item, operation):
    yield from [f"### {operation['summary']} {{: #{operation['operationId']} }}", "", "```", f"{method.upper()} {path}", "```", "",
                operation["description"].strip(), ""]
    parameters = [resolved(document, part) for part in [*item.get("parameters", []), *operation.get("parameters", [])]]
    if parameters:
        yield from ["| parameter | in | type | |", "|---|---|---|---|"]
        for one in parameters:
            name = f"`{one['name']}`" + (", required" if one.get("required") else "")
            yield f"| {name} | {one['in']} | {kind(one['schema'])} | {cell(one.get('description', ''))} |"
        yield ""
    if "requestBody" in operation:
        body = operation["requestBody"]
        content = body["content"]["application/json"]
        schema = content["schema"]
        yield from ["**Body**" + ("" if body.get("required") else " (may be left out)") + f": {kind(schema)}", ""]
        yield from members(document, schema)
        for name, example in content.get("examples", {}).items():
            yield from [f"{example.get('summary', f'Example: {name}')}:", "", "```json",
                        json.dumps(example["value"], indent=2, ensure_ascii=False), "```", ""]
    yield from ["| answer | meaning | body |", "|---|---|---|"]
    for status, answer in operation["responses"].items():
        yield answer_row(document, status, answer)
    yield ""


def answer_row(document, status, answer):
    if "$ref" in answer:
        name = answer["$ref"].rpartition("/")[2]
        text = f"[{name}](#answer-{name}): {cell(resolved(document, answer)['description'])}"
    else:
        text = cell(answer["description"])
    answer = resolved(document, answer)
    bodies = " ".join(kind(content["schema"]) for content in answer.get("content", {}).values())
    return f"| `{status}` | {text} | {bodies} |"


def answers(document):
    yield from ["## Answers", ""]
    for name, answer in document["components"]["responses"].items():
        yield from [f"### {name} {{: #answer-{name} }}", "", answer["description"].strip(), ""]
        for header, about in answer.get("headers", {}).items():
            about = resolved(document, about)
            yield from [f"- Header `{header}`: {kind(about['schema'])}. {sentence(about)}"]
        for media, content in answer.get("content", {}).items():
            yield from [f"- Body: {kind(content['schema'])}, as `{media}`"]
        yield ""


def schemas(document):
    yield from ["## Types", ""]
    for name, schema in document["components"]["schemas"].items():
        yield from [f"### {name} {{: #type-{name} }}", ""]
        if "description" in schema:
            yield from [schema["description"].strip(), ""]
        shown = kind(schema)
        if shown != "object":
            yield from [shown[0].upper() + shown[1:] + ".", ""]
        yield from members(document, schema)


def members(document, schema):
    """The table of an object's members; nothing for what is no object, or is a type of its own."""
    if "$ref" in schema or "properties" not in schema:
        return
    yield from ["| member | type | |", "|---|---|---|"]
    for name, member in schema["properties"].items():
        required = ", required" if name in schema.get("required", []) else ""
        yield f"| `{name}`{required} | {kind(member)} | {cell(member.get('description', ''))} |"
    yield ""
    if schema.get("additionalProperties") is False:
        yield from ["No other members are allowed.", ""]


def kind(schema):
    """The type of a schema in words, with its limits."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#type-{name})"
    parts = []
    for word, before in (("oneOf", "one of "), ("anyOf", "any of "), ("allOf", "")):
        if word in schema and all("$ref" in choice or "type" in choice or "description" in choice for choice in schema[word]):
            choices = [f"{kind(choice)} ({cell(choice['description'])})" if "description" in choice else kind(choice)
                       for choice in schema[word]]
            parts.append(before + ", ".join(choices))
        elif word in schema:
            parts.append("by its members: " + "; or ".join(
                ", ".join(f"`{name}` {kind(member)}" for name, member in choice["properties"].items()) for choice in schema[word]))
    if "const" in schema:
        parts.append(value(schema["const"]))
    if "enum" in schema:
        parts.append(" or ".join(value(one) for one in schema["enum"]))
    if "x-extensible-enum" in schema:
        parts.append(" or ".join(value(one) for one in schema["x-extensible-enum"]) + ", or a word of a later release")
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types:
        name = " or ".join(types)
        if "array" in types:
            name += f" of {kind(schema['items'])}" if "items" in schema else ""
        parts.insert(0, name)
    parts += limits(schema)
    if isinstance(schema.get("additionalProperties"), dict):
        parts.append(f"every member: {kind(schema['additionalProperties'])}")
    if "propertyNames" in schema:
        parts.append("no member named " + ", ".join(value(one) for one in schema["propertyNames"]["not"]["enum"]))
    return ", ".join(parts) or "anything"


def limits(schema):
    for low, high, unit in (("minLength", "maxLength", " characters"), ("minItems", "maxItems", " items"), ("minimum", "maximum", "")):
        if low in schema and high in schema:
            yield f"{schema[low]:,} to {schema[high]:,}{unit}"
        elif low in schema:
            yield f"at least {schema[low]:,}{unit}"
        elif high in schema:
            yield f"at most {schema[high]:,}{unit}"
    if "format" in schema:
        yield f"format {schema['format']}"
    if "pattern" in schema:
        yield "pattern " + value(schema["pattern"])
    if "default" in schema:
        yield f"default {value(schema['default'])}"


def value(something):
    text = something if isinstance(something, str) else json.dumps(something)
    return f"`{text}`".replace("|", "\\|")


def resolved(document, part):
    while "$ref" in part:
        target = document
        for name in part["$ref"].removeprefix("#/").split("/"):
            target = target[name]
        part = target
    return part


def sentence(part):
    return " ".join(part.get("description", "").split())


def cell(text):
    return " ".join(text.split()).replace("|", "\\|")
