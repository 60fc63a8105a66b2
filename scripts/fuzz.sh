#!/bin/sh
# Builds the fuzz targets and runs them (Tests/Fuzz/README.md).
#
#   scripts/fuzz.sh [--seconds 60] [TARGET...]   all targets, or those named, 60 seconds in all
#   scripts/fuzz.sh --quick ...                  not optimised: builds in a third of the time, runs at a fifth of the speed
#   scripts/fuzz.sh --build                      builds only: .local/fuzz/optimised/TARGET FILE replays a file
#   scripts/fuzz.sh --minimise [TARGET...]       reduces the corpus to inputs that cover more code, new ones included
#   scripts/fuzz.sh --list                       the targets
set -eu
cd "$(dirname "$0")/.."

out=.local/fuzz
targets=$(sed -n 's/^    "\([a-z0-9-]*\)": .*/\1/p' Tests/Fuzz/Fuzz.swift)
swiftc=${SWIFTC:-swiftc}
# libFuzzer reports a crash itself.
export SWIFT_BACKTRACE=enable=no

# Only the sources that the targets need, without sockets and logging. New files of the HTTP/2 session are included automatically.
sources() {
  (
    cd Sources/Runtime
    ls ByteArray.swift JSON/JSONGrammar.swift JSON/JSONScanner.swift JSON/JSONUnescape.swift \
      Network/Proxy/ConnectAnswer.swift Network/TCPKeepalive.swift SlotTable.swift Time/GatewayClock.swift Time/UTCTime.swift HTTP2/*.swift |
      grep -vE '/HTTP2(Callbacks|Connection|ConnectionTypes|Endpoint|Liveness|ServerSession)\.swift$' |
      sed 's|^|Sources/Runtime/|'
  )
  (
    cd Sources/Providers
    ls APNs/APNsReasonTable.swift FCM/FCMErrorBody.swift FCM/FCMReasonTable.swift FCM/FCMTokenExchange.swift \
      Expo/ExpoAnswer.swift Expo/ExpoReasonTable.swift Expo/ExpoReceiptsAnswer.swift Expo/ExpoRefusal.swift \
      Answers/AnswerDisposition.swift Answers/AnswerFields.swift Answers/SafeProviderText.swift \
      Answers/ClockSkewMeter.swift Answers/ReasonScope.swift Answers/RetryAfter.swift Curl/CurlRequest.swift \
      HTTP2/HTTP2ConnectionPoolExchangeEffect.swift PushOutcome.swift Tokens/ProviderTokenSource.swift |
      sed 's|^|Sources/Providers/|'
  )
  ls Tests/Fuzz/*.swift
}

# One module, called Runtime, so that `import Runtime` in the sources means the module itself; the warnings say so.
build() {
  files=$(sources)
  # shellcheck disable=SC2086
  stamp=$({ $swiftc --version 2>&1; cat scripts/fuzz.sh $files; } | cksum)
  if [ "$(cat $bin/stamp 2>/dev/null)" = "$stamp" ]; then return; fi
  mkdir -p $bin
  echo "building the fuzz targets"
  # Shows the output of the build only if it fails.
  # shellcheck disable=SC2086,SC2046
  $swiftc -swift-version 6 $optimise -wmo -num-threads 2 -g -parse-as-library -module-name Runtime -suppress-warnings \
    -enable-upcoming-feature ExistentialAny -sanitize=fuzzer,address \
    -I Sources/CLibs/CNghttp2 $(pkg-config --cflags --libs libnghttp2) \
    $files -o $bin/targets >$out/build.log 2>&1 || {
    grep -vE 'warning: Cannot export local symbol' $out/build.log >&2
    exit 1
  }
  for target in $targets; do ln -sf targets "$bin/$target"; done
  echo "$stamp" >$bin/stamp
}

# At most 4 KB for an input: longer ones are slow and find nothing more.
run() {
  target=$1
  seconds=$2
  mkdir -p "$out/found" "$out/corpus/$target"
  dictionary=Tests/Fuzz/dictionaries/$target.dict
  status=0
  # First the seeds, then inputs found by earlier runs here, then new inputs.
  "$bin/$target" -max_total_time="$seconds" -max_len=4096 -timeout=60 -rss_limit_mb=1024 -print_final_stats=1 \
    -artifact_prefix="$out/found/$target-" ${dictionary:+$([ ! -e "$dictionary" ] || echo "-dict=$dictionary")} \
    "$out/corpus/$target" "Tests/Fuzz/corpus/$target" >"$out/$target.log" 2>&1 || status=$?
  awk -v target="$target" '
    /cov: / { for (i = 1; i < NF; i++) if ($i == "cov:") coverage = $(i + 1); else if ($i == "corp:") corpus = $(i + 1) }
    /^stat::number_of_executed_units/ { runs = $2 }
    END { printf "%-16s %9d inputs, coverage %s, corpus %s\n", target, runs, coverage, corpus }' "$out/$target.log"
  if [ $status != 0 ]; then
    grep -E -A3 '^broken: |ERROR: |Fatal error: |^SUMMARY: ' "$out/$target.log" | head -40
    sed -n "s|.*Test unit written to \(.*\)|again: SWIFT_BACKTRACE=enable=no $bin/$target \1|p" "$out/$target.log"
    return 1
  fi
}

seconds=60
action=run
bin=$out/optimised
optimise=-O
while [ $# -gt 0 ]; do
  case $1 in
    --seconds) seconds=$2; shift 2 ;;
    --quick) bin=$out/quick; optimise=-Onone; shift ;;
    --build | --list | --minimise) action=${1#--}; shift ;;
    *) break ;;
  esac
done
# shellcheck disable=SC2086
[ $# -gt 0 ] || set -- $targets

case $action in
  list) echo "$targets" ;;
  build) build ;;
  minimise)
    build
    for target in "$@"; do
      mkdir -p "$out/corpus/$target" "$out/minimised/$target"
      "$bin/$target" -merge=1 -max_len=4096 "$out/minimised/$target" "Tests/Fuzz/corpus/$target" "$out/corpus/$target" \
        2>"$out/$target.log"
      echo "$target: $(ls "$out/minimised/$target" | wc -l) inputs in $out/minimised/$target"
    done
    ;;
  run)
    build
    each=$((seconds / $#))
    [ "$each" -gt 0 ] || each=1
    failed=0
    for target in "$@"; do run "$target" "$each" || failed=1; done
    exit $failed
    ;;
esac
