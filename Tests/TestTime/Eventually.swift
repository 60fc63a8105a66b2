// The only place where tests poll, for what gives them no signal: rows of a database, lines of a file, other processes.

/// A condition that did not come true in time.
public struct NotYet: Error, CustomStringConvertible {
  public let description: String
}

/// Returns when a condition holds.
///
/// The limit ends a test that would wait for ever; it is no measure of speed, and no machine is so busy that it is reached. What must be
/// fast is compared with something else in the same run. Tests that compute for long may take the few threads of Swift's tasks for a minute
/// and more, while clocks of loops that wait for a task (`PacedClock`) stand still. Throws `CancellationError` when the test's own time is up.
///
/// - Parameters:
///   - what: what is waited for, in the words of the failure; evaluated after the limit.
///   - limit: the time after which the wait fails.
///   - pause: the time between two questions; nil: a tenth of the time that has passed, from 5 to 25 ms.
public func eventually(
  _ what: @autoclosure () -> String, within limit: Duration = .seconds(300), every pause: Duration? = nil,
  _ condition: () async throws -> Bool
) async throws {
  let start = ContinuousClock.now
  while try await !condition() {
    let passed = ContinuousClock.now - start
    guard passed < limit else { throw NotYet(description: "not within \(limit): \(what())") }
    try await Task.sleep(for: pause ?? min(max(passed / 10, .milliseconds(5)), .milliseconds(25)))
  }
}

/// Lets real time pass, where it is the subject of a test: a connection that is idle, bytes that trickle, an even pace. The test must
/// not depend on how much later it goes on.
public func letPass(_ time: Duration, _ reason: StaticString) async throws {
  try await Task.sleep(for: time)
}
