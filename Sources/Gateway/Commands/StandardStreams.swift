// Whole lines to standard output and standard error.

import Foundation

enum StandardOutput {
  static func write(_ line: String) { FileHandle.standardOutput.write(Data((line + "\n").utf8)) }
}

enum StandardError {
  static func write(_ line: String) { FileHandle.standardError.write(Data((line + "\n").utf8)) }
}
