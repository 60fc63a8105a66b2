// Runs the command of a program, and sets its exit code.

package import ArgumentParser
internal import Runtime
import Settings

/// EX_CONFIG of sysexits.h: the configuration is wrong, and trying again does not help.
package let wrongConfiguration = ExitCode(78)

extension AsyncParsableCommand {
  /// Runs the command that the arguments name. If the configuration is wrong, the program exits with
  /// `wrongConfiguration` and one sentence; for any other error, with the code of the argument parser.
  package static func runAsProgram() async {
    do {
      try checkName(CommandLine.arguments.dropFirst().first)
      var command = try parsed()
      if var command = command as? any AsyncParsableCommand {
        try await command.run()
      } else {
        try command.run()
      }
    } catch let error as ConfigurationError {
      StandardError.write("Error: \(error)")
      exit(withError: wrongConfiguration)
    } catch let failure as CommandFailure where failure.isConfiguration {
      StandardError.write("Error: \(failure)")
      exit(withError: wrongConfiguration)
    } catch {
      exit(withError: error)
    }
  }

  /// Reads the arguments. What a command requires is checked before the argument parser looks for options that do not exist: of a misspelt
  /// one it would say that the right one is missing.
  private static func parsed() throws -> any ParsableCommand {
    do {
      return try parseAsRoot()
    } catch {
      if exitCode(for: error) == .validationFailure { try checkOptions(Array(CommandLine.arguments.dropFirst())) }
      throw error
    }
  }

  /// Refuses the first option that the command's help does not mention.
  private static func checkOptions(_ words: [String]) throws {
    var command: any ParsableCommand.Type = self
    for word in words {
      guard let next = command.configuration.subcommands.first(where: { $0._commandName == word }) else { break }
      command = next
    }
    let help = helpMessage(for: command, includeHidden: true, columns: 200)
    let known = Set(help.matches(of: #/--[a-z0-9-]+/#).map { String($0.output) })
    for word in words.prefix(while: { $0 != "--" }) where word.hasPrefix("--") {
      let name = String(word.prefix { $0 != "=" })
      guard known.contains(name) else {
        throw ValidationError("there is no option \(name)\(Suggestion.text(for: name, among: known.sorted()))")
      }
    }
  }

  /// Refuses a command that does not exist by its name. The argument parser would call it an unexpected argument.
  private static func checkName(_ word: String?) throws {
    let names = configuration.subcommands.map { $0._commandName }
    guard let word, !word.hasPrefix("-"), word != "help", !names.contains(word), !names.isEmpty else { return }
    throw ValidationError("there is no command \(word)\(Suggestion.text(for: word, among: names))")
  }
}
