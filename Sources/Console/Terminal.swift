// Properties of standard output: a terminal and its size, or a file or pipe.

internal import Foundation

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

package enum Terminal {
  package struct Size: Equatable {
    package var columns: Int
    package var rows: Int
  }

  package static var isInteractive: Bool { isatty(STDOUT_FILENO) == 1 }

  /// Whether standard error is a terminal.
  package static var showsErrors: Bool { isatty(STDERR_FILENO) == 1 }

  /// The size of the terminal; nil if standard output is not one. 80 × 24 if the terminal does not report a size.
  package static var size: Size? {
    guard isInteractive else { return nil }
    var size = winsize()
    guard unsafe ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0, size.ws_row > 0 else {
      return Size(columns: 80, rows: 24)
    }
    return Size(columns: Int(size.ws_col), rows: Int(size.ws_row))
  }

  /// Whether to use colors: if the terminal supports them and NO_COLOR (https://no-color.org) is not set.
  package static var isColored: Bool {
    let environment = ProcessInfo.processInfo.environment
    return isInteractive && environment["NO_COLOR", default: ""].isEmpty && environment["TERM"] != "dumb"
  }

  /// Replaces every character that could move the cursor or break the line, because ids and notes may contain anything.
  package static func printable(_ text: String) -> String {
    func isControl(_ scalar: Unicode.Scalar) -> Bool {
      switch scalar.properties.generalCategory {
      case .control, .format, .lineSeparator, .paragraphSeparator: true
      default: false
      }
    }
    guard text.unicodeScalars.contains(where: isControl) else { return text }
    return String(String.UnicodeScalarView(text.unicodeScalars.map { isControl($0) ? "\u{FFFD}" : $0 }))
  }
}
