// Words that push-gateway had once, and that say where they went.

import ArgumentParser

/// Commands of `push-gateway-lab`.
enum MovedToLab {
  struct Simulate: ParsableCommand {
    static let configuration = CommandConfiguration(commandName: "simulate", shouldDisplay: false)
    @Argument(parsing: .captureForPassthrough) var arguments: [String] = []

    func run() throws { throw MovedToLab.moved("simulate") }
  }

  struct LoadTest: ParsableCommand {
    static let configuration = CommandConfiguration(commandName: "loadtest", shouldDisplay: false)
    @Argument(parsing: .captureForPassthrough) var arguments: [String] = []

    func run() throws { throw MovedToLab.moved("loadtest") }
  }

  private static func moved(_ word: String) -> ValidationError {
    ValidationError(
      "\(word) is a command of another program now: run `push-gateway-lab \(word)` with the same arguments.")
  }
}
