// The result of a load test, as text for people and as JSON.

internal import Console
internal import Foundation
internal import Runtime

/// The result of a run.
struct LoadReport: Sendable {
  var shape: LoadShape
  var arrivals: LoadArrivals
  /// The text on the command line.
  var mix: String
  var faults: String
  var verdict: LoadVerdict
  /// First over all providers, then for each provider.
  var latencies: [LoadLatencies]
  var timeline: LoadTimeline
  /// Microseconds by which the database's clock is ahead.
  var clockOffset: Int64
  /// Whether arrivals were checked against a simulators' log.
  var hasLog: Bool
  /// Whether the log had no request of the run.
  var isLogSilent: Bool
  /// Microseconds since 1970: the first commit and the last settlement.
  var firstCommitAt: Int64
  var lastSettledAt: Int64

  /// - Parameter cut: why the run ended early; nil if it did not.
  init(
    _ ledger: LoadLedger, shape: LoadShape, arrivals: LoadArrivals, mix: String, faults: String, clockOffset: Int64,
    requirements: [LoadRequirement] = [], cut: String? = nil
  ) {
    (self.shape, self.arrivals, self.mix, self.faults, self.clockOffset) = (shape, arrivals, mix, faults, clockOffset)
    let isBulk = arrivals.isBulk
    verdict = LoadVerdict(ledger, requirements: requirements, isBulk: isBulk, cut: cut)
    let providers =
      shape.hasOwnCalls
      ? LoadProvider.allCases.filter { provider in ledger.deliveries.contains { $0.provider == provider } }
      : shape.mix.weights.map(\.provider).sorted { $0.rawValue < $1.rawValue }
    latencies = ([nil] + providers).map { LoadLatencies(ledger, of: $0, isBulk: isBulk) }
    timeline = LoadTimeline(ledger)
    hasLog = ledger.hasLog
    isLogSilent = hasLog && ledger.receivedCount == 0
    let committed = ledger.deliveries.filter(\.isEnqueued)
    firstCommitAt = committed.reduce(Int64.max) { min($0, $1.committedAt) }
    lastSettledAt = committed.reduce(0) { max($0, $1.finishedAt) }
  }

  /// Deliveries settled a second, from the first commit to the last settlement; 0 without any.
  var throughput: Double {
    guard verdict.settled > 0, lastSettledAt > firstCommitAt else { return 0 }
    return Double(verdict.settled) * 1e6 / Double(lastSettledAt - firstCommitAt)
  }

  /// The load in one line.
  var loadText: String {
    let arrivals =
      switch arrivals {
      case .bulk(let calls): "\(Self.plural(calls, "call")) by COPY"
      case .open(let schedule):
        schedule.stages.map { "\(Self.number($0.rate)) calls/s for \(LoadDuration($0.duration))" }.joined(
          separator: ", then ")
      }
    let apps = shape.apps.count == 1 ? "app \(shape.apps[0])" : "\(shape.apps.count) apps"
    let calls =
      shape.hasOwnCalls
      ? "\(Self.plural(shape.lines.count, "call")) of a file in turn"
      : "\(Self.plural(shape.devices, "device")) a call, \(mix)"
    return "\(arrivals), \(calls)"
      + (faults.isEmpty ? "" : ", faults \(faults)")
      + ", \(shape.kind.rawValue), ring window \(LoadDuration(.seconds(Int64(shape.ringSeconds)))), \(apps), seed \(shape.seed)"
  }

  /// Remarks that limit the meaning of the numbers.
  var notes: [String] {
    var notes: [String] = []
    if !hasLog { notes.append("Without a simulators' log, the times of requests are the gateway's own.") }
    if isLogSilent, verdict.delivered > 0 {
      notes.append("The log has no request of this run: is it that of the simulators to which the gateway sends?")
    }
    if abs(clockOffset) > 2_000 {
      notes.append(
        "The database's clock is \(LatencyHistogram.text(abs(clockOffset))) \(clockOffset > 0 ? "ahead of" : "behind") this machine's: "
          + "latencies until settled are wrong by this amount.")
    }
    return notes
  }

