// Writes text to standard output and standard error without buffering.

import Foundation

package enum StandardOutput {
  package static func write(_ text: String, terminator: String = "\n") {
    FileHandle.standardOutput.write(Data((text + terminator).utf8))
  }
}

package enum StandardError {
  package static func write(_ line: String, terminator: String = "\n") {
    FileHandle.standardError.write(Data((line + terminator).utf8))
  }
}
