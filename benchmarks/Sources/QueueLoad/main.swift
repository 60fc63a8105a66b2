// The gateway's own queue without providers: claims and settles everything in an outbox through `PostgresOutbox`. It
// does the same work as SQLFloor, with which it is compared.
//
//   QueueLoad [--batch N] [--seconds S] URL
//
// Ends when the outbox is empty, or after the given seconds, and prints a JSON object.

import Glibc
import Runtime

func fail(_ message: String, status: Int32 = 1) -> Never {
  let line = "QueueLoad: \(message)\n"
  _ = unsafe line.withCString { unsafe write(STDERR_FILENO, $0, strlen($0)) }
  exit(status)
}

/// User and system time of this process.
func cpuSeconds() -> Double {
  var usage = rusage()
  unsafe getrusage(RUSAGE_SELF.rawValue, &usage)
  return Double(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec)
    + Double(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6
}

func options() -> QueueLoad.Options {
  let usage = "usage: QueueLoad [--batch N] [--seconds S] URL"
  var options = QueueLoad.Options()
  var words = CommandLine.arguments.dropFirst()
  while let word = words.popFirst() {
    switch word {
    case "--batch":
      guard let batch = words.popFirst().flatMap({ Int($0) }), batch > 0 else { fail(usage, status: 2) }
      options.batch = batch
    case "--seconds":
      guard let seconds = words.popFirst().flatMap({ Double($0) }), seconds > 0 else { fail(usage, status: 2) }
      options.duration = .milliseconds(Int64(seconds * 1000))
    default:
      guard options.url.isEmpty, !word.hasPrefix("--") else { fail(usage, status: 2) }
      options.url = word
    }
  }
  guard !options.url.isEmpty else { fail(usage, status: 2) }
  return options
}

let load = QueueLoad(options(), loop: EventLoop(name: "queue-load"))
do {
  let work = try await load.run()
  let seconds = work.took.seconds
  let rate = seconds > 0 ? Double(work.settled) / seconds : 0
  print(
    """
    {"deliveries": \(work.settled), "seconds": \(seconds), "per_second": \(rate), \
    "cpu_seconds": \(cpuSeconds()), "claims": \(work.claims), "settlements": \(work.settlements), \
    "bytes_read": \(work.bytes)}
    """)
} catch {
  fail("\(error)")
}
