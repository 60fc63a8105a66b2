// `push-gateway check-config`: checks everything about a configuration, on request with the providers and databases.

import ArgumentParser
import Console
import Providers
import Runtime

struct CheckConfigCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "check-config",
    abstract: "Check the configuration and every key and certificate file.",
    discussion: """
      Reads the configuration like serve, loads every key and certificate, and signs a token with each key. Warns of data that is \
      sent in clear text, and of ids of Apple in a form that they never have. Prints one line for each check: what was found, or what \
      is wrong and the remedy. Secrets are never printed.

      With --connect, it then asks every database and provider over the gateway's own connections, and its proxies. A provider gets a \
      push to a made-up token, which reaches no phone; its answer shows whether it accepts the credentials. (A push service of \
      browsers is not asked.) Of a database it checks the encoding, the schema, the role's rights, and whether a pooler in \
      transaction mode answers. A check takes at most ten seconds; eight run at a time.

      Exits with 78 if anything is refused, and otherwise with 69 if a provider or database could not be reached.

      \(ConfigurationOptions.reference)
      """)

  @OptionGroup var configuration: ConfigurationOptions

  @Flag(help: "Ask every provider and database whether it accepts the configuration.")
  var connect = false

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
    let remarks = SecurityRemarks.all(of: configuration) + AppleIDRemarks.all(of: configuration)
    for remark in remarks { StandardOutput.write("warning \(remark)") }
    if let limit = DescriptorLimit.hard, let fault = DescriptorLimit.fault(of: configuration, under: limit) {
      failures += 1
      StandardOutput.write("FAILED  connections: \(fault)")
    }
    var unreachable = 0
    if connect {
      let checks = await ConnectChecks(configuration: configuration).run { done, all in
        Self.show(done < all ? "\(done) of \(all) databases and providers have answered" : "")
      }
      for check in checks {
        StandardOutput.write("\(check.finding.word) \(check.subject): \(check.text)")
        if check.finding == .refused { failures += 1 }
        if check.finding == .unreachable { unreachable += 1 }
      }
    }
    if failures > 0 { throw CommandFailure("\(failures) of the checks failed", isConfiguration: true) }
    if unreachable > 0 {
      StandardError.write("Error: \(unreachable) of the checks got no answer")
      throw ExitCode(69)
    }
    StandardOutput.write("the configuration is good")
  }

  /// Replaces the line of progress, if standard error is a terminal.
  private static func show(_ progress: String) {
    if Terminal.showsErrors { StandardError.write("\r\(progress)\u{1B}[K", terminator: "") }
  }
}

extension ConnectCheck.Finding {
  /// The first word of a check's line, eight characters wide with the space after it.
  fileprivate var word: String {
    switch self {
    case .good: "ok     "
    case .limited: "warning"
    case .refused: "FAILED "
    case .unreachable: "UNKNOWN"
    }
  }
}
