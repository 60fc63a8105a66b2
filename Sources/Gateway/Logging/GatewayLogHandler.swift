// What swift-log's loggers write through: lines of ours, one threshold for all, one output.

import Logging
import Runtime

/// A handler of the program's logs.
struct GatewayLogHandler: LogHandler {
  /// What all handlers of a program share.
  struct Sink: Sendable {
    let format: LogFormat
    let threshold: LogThreshold
    let output: LogOutput
    /// Microseconds since 1970.
    var now: @Sendable () -> Int64 = { SystemClock().wallMicroseconds() }

    /// Lines on standard error.
    static func standardError(_ format: LogFormat, _ threshold: LogThreshold) -> Sink {
      Sink(format: format, threshold: threshold, output: LogOutput { noteOfLost($0, format) })
    }

    /// The line that stands for lines that were lost.
    static func noteOfLost(_ count: Int, _ format: LogFormat) -> [UInt8] {
      LogLine(
        microseconds: SystemClock().wallMicroseconds(), .warning, "Log lines were lost: nobody read them in time",
        ["count": .stringConvertible(count)]
      ).bytes(as: format)
    }
  }

  let sink: Sink
  var metadata: Logger.Metadata = [:]
  var metadataProvider: Logger.MetadataProvider?
  /// A logger's own level, which only makes it quieter than the threshold.
  private var own: Logger.Level?

  init(_ sink: Sink) {
    self.sink = sink
  }

  var logLevel: Logger.Level {
    get { own.map { max($0, sink.threshold.level) } ?? sink.threshold.level }
    set { own = newValue }
  }

  subscript(metadataKey key: String) -> Logger.Metadata.Value? {
    get { metadata[key] }
    set { metadata[key] = newValue }
  }

  func log(event: LogEvent) {
    var merged = metadata
    if let provided = metadataProvider?.get() { merged.merge(provided) { $1 } }
    if let given = event.metadata {
      if merged.isEmpty { merged = given } else { merged.merge(given) { $1 } }
    }
    if let error = event.error { merged["error"] = "\(error)" }
    let line = LogLine(microseconds: sink.now(), event.level, event.message.description, merged)
    sink.output.write(line.bytes(as: sink.format))
  }
}