  /// Lines for a terminal.
  func lines(isColored: Bool) -> [String] {
    let table = TextTable(
      columns: [.init(heading: "PROVIDER"), .init(heading: "STAGE")]
        + ["COUNT", "P50", "P90", "P99", "P99.9", "MAX"].map { .init(heading: $0, alignment: .right) },
      rows: latencies.flatMap { latencies in
        latencies.stages.map { stage, histogram in
          let summary = histogram.summary
          return [.init(latencies.title), .init(stage.title(isBulk: arrivals.isBulk)), .init("\(summary.count)")]
            + (summary.percentiles + [summary.max]).map { .init(LatencyHistogram.text($0)) }
        }
      })
    let outcomes = LoadDelivery.Outcome.allCases.compactMap { outcome in
      verdict.outcomes[outcome].map { "\($0) \(outcome.rawValue)" }
    }
    let color =
      switch verdict.result {
      case .good: 32
      case .bad: 31
      case .incomplete: 33
      }
    let line = isColored ? "\u{1B}[\(color)m\(verdict.line)\u{1B}[0m" : verdict.line
    let answers = verdict.answers.sorted { $0.key < $1.key }.map { "\($0.value) \($0.key)" }
    let conditions = verdict.requirements.map(\.line)
    let reasons = verdict.isGood ? [] : ["because: " + verdict.reasons.joined(separator: "; ")]
    let settled =
      "settled \(verdict.settled) at \(Int(throughput.rounded()))/s"
      + (outcomes.isEmpty ? "" : ": " + outcomes.joined(separator: ", "))
      + (verdict.repeats == 0 ? "" : "; \(Self.plural(verdict.repeats, "repeated request"))")
    return ["run \(shape.run): \(loadText)", ""] + table.lines(isColored: isColored) + [
      "", "calls \(verdict.calls)" + (answers.isEmpty ? "" : ": " + answers.joined(separator: ", ")), settled,
    ] + notes + conditions + reasons
      + [line]
  }

  static func number(_ value: Double) -> String { String(format: "%g", value) }

  static func plural(_ count: Int, _ word: String) -> String { "\(count) \(word)\(count == 1 ? "" : "s")" }

  // MARK: - JSON

  /// One object.
  var json: [UInt8] {
    var writer = JSONWriter(reservingCapacity: 16_384)
    writer.beginObject()
    write("run", shape.run, to: &writer)
    write("app", shape.apps.joined(separator: ","), to: &writer)
    write("kind", shape.kind.rawValue, to: &writer)
    switch arrivals {
    case .bulk(let calls): write("calls", calls, to: &writer)
    case .open(let schedule):
      writer.key("stages")
      writer.beginArray()
      for stage in schedule.stages {
        writer.beginObject()
        write("rate", stage.rate, to: &writer)
        write("duration_seconds", stage.duration.seconds, to: &writer)
        writer.endObject()
      }
      writer.endArray()
    }
    if shape.hasOwnCalls {
      write("lines", shape.lines.count, to: &writer)
    } else {
      write("devices", shape.devices, to: &writer)
      write("mix", mix, to: &writer)
    }
    write("ring_seconds", shape.ringSeconds, to: &writer)
    write("faults", faults, to: &writer)
    write("seed", Int(truncatingIfNeeded: shape.seed), to: &writer)
    write("checked_against_log", hasLog, to: &writer)
    write("clock_offset_us", Int(clockOffset), to: &writer)
    writeVerdict(to: &writer)
    write("settled_per_second", throughput, to: &writer)
    writeLatencies(to: &writer)
    writeTimeline(to: &writer)
    write("notes", notes, to: &writer)
    writer.endObject()
    return writer.bytes
  }

