// Runs the command of a program, and sets its exit code.

package import ArgumentParser
import Settings

/// EX_CONFIG of sysexits.h: the configuration is wrong, and trying again does not help.
package let wrongConfiguration = ExitCode(78)

extension AsyncParsableCommand {
  /// Runs the command that the arguments name. If the configuration is wrong, the program exits with
  /// `wrongConfiguration` and one sentence; for any other error, with the code of the argument parser.
  package static func runAsProgram() async {
    do {
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
}
