// `push-gateway check-config`: everything about a configuration that can be known without calling a provider.

import ArgumentParser
import Console
import Providers
import Runtime

struct CheckConfigCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "check-config",
    abstract: "Check the configuration and every key it names.",
    discussion: """
      Reads the configuration as serve would, loads every key and certificate, and signs a token with each key. It connects to \
      nothing. Warns of what goes over the network in clear text. Says what is wrong with which key or file, all at once, and exits \
      with 1 if anything is. Secrets are never printed.

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
