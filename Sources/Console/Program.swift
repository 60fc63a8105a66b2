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
      var command = try parseAsRoot()
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

  /// Refuses a command that does not exist by its name. The argument parser would call it an unexpected argument.
  private static func checkName(_ word: String?) throws {
    let names = configuration.subcommands.map { $0._commandName }
    guard let word, !word.hasPrefix("-"), word != "help", !names.contains(word), !names.isEmpty else { return }
    throw ValidationError("there is no command \(word)\(Suggestion.text(for: word, among: names))")
  }
}
