"""What MkDocs does with the repository's pages: see mkdocs.yml."""

import html
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from mkdocs.structure.files import File  # noqa: E402

import api_reference  # noqa: E402
import github_markdown  # noqa: E402
import repository  # noqa: E402

MENU_BEFORE = '<span class="md-ellipsis">'


def on_config(config):
    config.nav = repository.navigation(config.nav)
    config.copyright = f"push-gateway {repository.version()}, Apache License 2.0"
    return config


def on_files(files, config):
    for name, path in repository.PAGES_ELSEWHERE.items():
        files.append(File.generated(config, path, content=(repository.ROOT / name).read_text()))
    for name, path in repository.FILES.items():
        files.append(File.generated(config, path, content=(repository.ROOT / name).read_text()))
    files.append(File.generated(config, repository.API_REFERENCE, content=api_reference.page()))
    files.append(File.generated(config, repository.DECISIONS, content=repository.decisions_page()))
    return files


def on_page_markdown(markdown, page, config, files):
    path = page.file.src_uri
    # A page that is made from other files has its links as on the site already.
    name = repository.in_repository(path)
    return github_markdown.convert(markdown, name, path)


def on_post_page(output, page, config):
    """The version, and the list of other versions, beside the name in the header."""
    up = "../" * page.file.dest_uri.count("/")
    shown = html.escape(repository.version())
    menu = (f'<div class="md-version" data-site="{up}../"><a class="md-version__current" href="{up}../index.html" '
            f'aria-label="version {shown}; all versions">{shown}</a></div>')
    head, found, tail = output.partition(MENU_BEFORE)
    name, ended, rest = tail.partition("</span>")
    if not found or not ended:
        raise SystemExit("hooks.py: the theme's header has no place for the version")
    scripts = f'<script src="{up}../versions.js"></script><script src="{up}assets/versions-menu.js"></script>'
    return (head + found + name + ended + menu + rest).replace("</body>", scripts + "</body>")
