#!/usr/bin/env python3
"""Reads a text a line, in hexadecimal, as Python's json reads it; writes its value, or "-" where it is no JSON.

A number stays as it is written, a string is in hexadecimal, and half of a surrogate pair is U+FFFD.
"""

import json
import sys


class Number(str):
    """As it is written."""


class Members(list):
    """Of an object: names and values, in their order."""


def refuse(name):
    raise ValueError(name)


def form(value):
    if isinstance(value, Number):
        return value
    if isinstance(value, str):
        text = "".join("\ufffd" if 0xD800 <= ord(letter) <= 0xDFFF else letter for letter in value)
        return f"'{text.encode().hex()}'"
    if isinstance(value, Members):
        return "{" + ",".join(f"{form(name)}:{form(member)}" for name, member in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(form, value)) + "]"
    return {None: "null", True: "true", False: "false"}[value]


def read(text):
    try:
        return form(json.loads(text.decode(), parse_int=Number, parse_float=Number, parse_constant=refuse, object_pairs_hook=Members))
    except ValueError:
        return "-"


# All input is read before anything is written, so that the caller can write everything first and read afterwards.
print("\n".join(read(bytes.fromhex(line)) for line in sys.stdin.read().splitlines()))