  private func writeVerdict(to writer: inout JSONWriter) {
    writer.key("verdict")
    writer.beginObject()
    write("result", verdict.result.rawValue, to: &writer)
    write("good", verdict.isGood, to: &writer)
    for (name, count): (StaticString, Int) in [
      ("enqueued", verdict.enqueued), ("settled", verdict.settled), ("owed", verdict.owed), ("lost", verdict.lost),
      ("unseen", verdict.unseen),
      ("duplicated", verdict.duplicated), ("late", verdict.late), ("failed", verdict.failed),
      ("failed_as_asked", verdict.failedAsAsked), ("repeated_requests", verdict.repeats), ("calls", verdict.calls),
      ("refused", verdict.refused),
    ] { write(name, count, to: &writer) }
    writer.key("answers")
    writer.beginObject()
    for (answer, count) in verdict.answers.sorted(by: { $0.key < $1.key }) {
      writer.key(Array(answer.utf8))
      writer.integer(Int64(count))
    }
    writer.endObject()
    writer.key("requirements")
    writer.beginArray()
    for outcome in verdict.requirements {
      writer.beginObject()
      write("condition", outcome.requirement.text, to: &writer)
      write("measured", outcome.measured, to: &writer)
      write("met", outcome.isMet, to: &writer)
      writer.endObject()
    }
    writer.endArray()
    write("reasons", verdict.reasons, to: &writer)
    write("not_checked", verdict.unchecked, to: &writer)
    writer.key("outcomes")
    writer.beginObject()
    for outcome in LoadDelivery.Outcome.allCases {
      writer.key(Array(outcome.rawValue.utf8))
      writer.integer(Int64(verdict.outcomes[outcome, default: 0]))
    }
    writer.endObject()
    writer.endObject()
  }

  private func writeLatencies(to writer: inout JSONWriter) {
    writer.key("latency_us")
    writer.beginObject()
    for latencies in latencies {
      writer.key(Array(latencies.title.utf8))
      writer.beginObject()
      for (stage, histogram) in latencies.stages {
        writer.key(Array(stage.rawValue.utf8))
        Self.write(histogram.summary, to: &writer)
      }
      writer.endObject()
    }
    writer.endObject()
  }

  private func writeTimeline(to writer: inout JSONWriter) {
    writer.key("timeline")
    writer.beginArray()
    for (index, slice) in timeline.slices.enumerated() {
      writer.beginObject()
      write("seconds", timeline.seconds(index), to: &writer)
      write("enqueued_per_second", timeline.rate(slice.enqueued), to: &writer)
      write("requests_per_second", timeline.rate(slice.received), to: &writer)
      write("settled_per_second", timeline.rate(slice.settled), to: &writer)
      if let latency = slice.latency {
        writer.key("request_us")
        Self.write(latency, to: &writer)
      }
      writer.endObject()
    }
    writer.endArray()
  }

  private static func write(_ summary: LatencyHistogram.Summary, to writer: inout JSONWriter) {
    writer.beginObject()
    writer.key("count")
    writer.integer(Int64(summary.count))
    writer.key("mean")
    writer.integer(Int64(summary.mean.rounded()))
    for (percentile, value) in zip(LatencyHistogram.percentiles, summary.percentiles) {
      writer.key(Array("p\(number(percentile))".utf8))
      writer.integer(value)
    }
    writer.key("max")
    writer.integer(summary.max)
    writer.endObject()
  }

  private func write(_ key: StaticString, _ texts: [String], to writer: inout JSONWriter) {
    writer.key(key)
    writer.beginArray()
    for text in texts { writer.string(text) }
    writer.endArray()
  }

  private func write(_ key: StaticString, _ text: String, to writer: inout JSONWriter) {
    writer.key(key)
    writer.string(text)
  }

  private func write(_ key: StaticString, _ number: Int, to writer: inout JSONWriter) {
    writer.key(key)
    writer.integer(Int64(number))
  }

  private func write(_ key: StaticString, _ value: Bool, to writer: inout JSONWriter) {
    writer.key(key)
    writer.boolean(value)
  }

  /// Finite numbers only, to a thousandth.
  private func write(_ key: StaticString, _ number: Double, to writer: inout JSONWriter) {
    writer.key(key)
    writer.raw(Array(Self.number((number * 1_000).rounded() / 1_000).utf8))
  }
}
