// The text of `push-gateway-lab loadtest --help`.

extension LoadTestCommand {
  static let help = """
    With --rate, calls are enqueued when they are due, whether or not earlier calls are finished (Poisson arrivals, by --seed):
      push-gateway-lab loadtest --rate 200 --duration 60s --simulator-log pushes.log
    With --stage, the rate changes:
      push-gateway-lab loadtest --stage 2m@50 --stage 5m@200 --require 'p99<500ms,failed<0.1%'
    With --calls and a number, they are enqueued in bulk by one COPY:
      push-gateway-lab loadtest --calls 100000 --devices 3 --simulator-log pushes.log --report load.html
    With --calls and a file, they are your own payloads and users, in turn. The database checks every line before the run. Only the \
    call id is replaced:
      push-gateway-lab loadtest --calls calls.jsonl --rate 20 --simulator-log pushes.log
    Over the HTTP API instead of SQL; results are read from the database all the same:
      push-gateway-lab loadtest --rate 200 --over http --url http://127.0.0.1:8081 --api-key-file key

    The gateway should send to simulators. To run everything on one machine:
      push-gateway-lab simulate --directory DIR --log pushes.log &
      DATABASE_URL=postgres://… push-gateway serve --config DIR/gateway.yaml &
      DATABASE_URL=postgres://… push-gateway-lab loadtest --rate 200 --duration 60s --simulator-log pushes.log
    On several machines, the simulators serve their log (simulate --log-port), and the load test reads it with \
    --simulator-log https://HOST:PORT/log --ca-file ca.pem.
    Before it begins, the load test names lanes that are paused, throttled or still busy with earlier calls, and goes on: these would count \
    against the run.
    The gateway's limits for Expo and FCM (rate_per_second) hold for a load test, too: raise them to measure anything else.

    DURATIONS. They have units: 500ms, 60s, 2m, 1h, 1m30s. A number alone is seconds.

    TIMES. Each delivery has five times of the wall clock. They can be compared only if gateway, simulators, database and load \
    test use the same clock:
      scheduled   when the call was due; in bulk, when it was committed. Latencies from this time include the time that a call \
    waited to be enqueued, also when the load test itself was late (no coordinated omission)
      committed   when the database or the API had answered. The gateway may be faster than that answer: such a latency counts as 0
      request     when a simulator had read the whole request and accepted it (--simulator-log); else sent_at, when the gateway \
    sent the last request
      answered    answered_at: when the gateway had the provider's answer
      settled     finished_at: when Postgres wrote the delivery to its history

    THE VERDICT. GOOD: all calls were enqueued and settled, the first four numbers are 0 except for failures that were asked for by \
    --faults, and every condition of --require is met. BAD: one of them is not, or a call was refused. INCOMPLETE: nothing was \
    enqueued, something is owed or unseen, the run was stopped, or it ended by itself: no call was answered, or the database not read, \
    for \(LoadDuration(LoadSilence.max)). If it is certainly BAD already, it is BAD.
      lost        committed, but neither settled nor owed; or settled as delivered, but not in the simulators' log, although the log has \
    later requests
      unseen      settled as delivered, but the simulators' log ends before that, even after \(LoadDuration(LoadLogWait.max))
      duplicated  more accepted requests than history explains (an attempt that ended without an answer explains one), or \
    settled twice
      late        a request after the deadline
      failed      settled as void, expired or dead; or skipped: the user had no device, or the app lacks the provider
      owed        not settled at the end of the wait
      refused     calls that could not be enqueued: a quota, or an answer of the API such as 429 or 503, or none, if later ones are \
    answered again. They are not repeated. An answer that all calls would get ends the run
    Cancels and missed calls that follow the end of a ringing call are not counted. Without a simulators' log, as with real providers, \
    the verdict says what was not checked.
    The exit code is 0 for GOOD, 1 for BAD, 2 for INCOMPLETE, and 64 for wrong usage: an option or a file that cannot be used, a log that \
    cannot be read, an app that is not the key's. Nothing was enqueued then.

    CONDITIONS. --require is a list of METRIC<LIMIT, with <, <=, > or >=. Metrics: \(counts), with a number or a percentage (of the \
    deliveries without a requested fault; refused: of the calls); mean, max and percentiles such as p99.9 with a duration, from scheduled \
    to request; of another stage with its name before: \(stages). A condition on failed or delivered replaces \
    the rule that nothing fails, one on refused the rule that nothing is refused. Lost, duplicated and late must always be 0. A latency is \
    that of the deliveries that have it: use it with delivered.

    FAULTS. --faults dead=1%,outage=0.5%,slow=2% gives these shares of devices tokens that request a fault from the simulator: \
    \(LoadFaults.shared.map(\.name).joined(separator: ", ")), or a name of simulate --list-faults, for the providers that have it. \
    A fault that refuses a whole request refuses all pushes in it (Expo). Failures by a plan of simulate --faults, which the run does \
    not know, need a condition that allows them.

    WORDS OF OTHER TOOLS. For users of k6 and Locust:
      arrival rate, constant-arrival-rate   --rate: the load is open, and no virtual user waits for an answer
      stages, ramping-arrival-rate          --stage, in steps
      thresholds                            --require
      checks                                always: lost, duplicated, late
      virtual users, users                  none; --connections limits what is enqueued at the same moment
      iterations, shared data, feeders      --calls FILE
      spawn rate, ramp-up                   --stage 1m@10 --stage 1m@50 …

    Every call id begins with loadtest- and the run's name; so do the user ids of generated calls. Nothing is deleted unless --cleanup \
    is given. Ctrl-C stops the calls, waits 5 seconds for unfinished deliveries, and reports: INCOMPLETE; a second Ctrl-C reports at once.

    Needs a role that may enqueue and read, such as the owner of the schema push.
    """

  private static let counts = LoadRequirement.Count.allCases.map(\.rawValue).joined(separator: ", ")
  private static let stages = LoadStage.allCases.map(\.rawValue).joined(separator: ", ")
}
