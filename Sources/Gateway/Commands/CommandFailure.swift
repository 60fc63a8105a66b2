// A command that was called rightly and cannot do what was asked: exit code 1, and one sentence on standard error.

/// Printed by the argument parser as `Error: …`.
struct CommandFailure: Error, CustomStringConvertible {
  let description: String

  init(_ description: String) {
    self.description = description
  }
}
