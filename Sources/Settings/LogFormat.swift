// The format of log lines.

#if canImport(Glibc)
import Glibc
#elseif canImport(Darwin)
import Darwin
#endif

/// For people or for programs.
package enum LogFormat: String, CaseIterable, Sendable {
  /// One JSON object a line.
  case json
  /// Time, level, message, `key=value`.
  case text

  /// Text if standard error is a terminal, otherwise JSON.
  package static var ofStandardError: LogFormat { isatty(STDERR_FILENO) == 1 ? .text : .json }
}
