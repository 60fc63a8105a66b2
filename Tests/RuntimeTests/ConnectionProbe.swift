// A connection whose events a test awaits.

import HTTP2TestSupport
import Runtime
import TestTime

/// Owns one connection on a loop and lets a test await its events.
// @unchecked: everything is touched on the loop only.
final class ConnectionProbe: HTTP2ConnectionDelegate, @unchecked Sendable {
  let loop = EventLoop.paced("test-client")
  let connection: HTTP2Connection
  var limits: [Int] = []
  var ended: [Int: HTTP2Exchange] = [:]
  var endings = 0
  var goingAway: [String] = []
  var healths: [HTTP2ConnectionHealth] = []
  var isClosed = false
  /// The requests that may not be written; nil: all may.
  var withheld: Set<Int>?
  var error: HTTP2Error?
  private var waiting: (condition: (ConnectionProbe) -> Bool, continuation: CheckedContinuation<Void, Never>)?

  init(_ endpoint: HTTP2Endpoint, _ change: (inout HTTP2ConnectionSettings) -> Void = { _ in }) {
    var settings = HTTP2ConnectionSettings()
    // Unless a test is about a limit, none ends because the server is slow.
    (settings.connectTimeout, settings.settingsTimeout) = (.seconds(60), .seconds(60))
    settings.requestTimeout = .seconds(120)
    (settings.liveness.doubtAfterPing, settings.liveness.pingTimeout) = (.seconds(30), .seconds(60))
    settings.liveness.answerTimeout = .seconds(120)
    change(&settings)
    connection = HTTP2Connection(endpoint, settings: settings, loop: loop)
    connection.delegate = self
    loop.execute { self.connection.connect() }
  }

  func stop() { loop.stop() }

  /// Queues requests in one turn; the tags are the indices of `paths`, beginning with `first`.
  func request(_ paths: [String], body: [UInt8] = [], first: Int = 0, timeout: Nanoseconds = .seconds(120)) {
    loop.execute { [self] in
      for (index, path) in paths.enumerated() {
        let tag = first + index
        var head = HTTP2RequestHead([
          ":method": body.isEmpty ? "GET" : "POST", ":scheme": "https", ":authority": connection.endpoint.authority,
        ])
        head.add(.path, path)
        if !connection.request(head, body: body, deadline: loop.now + timeout, tag: tag) {
          ended[tag] = HTTP2Exchange(.refused("not taken"), sentAt: nil, endedAt: loop.now)
        }
      }
    }
  }

  /// From now on these requests may not be written, as if the process had been stopped for a while.
  func withhold(_ requests: Set<Int>) {
    loop.execute { self.withheld = requests }
  }

  func connection(_ connection: HTTP2Connection, mayWriteRequestsAt now: Instant) -> Bool { withheld == nil }

  func connection(_ connection: HTTP2Connection, mayWrite tag: Int, at now: Instant) -> Bool {
    withheld.map { !$0.contains(tag) } ?? true
  }

  func perform(_ body: @escaping @Sendable (HTTP2Connection) -> Void) {
    loop.execute { body(self.connection) }
  }

  /// Returns when `condition` holds; it is checked after each event.
  func wait(until condition: @escaping @Sendable (ConnectionProbe) -> Bool) async {
    await withCheckedContinuation { continuation in
      loop.execute { [self] in
        waiting = (condition, continuation)
        check()
      }
    }
  }

  private func check() {
    guard let (condition, continuation) = waiting, condition(self) else { return }
    waiting = nil
    continuation.resume()
  }

  func connection(_ connection: HTTP2Connection, didLimitStreamsTo streamsMax: Int) {
    limits.append(streamsMax)
    check()
  }
  func connection(_ connection: HTTP2Connection, didEnd tag: Int, _ exchange: HTTP2Exchange) {
    endings += 1
    ended[tag] = exchange
    check()
  }
  func connection(_ connection: HTTP2Connection, didBecome health: HTTP2ConnectionHealth) {
    healths.append(health)
    check()
  }
  func connection(_ connection: HTTP2Connection, isGoingAwayBecause reason: String) {
    goingAway.append(reason)
    check()
  }
  func connection(_ connection: HTTP2Connection, didCloseWith error: HTTP2Error?) {
    isClosed = true
    self.error = error
    check()
  }

  var statuses: [UInt16] {
    ended.values.compactMap { if case .response(let message) = $0.result { message.status } else { nil } }
  }
  func kind(_ tag: Int) -> String {
    switch ended[tag]?.result {
    case .response(let message): "\(message.status)"
    case .refused: "refused"
    case .timedOut: "timedOut"
    case .lost: "lost"
    case nil: "none"
    }
  }
}
