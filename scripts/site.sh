#!/bin/sh
# The documentation as a static site: dist/site/VERSION, which needs no server and no network (ADR 47).
#
#   scripts/site.sh              build it, check it, and build it again: both must be the same
#   scripts/site.sh --serve      show it at a port of the loopback while pages are written
#   scripts/site.sh --lock       look up the hashes of the packages that scripts/site/requirements.in names
#
# SITE=DIR: where it goes, instead of dist/site. The folders of other versions there stay, and are listed.
set -eu
cd "$(dirname "$0")/.."

fail() { echo "site.sh: $*" >&2; exit 1; }

local=.local/site
venv=$local/venv
requirements=scripts/site/requirements.txt
export PYTHONDONTWRITEBYTECODE=1 DISABLE_MKDOCS_2_WARNING=true NO_MKDOCS_2_WARNING=true

make_venv() {
  rm -rf "$venv"
  mkdir -p "$local"
  python3 -c 'import venv, ensurepip' 2>/dev/null || scripts/setup.sh
  python3 -m venv "$venv" || fail "python3 -m venv fails: install python3-venv"
}

install_packages() {
  ! cmp -s "$requirements" "$venv/requirements.txt" || return 0
  echo "Installing MkDocs into $venv"
  make_venv
  "$venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r "$requirements" ||
    fail "pip could not install $requirements: is there a network?"
  cp "$requirements" "$venv/requirements.txt"
}

# With the hashes of every file of a package, for every version of Python.
lock_packages() {
  make_venv
  "$venv/bin/pip" install --quiet --disable-pip-version-check pip-tools
  (cd scripts/site && CUSTOM_COMPILE_COMMAND="scripts/site.sh --lock" "../../$venv/bin/pip-compile" --quiet --generate-hashes \
    --strip-extras --upgrade --no-emit-index-url --no-emit-find-links --output-file requirements.txt requirements.in)
  rm -rf "$venv"
}

# Times in the output are the commit's.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || echo 0)
export SOURCE_DATE_EPOCH

# build DIR: without the map for search engines and the page for errors, which need the address at which the site is published, and
# without what the theme has for the search in other languages.
build() {
  # Not with --quiet: then --strict would not see warnings.
  "$venv/bin/mkdocs" build --strict --clean --site-dir "$PWD/$1" >"$local/build.log" 2>&1 || {
    cat "$local/build.log" >&2
    fail "MkDocs refuses the pages"
  }
  rm -rf "$1/sitemap.xml" "$1/sitemap.xml.gz" "$1/404.html" "$1/assets/javascripts/lunr"
  find "$1" -name '*.map' -delete
}

# The search of pages that are opened as files depends on a script of ours and on the theme's: tried where there is a Chromium.
search_in_browser() {
  command -v chromium >/dev/null || { echo "skipped - the search is not tried in a browser: there is no chromium"; return 0; }
  sandbox=
  [ "$(id -u)" -ne 0 ] || sandbox=--no-sandbox
  # shellcheck disable=SC2086 # empty for other users than root
  timeout 60 chromium --headless=new $sandbox --disable-gpu --user-data-dir="$work/chromium" --virtual-time-budget=10000 --dump-dom \
    "file://$(cd "$site" && pwd)/$version/index.html?q=PushKit" >"$local/search.html" 2>/dev/null </dev/null || return 1
  grep -q '<article class="md-search-result__article' "$local/search.html" || return 1
  echo "ok - the search finds a word in Chromium, on a page that was opened as a file"
}

case ${1:-} in
  "") ;;
  --serve)
    install_packages
    exec "$venv/bin/mkdocs" serve --strict --dev-addr "127.0.0.1:${PORT:-8000}"
    ;;
  --lock)
    lock_packages
    exit
    ;;
  *)
    sed -n '4,6s/^# *//p' "$0" >&2
    exit 64
    ;;
esac

site=${SITE:-dist/site}
version=$(sed -n 's/.*static let current = "\(.*\)".*/\1/p' Sources/Settings/GatewayVersion.swift)
[ -n "$version" ] || fail "no version in Sources/Settings/GatewayVersion.swift"
install_packages
work=$(mktemp -d "$PWD/$local/build.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
relative=${work#"$PWD"/}

echo "Building the site of $version"
build "$relative/$version"
build "$relative/again"
diff -r "$relative/$version" "$relative/again" || fail "two builds of the same pages differ"
mkdir -p "$site"
rm -rf "${site:?}/$version"
mv "$relative/$version" "$site/$version"
scripts/site/versions.py "$site"
"$venv/bin/python" scripts/site/check_site.py "$site" "$version" || fail "the site in $site is not in order"
search_in_browser || fail "the search of a page that was opened as a file finds nothing"
echo "$site/index.html: the site, $(find "$site/$version" -name '*.html' | wc -l) pages, $(du -sh "$site/$version" | cut -f1)"
