// Former commands of push-gateway, which name the program that has them now.

import ArgumentParser

/// Commands that are now part of `push-gateway-lab`.
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
      "\(word) is now a command of another program: run `push-gateway-lab \(word)` with the same arguments.")
  }
}
