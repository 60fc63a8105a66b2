# Sourced by what builds a release. The same commit gives the same bytes with the same Swift and the same Debian packages.
# shellcheck shell=sh

# Always the same folder: the compiler's output contains the paths of sources, through `#filePath` and hashes of modules,
# and -file-prefix-map changes neither (docs/adr/0039-releases-that-can-be-built-again.md).
release_folder=/var/tmp/push-gateway-release

# release_source: clones the last commit of the current folder into $release_folder/source, and changes to it.
release_source() {
  release_root=$PWD
  [ -z "$(git status --porcelain)" ] || { echo "$(basename "$0"): there are changes that are not committed: git status" >&2; exit 1; }
  umask 022
  export LC_ALL=C TZ=UTC
  SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
  export SOURCE_DATE_EPOCH
  release_commit=$(git rev-parse HEAD)

  # Another user must not have created it: its name is known to all users of this machine.
  mkdir -m 700 "$release_folder" 2>/dev/null || {
    echo "$(basename "$0"): $release_folder is there: another release is being built, or one was killed. If none is: rm -rf $release_folder" >&2
    exit 1
  }
  # KEEP=1 keeps it after a failure, for inspection.
  trap '[ $? -ne 0 ] && [ -n "${KEEP:-}" ] || rm -rf "$release_folder"' EXIT
  trap 'exit 130' INT TERM

  echo "== Sources of $release_commit"
  git -c advice.detachedHead=false clone --quiet --no-hardlinks "$release_root" "$release_folder/source"
  cd "$release_folder/source" || exit
  git -c advice.detachedHead=false checkout --quiet "$release_commit"
}

# release_packages: the Swift packages, in the folder that release_source has made. Then nothing of it is younger than the commit.
release_packages() {
  scripts/sbom.py --pin
  # Compiled Clang modules contain the times of headers.
  find . -path ./.git -prune -o -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
}

# release_build PRODUCT BUILD-ID: a build of the current folder, in .build/release.
# No debug information: it names the compiler's caches. Symbols stay, for backtraces. All
# addresses of libraries are bound at the start, and read-only from then on.
release_build() {
  ${SWIFT:-swift} build -c release --product "$1" --static-swift-stdlib --force-resolved-versions -debug-info-format none \
    -Xswiftc -file-prefix-map -Xswiftc "$PWD=/push-gateway" -Xcc "-ffile-prefix-map=$PWD=/push-gateway" -Xcc -g0 \
    -Xlinker -z -Xlinker now -Xlinker "--build-id=$2" -Xlinker "--dependency-file=$PWD/.build/$1.link.d"
}

# release_programs: both programs, in .build/release. The build id of push-gateway is the commit; every program has its own.
release_programs() {
  commit=$(git rev-parse HEAD)
  release_build push-gateway "0x$commit"
  release_build push-gateway-lab "0x$(printf 'push-gateway-lab %s' "$commit" | sha1sum | cut -c1-40)"
}
