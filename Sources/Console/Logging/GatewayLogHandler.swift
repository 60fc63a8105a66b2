// The backend of swift-log: all loggers of the program share a format, a threshold and an output.

package import Logging
import Runtime
package import Settings

/// The log handler of every logger of the program.
package struct GatewayLogHandler: LogHandler {
  /// What all handlers share.
  package struct Sink: Sendable {
    package let format: LogFormat
    package let threshold: LogThreshold
    package let output: LogOutput
    /// The current time, in microseconds since 1970.
    package var now: @Sendable () -> Int64 = { SystemClock().wallMicroseconds() }

    /// Writes to standard error.
    package static func standardError(_ format: LogFormat, _ threshold: LogThreshold) -> Sink {
      Sink(format: format, threshold: threshold, output: LogOutput { noteOfLost($0, format) })
    }

    /// The line that reports how many lines were lost.
    package static func noteOfLost(_ count: Int, _ format: LogFormat) -> [UInt8] {
      LogLine(
        microseconds: SystemClock().wallMicroseconds(), .warning, "Log lines were lost: they were not read in time",
        ["count": .stringConvertible(count)]
      ).bytes(as: format)
    }
  }

  package let sink: Sink
  package var metadata: Logger.Metadata = [:]
  package var metadataProvider: Logger.MetadataProvider?
  /// The logger's own level. It applies only if it is higher than the threshold.
  private var own: Logger.Level?

  package init(_ sink: Sink) {
    self.sink = sink
  }

  package var logLevel: Logger.Level {
    get { own.map { max($0, sink.threshold.level) } ?? sink.threshold.level }
    set { own = newValue }
  }

  package subscript(metadataKey key: String) -> Logger.Metadata.Value? {
    get { metadata[key] }
    set { metadata[key] = newValue }
  }

  package func log(event: LogEvent) {
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
