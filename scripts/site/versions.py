#!/usr/bin/env python3
"""Writes the list of the versions of the site: versions.js, which every page reads, and index.html, which leads to the newest.

  scripts/site/versions.py SITE      (every folder of SITE with an index.html is a version)
"""

import html
import json
import re
import sys
from pathlib import Path


def order(version):
    """Sorts 1.10.0 behind 1.9.0, and 1.0.0-rc1 before 1.0.0."""
    release, _, candidate = version.partition("-")
    return [int(part) if part.isdigit() else 0 for part in re.split(r"\D+", release)], not candidate, candidate


def main():
    site = Path(sys.argv[1])
    versions = sorted((folder.parent.name for folder in site.glob("*/index.html")), key=order, reverse=True)
    if not versions:
        raise SystemExit(f"versions.py: there is no version in {site}")
    (site / "versions.js").write_text(f"window.siteVersions = {json.dumps(versions)};\n")
    items = "\n".join(f'<li><a href="{html.escape(name)}/index.html">{html.escape(name)}</a></li>' for name in versions)
    (site / "index.html").write_text(f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="refresh" content="2; url={html.escape(versions[0])}/index.html">
<title>push-gateway: versions of the documentation</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 1.1rem/1.6 system-ui, sans-serif; max-width: 40rem; margin: 4rem auto; padding: 0 1rem }}
</style>
</head>
<body>
<h1>push-gateway</h1>
<p>The documentation of these versions. The newest one opens by itself.</p>
<ul>
{items}
</ul>
</body>
</html>
""")


if __name__ == "__main__":
    main()
