#!/usr/bin/env python3
"""Writes man pages and shell completions from what a program says of its own arguments.

  scripts/man_pages.py PROGRAM FOLDER [--configuration-page EXAMPLE.yaml]

The program is push-gateway or push-gateway-lab, of any build. FOLDER gets man/PROGRAM.1, man/PROGRAM-COMMAND.1 for each command, and
completions/PROGRAM (bash), _PROGRAM (zsh) and PROGRAM.fish. With --configuration-page, also man/gateway.yaml.5, with that file as the
example. The texts are those of --help. The date of the pages is SOURCE_DATE_EPOCH, else that of the last commit.
"""

import argparse
import json
import os
import re
import subprocess
from datetime import datetime, timezone
from pathlib import Path

SECTION = re.compile(r"([A-Z][A-Z ]+)\. (.*)", re.S)
TERM = re.compile(r"  ([a-z]+) {2,}(\S.*)")
KEY = re.compile(r"  ([a-z_]+(?:\.[A-Za-z_]+)*)")
CONFIGURATION = "CONFIGURATION"
EXIT_CODES = re.compile(r"Exit codes: (.*)\.")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--configuration-page", type=Path, metavar="EXAMPLE")
    options = parser.parse_args()
    program = Program(options.program)
    pages = dict(program.pages())
    if options.configuration_page:
        pages["gateway.yaml.5"] = program.configuration_page(options.configuration_page.read_text())
    for folder, files in (("man", pages), ("completions", program.completions())):
        (options.folder / folder).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (options.folder / folder / name).write_text(text)


class Program:
    def __init__(self, path):
        self.path = path.resolve()
        self.command = json.loads(self.run("--experimental-dump-help"))["command"]
        self.name = self.command["commandName"]
        self.version = self.run("--version").strip()
        self.date = date()

    def run(self, *arguments):
        result = subprocess.run([self.path, *arguments], capture_output=True, text=True)
        if result.returncode:
            raise SystemExit(f"man_pages.py: {self.path} {' '.join(arguments)} ended with {result.returncode}: {result.stderr.strip()}")
        return result.stdout

    def completions(self):
        """By file name. The file is sourced, and needs no line that names an interpreter."""
        bash = self.run("--generate-completion-script", "bash")
        return {
            self.name: re.sub(r"\A#!.*\n+", "", bash),
            f"_{self.name}": self.run("--generate-completion-script", "zsh"),
            f"{self.name}.fish": self.run("--generate-completion-script", "fish"),
        }

    def commands(self):
        """Every command with its words, the program itself first."""
        def walk(command, words):
            yield words, command
            for inner in shown(command.get("subcommands", [])):
                if inner["commandName"] != "help":
                    yield from walk(inner, [*words, inner["commandName"]])
        return [*walk(self.command, [self.name])]

    def pages(self):
        for words, command in self.commands():
            yield f"{'-'.join(words)}.1", self.page(words, command)

    def page(self, words, command):
        arguments = shown(command.get("arguments", []))
        inner = [inner for inner in shown(command.get("subcommands", [])) if inner["commandName"] != "help"]
        page = Roff(self, "-".join(words), 1, command["abstract"])
        page.section("SYNOPSIS")
        page.synopsis(words, arguments, bool(inner))
        page.section("DESCRIPTION")
        text = EXIT_CODES.sub("", command.get("discussion", ""))
        before, configuration, _ = split_configuration(text)
        page.discussion(before if configuration else text)
        if configuration:
            page.paragraph("The keys of the configuration file are in gateway.yaml(5).")
        if inner:
            page.section("COMMANDS")
            for each in inner:
                page.term(reference("-".join([*words, each["commandName"]]), 1), each["abstract"])
        for title, kinds in (("ARGUMENTS", ["positional"]), ("OPTIONS", ["option", "flag"])):
            chosen = [argument for argument in arguments if argument["kind"] in kinds]
            if chosen:
                page.section(title)
            for argument in chosen:
                page.term(forms(argument), explanation(argument))
        page.section("EXIT STATUS")
        for code, meaning in exit_codes(self.command):
            page.term(bold(code), meaning)
        page.section("ENVIRONMENT")
        page.term(bold("DATABASE_URL"), "URL of the database, postgres://…; it overrides the configuration.")
        page.term(bold("PUSH_GATEWAY_CONFIG"), "The configuration file, if --config is not given.")
        if self.name == "push-gateway":
            page.paragraph("Variables that begin with PUSH_GATEWAY_ override keys of the configuration: see gateway.yaml(5).")
        page.see_also([("-".join(others), 1) for others, _ in self.commands()
                       if others != words and (others == words[:-1] or others[:-1] == words or len(others) == 1)]
                      + [("gateway.yaml", 5)] + ([("push-gateway", 1)] if self.name != "push-gateway" else []))
        return page.text()

    def configuration_page(self, example):
        discussion = next(command["discussion"] for words, command in self.commands() if words[1:] == ["check-config"])
        _, configuration, rest = split_configuration(discussion)
        page = Roff(self, "gateway.yaml", 5, "the configuration of push-gateway")
        page.section("DESCRIPTION")
        page.paragraph("The configuration is a YAML file, given by --config or PUSH_GATEWAY_CONFIG. An unknown key, a missing key and a "
                       "bad value are errors that name the line. `push-gateway check-config` finds all of them without starting.")
        page.discussion(rest)
        page.paragraph("An app needs at least one of apns, fcm and expo. The presence of a section enables the provider.")
        page.section("EXAMPLE")
        page.literal([line for line in example.rstrip("\n").split("\n")])
        page.section("KEYS")
        page.paragraph("The key http.listen is written as `listen` below `http`. APP is the name of an app, NAME that of an operator.")
        page.discussion(configuration)
        page.section("FILES")
        page.term(bold("/etc/push-gateway/gateway.yaml"), "The file that the service reads.")
        page.see_also([("push-gateway", 1), ("push-gateway-serve", 1), ("push-gateway-check-config", 1)])
        return page.text()


