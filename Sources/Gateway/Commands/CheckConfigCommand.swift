// `push-gateway check-config`: checks everything about a configuration that needs no connection.

import ArgumentParser
import Console
import Providers
import Runtime

struct CheckConfigCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "check-config",
    abstract: "Check the configuration and every key and certificate file.",
    discussion: """
      Reads the configuration like serve, loads every key and certificate, and signs a token with each key. Connects to \
      nothing. Warns of data that is sent in clear text. Prints every problem, with its key or file, and exits \
      with 1 if there is one. Secrets are never printed.

      \(ConfigurationOptions.reference)
      """)

  @OptionGroup var configuration: ConfigurationOptions

  func run() async throws {
    let configuration = try configuration.load()
    var failures = 0
    for check in CredentialCheck.all(of: configuration) {
      switch check.result {
      case .success(let detail): StandardOutput.write("ok      \(check.subject): \(detail)")
      case .failure(let failure):
        failures += 1
        StandardOutput.write("FAILED  \(check.subject): \(failure)")
      }
    }
    for remark in SecurityRemarks.all(of: configuration) { StandardOutput.write("warning \(remark)") }
    if let limit = DescriptorLimit.hard, let fault = DescriptorLimit.fault(of: configuration, under: limit) {
      failures += 1
      StandardOutput.write("FAILED  connections: \(fault)")
    }
    guard failures == 0 else { throw CommandFailure("\(failures) of the checks failed") }
    StandardOutput.write("the configuration is good")
  }
}
