#!/usr/bin/env python3
"""The tests of the Debian packages that need no release build: man pages, completions, and the lists in deploy/debian.

  PUSH_GATEWAY=.build/debug/push-gateway Tests/debian/run.py      seconds; the packages themselves: make deb

The pages and completions are made from the debug build, and compared with what --help says. Ends with "N passed, N failed"; non-zero
when any failed.
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "deploy/debian"
results = []


def check(what, faults):
    results.append(not faults)
    print(f"{'not ok' if faults else 'ok'} - {what}{': ' if faults else ''}{'; '.join(map(str, faults))[:2000]}")


def main():
    gateway = Path(os.environ.get("PUSH_GATEWAY", ROOT / ".build/debug/push-gateway")).absolute()
    if not os.access(gateway, os.X_OK):
        sys.exit(f"run.py: there is no program {gateway}: build it, or name it in PUSH_GATEWAY")
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory() as work:
        for program, options in ((gateway, ["--configuration-page", "deploy/systemd/gateway.yaml"]), (f"{gateway}-lab", [])):
            subprocess.run(["scripts/man_pages.py", program, work, *options], check=True)
            commands = help_texts(program)
            pages(Path(work) / "man", commands)
            completions(Path(work) / "completions", commands)
        configuration_page(Path(work) / "man/gateway.yaml.5")
        warnings(Path(work) / "man")
        unit((PACKAGING.parent / "systemd/push-gateway.service").read_text(), {path.name for path in (Path(work) / "man").iterdir()})
    demo(f"{gateway}-lab")
    lists()
    changelog()
    licences()
    failed = results.count(False)
    print(f"{len(results) - failed} passed, {failed} failed")
    raise SystemExit(1 if failed or not results else 0)


def demo(lab):
    """`push-gateway-lab demo` away from the clone, as an installed program would run it. In a Debian of its own: make tarball-demo."""
    with tempfile.TemporaryDirectory() as work:
        os.chmod(work, 0o755)  # As root, Postgres is another user.
        environment = {**os.environ, "TMPDIR": work}

        def run(*arguments):
            return subprocess.run([lab, "demo", *arguments], cwd=work, env=environment, capture_output=True, text=True, timeout=300)

        first = run()
        left = os.listdir(work)
        check("demo rings three phones, and leaves nothing", [] if (first.returncode, first.stdout.count(" delivered "), left) == (0, 3, [])
              else [first.returncode, left, first.stdout[-700:], first.stderr[-700:]])
        Path(work, "full").mkdir()
        Path(work, "full/file").touch()
        full = run("--directory", f"{work}/full")
        check("demo refuses a folder with files", [] if full.returncode == 64 and "is not empty" in full.stderr else [full])


def help_texts(program):
    """What --help says of each command, by its words."""
    def walk(words):
        text = subprocess.run([program, *words[1:], "--help"], capture_output=True, text=True, check=True).stdout
        yield words, text
        for section in re.findall(r"^[A-Z ]*SUBCOMMANDS:\n((?: .*\n)+)", text, re.M):
            for name in re.findall(r"^  ([a-z-]+)(?= |$)", section, re.M):
                yield from walk((*words, name))
    return dict(walk((Path(program).name,)))


def options(text):
    return set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", text.partition("\nOPTIONS:\n")[2], re.M))


def arguments(text):
    return set(re.findall(r"^  <([a-z-]+)>", text.partition("\nARGUMENTS:\n")[2].partition("\n\n")[0], re.M))


def text_of(page):
    """A page as text, without a formatter: hyphens are minus signs, and fonts are left out."""
    return re.sub(r"\\f[BIR]", "", page.read_text()).replace("\\-", "-").replace("\\(aq", "'")


def pages(folder, commands):
    missing = []
    for words, text in commands.items():
        page = folder / f"{'-'.join(words)}.1"
        if not page.exists():
            missing.append(f"no {page.name}")
            continue
        shown = text_of(page)
        missing += [f"{page.name} has no {word}" for word in sorted(options(text)) if not re.search(rf"^(-\w, )?{word}( |$)", shown, re.M)]
        missing += [f"{page.name} has no argument {word}" for word in sorted(arguments(text)) if f"\n{word}\n" not in shown]
        missing += [f"{page.name} does not name {'-'.join(inner)}" for inner in commands
                    if inner[:-1] == words and f"{'-'.join(inner)}(1)" not in shown]
    name = next(iter(commands))[0]
    check(f"{name}: {len(commands)} commands have a man page with their options and arguments", missing)
    others = {page.name for page in folder.glob(f"{name}*.1")} - {f"{'-'.join(words)}.1" for words in commands}
    lab = {page for page in others if page.startswith("push-gateway-lab")} if name == "push-gateway" else set()
    check(f"{name}: and there are no other pages", sorted(others - lab))


def completions(folder, commands):
    name = next(iter(commands))[0]
    for file, option in ((name, "{}"), (f"_{name}", "{}"), (f"{name}.fish", "-l '?{}'?")):
        text = (folder / file).read_text()
        words = {word for words in commands for word in words[1:]}
        missing = [word for word in sorted(words) if not re.search(rf"\b{word}\b", text)]
        for word in {word for text in commands.values() for word in options(text)}:
            if not re.search(option.format(word.removeprefix("--")), text):
                missing.append(word)
        check(f"completions/{file} has every command and option", missing)
    bash = (folder / name).read_text()
    check("bash reads its completions", subprocess.run(["bash", "-n"], input=bash, capture_output=True, text=True).stderr.splitlines())
    check("they are sourced, and name no interpreter", [bash.split("\n")[0]] if bash.startswith("#!") else [])


def configuration_page(page):
    keys = set(re.findall(r"`((?:[a-z_]+|APP|NAME)(?:\.(?:[a-z_]+|APP|NAME))+)`", "\n".join(
        line.split("|")[1] for line in (ROOT / "docs/configuration.md").read_text().splitlines() if line.startswith("| `"))))
    shown = text_of(page)
    check(f"gateway.yaml(5) has the {len(keys)} keys of docs/configuration.md",
          sorted(key for key in keys if f"\n{key}\n" not in shown) or ([] if len(keys) > 50 else [f"only {len(keys)} keys found"]))


def warnings(folder):
    if not shutil.which("man"):
        print("skipped - man --warnings: there is no man")
        return
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "MANROFFSEQ": "", "MANWIDTH": "80"}
    check("man has no warnings", [f"{page.name}: {said.strip()}" for page in sorted(folder.iterdir()) if (said := subprocess.run(
        ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", page], env=environment, capture_output=True, text=True).stderr)])


def unit(text, made):
    credentials = dict(line.split(":", 1) for line in re.findall(r"^LoadCredential=(.*)$", text, re.M))
    defaults = set(re.findall(r"^SetCredential=([^:]+):.+$", text, re.M))
    example = (ROOT / "deploy/systemd/gateway.yaml").read_text()
    # Commented lines, too: they are what an administrator would uncomment.
    named = set(re.findall(r"(?:_file|ops_keys: \{ alice): ([a-z0-9.-]+)", example)) | {"gateway.yaml", "pg_service.conf"}
    check("the unit gives the service every file that the example names", sorted(named - credentials.keys()))
    check("each from /etc/push-gateway, by the same name",
          [path for name, path in credentials.items() if path != f"/etc/push-gateway/{name}"])
    check("a missing file other than gateway.yaml does not keep it from starting", sorted(credentials.keys() - defaults - {"gateway.yaml"}))
    documented = re.findall(r"man:([^ (]+)\((\d)\)", text)
    check("the manual pages that it names are made",
          [] if documented and all(f"{page}.{section}" in made for page, section in documented) else documented)
    check("it starts the program where the package puts it", [] if "\nExecStart=/usr/bin/push-gateway serve " in text
          and "debian/made/push-gateway usr/bin" in (PACKAGING / "push-gateway.install").read_text() else ["no"])


def lists():
    """Every file that the packaging names is in the repository, or is made by debian/rules."""
    missing, installed = [], {}
    for path in sorted(PACKAGING.iterdir()):
        if not path.name.endswith((".install", ".docs", ".examples", ".manpages")):
            continue
        for line in path.read_text().splitlines():
            source, _, folder = line.partition(" ")
            installed.setdefault(path.name, []).append((source, folder))
            if not source.startswith("debian/made/") and not glob.glob(source):
                missing.append(f"{path.name}: {source}")
    check("every file that deploy/debian lists exists", missing)
    sources = [source for lines in installed.values() for source, _ in lines]
    named = {word for page in (ROOT / "docs").rglob("*.md")
             for word in re.findall(r"deploy/(?:grafana|patroni|plproxy|prometheus|psql)/[a-z_-]+\.[a-z]+", page.read_text())}
    check(f"the package has the {len(named)} files of deploy/ that the documentation tells operators to use", sorted(
        word for word in named if not any(word == each or word.startswith(f"{each}/") for each in sources)))
    check("both packages have a program, completions of three shells, and man pages", [
        name for name in ("push-gateway", "push-gateway-lab")
        if [folder for source, folder in installed[f"{name}.install"] if source.startswith("debian/made/")]
        != ["usr/bin", "usr/share/bash-completion/completions", "usr/share/zsh/vendor-completions", "usr/share/fish/vendor_completions.d"]
        or not installed[f"{name}.manpages"]])
    # debhelper makes every file in /etc a configuration file that an upgrade keeps.
    check("the configuration files are /etc/push-gateway/gateway.yaml alone", [
        each for lines in installed.values() for each in lines if each[1].startswith("etc")
        and each != ("deploy/systemd/gateway.yaml", "etc/push-gateway")])
    rules = (PACKAGING / "rules").read_text()
    check("only root reads them", [line for line in ("chmod 0700 debian/push-gateway/etc/push-gateway\n",
                                                     "chmod 0600 debian/push-gateway/etc/push-gateway/*\n") if line not in rules])
    check("an upgrade leaves the service alone, and an installation leaves it disabled", [
        word for word in ("--no-enable", "--no-stop-on-upgrade", "--no-restart-after-upgrade")
        if word not in rules.partition("\tdh_installsystemd")[2].partition("\n")[0]])


def changelog():
    made = subprocess.run(["scripts/debian_changelog.py", "Somebody <somebody@example.org>"], capture_output=True, text=True, check=True)
    version = re.search(r'current = "([^"]+)"', (ROOT / "Sources/Settings/GatewayVersion.swift").read_text())[1]
    check("the changelog begins with this version", [] if made.stdout.startswith(f"push-gateway ({version}) ") else [made.stdout[:80]])
    items = (ROOT / "CHANGELOG.md").read_text().count("\n- ")
    check(f"it has the {items} changes of CHANGELOG.md", [] if made.stdout.count("\n  * ") == items else [made.stdout.count("\n  * ")])
    if shutil.which("dpkg-parsechangelog"):
        parsed = subprocess.run(["dpkg-parsechangelog", "-l", "-", "--all"], input=made.stdout, capture_output=True, text=True)
        check("dpkg can parse it", parsed.stderr.splitlines())


def licences():
    page = (ROOT / "docs/dependencies.md").read_text()
    direct, _, indirect = page.partition("## Swift packages\n")[2].partition("\n## Code of others")[0].partition("\n## ")
    used = set(re.findall(r"^\| `([^`]+)` \|", direct, re.M)) | set(re.findall(r"^\| `([^`]+)` \|[^|]*\|[^|]*\| yes \|", indirect, re.M))
    text = (PACKAGING / "copyright").read_text()
    check(f"debian/copyright has the {len(used)} Swift packages in the program", sorted(
        name for name in used if f".build/checkouts/{name}/*" not in text) or ([] if len(used) > 10 else ["too few found"]))
    given = set(re.findall(r"^License: (.+)$", text, re.M))
    texts = set(re.findall(r"^License: (.+)\n .", text, re.M))
    check("it has the text of every licence that it names", sorted(given - texts))


if __name__ == "__main__":
    main()
