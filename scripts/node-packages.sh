#!/bin/sh
# Unpacks Express, node-postgres and esbuild, as Debian packages them, into .local/node, for the test of
# docs/integrations/express.md.
#
# They are unpacked and not installed: Debian's packages would also install a Node.js and two hundred packages that are
# not needed. Downloads six megabytes, once. Without Node.js, or if apt has no such packages, nothing is done,
# and the test reports that it was skipped.
set -eu
cd "$(dirname "$0")/.."

directory=.local/node
modules=$directory/usr/share/nodejs
esbuild=$directory/usr/bin/esbuild
works() {
  (cd "$directory" && NODE_PATH=$PWD/usr/share/nodejs node -e "require('express'); require('pg')") >/dev/null 2>&1 &&
    "$esbuild" --version >/dev/null 2>&1
}
[ ! -d "$modules/express" ] || [ ! -x "$esbuild" ] || exit 0
command -v node >/dev/null && command -v dpkg-deb >/dev/null || exit 0

packages="express pg accepts array-flatten body-parser bytes content-disposition content-type cookie cookie-signature
  debbundle-es-to-primitive debug deep-equal depd encodeurl escape-html etag finalhandler fresh function-bind http-errors
  iconv-lite inherits ipaddr.js media-typer merge-descriptors methods mime mime-types ms negotiator object-inspect
  on-finished parseurl path-to-regexp proxy-addr qs range-parser raw-body safe-buffer send serve-static setprototypeof
  split2 statuses toidentifier type-is unpipe utils-merge vary"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
# shellcheck disable=SC2086,SC2046 # the packages are words
download() { (cd "$work" && apt-get download esbuild $(printf 'node-%s ' $packages)) >"$work/log" 2>&1; }
sudo=
[ "$(id -u)" -eq 0 ] || sudo="sudo -n"
if ! download && ! { $sudo apt-get update >/dev/null 2>&1 && download; }; then
  echo "node-packages.sh: no Express from apt: $(tail -n 1 "$work/log")" >&2
  exit 0
fi
rm -rf "$directory"
mkdir -p "$directory"
for package in "$work"/*.deb; do dpkg-deb -x "$package" "$directory"; done
works || { echo "node-packages.sh: Express does not start with what was unpacked" >&2; rm -rf "$directory"; }
