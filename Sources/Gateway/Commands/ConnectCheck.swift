// The checks of `check-config --connect`: what each provider and each database says of the configuration.

import Providers
import Runtime
import Settings

/// What one check of a connection has found.
struct ConnectCheck: Sendable, Equatable {
  enum Finding: Sendable {
    case good
    /// It works, but not for everything.
    case limited
    /// The provider or the database refuses what is configured.
    case refused
    /// Nobody knows: there was no answer, or one that says nothing about the configuration.
    case unreachable
  }

  /// The configuration key that the check is about.
  var subject: String
  var finding: Finding
  /// What was found; or what is wrong, and the remedy. No secrets.
  var text: String
}

/// Asks all providers and databases of a configuration, several at a time.
struct ConnectChecks: Sendable {
  /// Maximum number of checks under way.
  static let countMax = 8

  let configuration: GatewayConfiguration
  /// How long one check may take.
  var limit = Nanoseconds.seconds(10)

  /// Runs all checks.
  ///
  /// - Parameter report: gets the number of checks that are done and of all, at the start and after each.
  /// - Returns: the results, in the order of the configuration.
  func run(report: @Sendable (_ done: Int, _ all: Int) -> Void = { _, _ in }) async -> [ConnectCheck] {
    let loop = EventLoop(name: "check")
    let checks = checks(on: loop)
    var results = [[ConnectCheck]](repeating: [], count: checks.count)
    await withTaskGroup(of: (Int, [ConnectCheck]).self) { group in
      var (begun, done) = (0, 0)
      report(done, checks.count)
      func begin() {
        guard begun < checks.count else { return }
        let number = begun
        begun += 1
        group.addTask { (number, await checks[number]()) }
      }
      for _ in 0..<Self.countMax { begin() }
      for await (number, found) in group {
        results[number] = found
        done += 1
        report(done, checks.count)
        begin()
      }
    }
    return results.flatMap(\.self)
  }

  private func checks(on loop: EventLoop) -> [@Sendable () async -> [ConnectCheck]] {
    var checks: [@Sendable () async -> [ConnectCheck]] = []
    for database in configuration.databases {
      checks.append { [limit] in [await DatabaseCheck(database: database, limit: limit, loop: loop).run()] }
    }
    for app in configuration.apps {
      for kind in app.providers where kind != .webpush {
        checks.append { [configuration, limit] in
          await ProviderCheck(app: app, kind: kind, configuration: configuration, limit: limit, loop: loop).run()
        }
      }
    }
    return checks
  }
}