class Roff:
    """A man page. Hyphens are minus signs, so that options can be copied from a terminal."""

    def __init__(self, program, title, section, abstract):
        self.lines = [
            f'.\\" Made by scripts/man_pages.py from {program.name} --experimental-dump-help.',
            f'.TH "{roff(title.upper() if section == 1 else title)}" "{section}" "{program.date}" "push\\-gateway {program.version}" '
            '"push\\-gateway"',
            # Neither stretched lines nor hyphenated words.
            ".ad l", ".nh"]
        self.section("NAME")
        sentence = abstract.rstrip(".")
        self.lines.append(f"{roff(title)} \\- {prose(sentence[0].lower() + sentence[1:])}")

    def section(self, title):
        self.lines.append(f'.SH "{title}"')

    def paragraph(self, text):
        self.lines += [".PP", prose(text)]

    def term(self, term, text):
        self.lines += [".TP", term, prose(text)]

    def literal(self, lines):
        self.lines += [".PP", ".RS 4", ".nf", *map(roff, lines), ".fi", ".RE"]

    def synopsis(self, words, arguments, has_commands):
        parts = [bold(" ".join(words))]
        if has_commands:
            parts.append(italic("command"))
        for argument in arguments:
            if argument["kind"] == "positional":
                form = italic(argument["valueName"])
            elif argument["preferredName"]["name"] in ("help", "version"):
                continue
            else:
                form = forms(argument, preferred=True)
            parts.append(f"[{form}]" if argument["isOptional"] else form)
        # A line never begins inside of an option.
        self.lines.append(" ".join([parts[0], *(part.replace(" ", "\\ ") for part in parts[1:])]))

    def discussion(self, text):
        """Paragraphs are filled; indented lines are a list of terms or of keys, or stay as they are."""
        for block in re.split(r"\n{2,}", text.strip("\n")):
            self._block(block.split("\n"))

    def _block(self, lines):
        index = 0
        while index < len(lines):
            line = lines[index]
            following = lines[index + 1] if index + 1 < len(lines) else ""
            index += 1
            if term := TERM.fullmatch(line):
                self.term(bold(term[1]), term[2])
            elif KEY.fullmatch(line) and following.startswith("      "):
                self.term(bold(KEY.fullmatch(line)[1]), following.strip())
                index += 1
            elif line.startswith("  "):
                first = index - 1
                while index < len(lines) and lines[index].startswith("  "):
                    index += 1
                self.literal([each[2:] for each in lines[first:index]])
            elif section := SECTION.fullmatch(line):
                self.lines.append(f'.SS "{section[1].capitalize()}"')
                self.lines.append(prose(section[2]))
            elif line:
                self.paragraph(line)

    def see_also(self, pages):
        self.section("SEE ALSO")
        self.lines.append(",\n".join(reference(*page) for page in dict.fromkeys(pages)))

    def text(self):
        return "\n".join(self.lines) + "\n"


def shown(things):
    return [thing for thing in things if thing.get("shouldDisplay", True)]


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq").replace("'", "\\(aq").replace("`", "\\(ga")
    return re.sub(r"^\.", r"\\&.", text)


def bold(text):
    return f"\\fB{roff(text)}\\fR"


def italic(text):
    return f"\\fI{roff(text)}\\fR"


def reference(title, section):
    return f"\\fB{roff(title)}\\fR({section})"


def prose(text):
    """Text of one paragraph, where `words` are bold."""
    parts = re.split(r"`([^`]+)`", text)
    return "".join(bold(part) if number % 2 else roff(part) for number, part in enumerate(parts))


def names(argument):
    return [f"{'-' if name['kind'] == 'short' else '--'}{name['name']}" for name in argument["names"]]


def forms(argument, preferred=False):
    """How an argument is written: --config file; -h, --help."""
    if argument["kind"] == "positional":
        return italic(argument["valueName"])
    value = f" {italic(argument['valueName'])}" if argument["kind"] == "option" else ""
    chosen = [f"--{argument['preferredName']['name']}"] if preferred else names(argument)
    return ", ".join(bold(name) + value for name in chosen)


def explanation(argument):
    notes = []
    if argument.get("allValues"):
        notes.append(f"values: {', '.join(argument['allValues'])}")
    if "defaultValue" in argument:
        notes.append(f"default: {argument['defaultValue']}")
    return " ".join([argument.get("abstract", ""), *([f"({'; '.join(notes)})"] if notes else [])]).strip()


def exit_codes(command):
    found = EXIT_CODES.search(command.get("discussion", ""))
    if not found:
        raise SystemExit(f"man_pages.py: {command['commandName']} --help has no line 'Exit codes: …'")
    return re.findall(r"(\d+) ([^,]+)", found[1])


def split_configuration(text):
    """(what is before the list of keys, the list, what is after it); the list is empty if there is none."""
    before, found, after = text.partition(f"{CONFIGURATION}. ")
    if not found:
        return text, "", ""
    configuration, _, rest = after.partition("\n\n")[2].partition("\n\n")
    return before, configuration, rest


def date():
    seconds = os.environ.get("SOURCE_DATE_EPOCH") or subprocess.run(
        ["git", "log", "-1", "--format=%ct"], capture_output=True, text=True, check=True, cwd=Path(__file__).parent).stdout
    return datetime.fromtimestamp(int(seconds), timezone.utc).strftime("%Y-%m-%d")


if __name__ == "__main__":
    main()
