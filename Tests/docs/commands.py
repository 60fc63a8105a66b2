"""Which commands of the documentation a test runs.

A block shows commands if its language is one of LANGUAGES, or if it has none and begins with one of PROGRAMS. It is run

- in a situation, `<!-- psql: NAME -->`, by run.py, or as a body or file of another comment that run.py describes;
- in a session, `<!-- shell: NAME -->`, by live.py;
- or not, `<!-- not run: WHY -->`. What can be checked of it without running it is checked here: the targets of make, also those
  that the text mentions, and the scripts of the repository.
"""

import os
import re
import subprocess

from page import ROOT, Page

LANGUAGES = {"sh", "bash", "console", "shell", "sql", "psql"}
PROGRAMS = re.compile(r"""\s*(\$\ |(?:[A-Z_]+=\S+\ )*(push-gateway(-lab)?|make|scripts/\S+|Tests/\S+|benchmarks/\S+|curl|psql|docker
    |apt(-get)?|helm|kubectl|systemctl|git|swift|pip|select|insert|update|delete|alter|create)\b)""", re.X)
TARGET = re.compile(r"(?:^|&& |\$ )make ([a-z-]+)", re.M)
TARGET_IN_TEXT = re.compile(r"`make ([a-z-]+)(?: [^`]*)?`")
SCRIPT = re.compile(r"(?:^|[\s(=])((?:scripts|Tests|benchmarks|deploy)/[\w./-]*\w)")


def faults(files):
    """What no test runs; files: text by name."""
    targets = make_targets()
    for name, text in files.items():
        yield from (f"{name}: there is no target {target} in the Makefile" for target in TARGET_IN_TEXT.findall(text)
                    if target not in targets)
        if name.startswith(".github/"):
            continue
        for block in Page(name, text).blocks:
            if block.language not in LANGUAGES and (block.language or not PROGRAMS.match(block.text) or block.is_output):
                continue
            if block.runner is None:
                yield f"{name}:{block.line}: no test runs this; put it into a situation or session, or say why not (Tests/docs/commands.py)"
            elif block.runner == "psql" and not in_run(name):
                yield f"{name}:{block.line}: Tests/docs/run.py does not look at this page"
            yield from (f"{name}:{block.line}: there is no target {target} in the Makefile"
                        for target in TARGET.findall(block.text) if target not in targets)
            yield from (f"{name}:{block.line}: there is no {script}" for script in SCRIPT.findall(block.text)
                        if not (ROOT / script).exists())


def in_run(name):
    return "/" not in name or re.fullmatch(r"docs/((integrations|operations)/)?[^/]+\.md|(deploy|Tests/[^/]+)/README\.md", name)


def make_targets():
    """The targets that `make help-all` lists: all that are meant to be called."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    listed = subprocess.run(["make", "-s", "help-all"], cwd=ROOT, env=environment, check=True, text=True, stdout=subprocess.PIPE)
    return set(re.findall(r"^  make ([a-z-]+) +\S", listed.stdout, re.M))


def help_faults():
    """Targets that `make help-all` does not list, and the number of those that `make help` lists."""
    makefile = (ROOT / "Makefile").read_text()
    listed = make_targets()
    yield from (f"{name} is not in make help-all: say after ## or #: what it does"
                for name in set(re.findall(r"^([a-z-]+):(?! packages)(?! export)", makefile, re.M)) - listed - {"needs-root"})
    if (count := len(re.findall(r"^[a-z-]+:.* ## ", makefile, re.M))) > 14:
        yield f"make help lists {count} targets, more than a newcomer needs: #: shows one in make help-all alone"
