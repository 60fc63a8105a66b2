// Beats of event loops, health checks, and systemd's watchdog.

import HTTPSurfaceTestSupport
import Foundation
import Logging
import Runtime
import ServiceLifecycle
import Synchronization
import TestTime
import Testing

@testable import Gateway
@testable import Settings
@testable import HTTPSurface

@Suite(.timeLimit(.minutes(10))) struct HealthTests {
  /// Keeps a loop in one turn until it is released.
  private final class Hang: Sendable {
    private let end = DispatchSemaphore(value: 0)
    /// Returns once the loop hangs.
    init(_ loop: EventLoop) async {
      await withCheckedContinuation { hangs in
        loop.execute {
          hangs.resume()
          self.end.wait()
        }
      }
    }
    func stop() { end.signal() }
  }

  @Test func `a loop is named while it hangs, and not while it runs`() async {
    let (good, bad) = (EventLoop(name: "good"), EventLoop(name: "bad"))
    defer { for loop in [good, bad] { loop.stop() } }
    let heartbeat = Heartbeat()
    #expect(await heartbeat.silentLoops() == [])
    heartbeat.watch(good)
    heartbeat.watch(bad)
    #expect(await heartbeat.silentLoops(within: .seconds(60)) == [])
    let hang = await Hang(bad)
    #expect(await heartbeat.silentLoops(within: .milliseconds(50)).contains("bad"))
    // Several callers may ask while it hangs, and all get an answer.
    let answers = await withTaskGroup(of: [String].self) { asking in
      for _ in 0..<20 { asking.addTask { await heartbeat.silentLoops(within: .milliseconds(50)) } }
      return await asking.reduce(into: []) { $0.append($1) }
    }
    #expect(answers.count == 20 && answers.allSatisfy { $0.contains("bad") })
    hang.stop()
    #expect(await heartbeat.silentLoops(within: .seconds(60)) == [])
    heartbeat.unwatch(bad)
    let again = await Hang(bad)
    #expect(await heartbeat.silentLoops(within: .seconds(60)) == [])
    again.stop()
  }

  @Test func `callers that wait for a loop that stops get an answer`() async {
    let loop = EventLoop(name: "stopping")
    let heartbeat = Heartbeat()
    heartbeat.watch(loop)
    let hang = await Hang(loop)
    async let asked = heartbeat.silentLoops(within: .seconds(60))
    heartbeat.unwatch(loop)
    loop.stop()
    hang.stop()
    #expect(await asked == [])
  }

  @Test func `readyz names a provider that does not answer, with status 200`() async throws {
    let routes = HealthRoutes(
      readiness: { .ready }, remarks: { ["porteiro/fcm: no request was answered for 12 s"] })
    let (ports, listening) = AsyncStream.makeStream(of: Int.self)
    let server = OpsServer(
      listener: .init(host: "127.0.0.1", port: 0), logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() },
      routes: [routes], onListening: { listening.yield($0) })
    let group = ServiceGroup(services: [server], logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    try await withThrowingTaskGroup(of: Void.self) { tasks in
      tasks.addTask { try await group.run() }
      let port = try #require(await ports.first { _ in true })
      let socket = try TestSocket(port: port)
      let answer = APIAnswer(
        await socket.exchange(Array("GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".utf8)))
      socket.close()
      #expect(answer.status == 200)
      #expect(answer.body == "ready\nporteiro/fcm: no request was answered for 12 s\n")
      await group.triggerGracefulShutdown()
      try await tasks.waitForAll()
    }
  }

  @Test func `livez names the loop that does not answer`() async throws {
    let silent = Mutex<[String]>([])
    let routes = HealthRoutes(readiness: { .ready }, silentLoops: { silent.withLock { $0 } })
    let (ports, listening) = AsyncStream.makeStream(of: Int.self)
    let server = OpsServer(
      listener: .init(host: "127.0.0.1", port: 0), logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() },
      routes: [routes], onListening: { listening.yield($0) })
    let group = ServiceGroup(services: [server], logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    try await withThrowingTaskGroup(of: Void.self) { tasks in
      tasks.addTask { try await group.run() }
      let port = try #require(await ports.first { _ in true })
      func get() async throws -> APIAnswer {
        let socket = try TestSocket(port: port)
        defer { socket.close() }
        return APIAnswer(
          await socket.exchange(Array("GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".utf8)))
      }
      #expect(try await get().status == 200)
      silent.withLock { $0 = ["gateway"] }
      let answer = try await get()
      #expect(answer.status == 503)
      #expect(answer.body == "the event loop gateway does not answer\n")
      await group.triggerGracefulShutdown()
      try await tasks.waitForAll()
    }
  }

  // MARK: - The watchdog

  /// Stands for systemd: receives the messages to its notification socket.
  private final class NotifySocket: Sendable {
    let path = NSTemporaryDirectory() + "push-gateway-\(UUID().uuidString.prefix(8)).socket"
    private let descriptor: Int32

    init() throws {
      descriptor = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue), 0)
      var address = sockaddr_un()
      address.sun_family = sa_family_t(AF_UNIX)
      withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: Array(path.utf8)) }
      let status = withUnsafePointer(to: &address) {
        $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
          bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
        }
      }
      guard status == 0 else { throw POSIXError(POSIXErrorCode(rawValue: errno) ?? .EIO) }
    }

    deinit {
      close(descriptor)
      unlink(path)
    }

    /// The next message. Waits on a thread of its own.
    func next() async -> String {
      await withCheckedContinuation { continuation in
        Thread.detachNewThread { [descriptor] in
          var buffer = [UInt8](repeating: 0, count: 4096)
          let count = recv(descriptor, &buffer, buffer.count, 0)
          continuation.resume(returning: String(decoding: buffer.prefix(max(0, count)), as: UTF8.self))
        }
      }
    }

    /// Removes the messages that have not been read, and returns their number.
    func drain() -> Int {
      var buffer = [UInt8](repeating: 0, count: 4096)
      var count = 0
      while recv(descriptor, &buffer, buffer.count, Int32(MSG_DONTWAIT)) > 0 { count += 1 }
      return count
    }
  }

  /// Calls a closure for each line.
  private struct LineHandler: LogHandler {
    let onLine: @Sendable (String) -> Void
    var metadata: Logger.Metadata = [:]
    var logLevel = Logger.Level.trace
    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
      get { metadata[key] }
      set { metadata[key] = newValue }
    }
    func log(event: LogEvent) { onLine("\(event.message) \(event.metadata ?? [:])") }
  }

  @Test func `systemd gets messages while the loops run, and none while one hangs`() async throws {
    let systemd = try NotifySocket()
    let loop = EventLoop(name: "watched")
    defer { loop.stop() }
    let heartbeat = Heartbeat()
    heartbeat.watch(loop)
    let complaints = Mutex(0)
    let watchdog = try #require(
      Watchdog(
        heartbeat, notifier: ServiceNotifier(environment: ["NOTIFY_SOCKET": systemd.path]),
        logger: Logger(label: "test") { _ in
          LineHandler { line in
            if line.contains("does not answer"), line.contains("watched") { complaints.withLock { $0 += 1 } }
          }
        },
        environment: ["WATCHDOG_USEC": "1000000"]))
    let running = Task { await watchdog.run() }
    #expect(await systemd.next() == "WATCHDOG=1\n")
    #expect(await systemd.next() == "WATCHDOG=1\n")
    let hang = await Hang(loop)
    func complains(_ times: Int) async throws {
      let before = complaints.withLock { $0 }
      try await eventually("\(times) complaints") { complaints.withLock { $0 } >= before + times }
    }
    try await complains(2)
    _ = systemd.drain()  // what was sent before the loop hung
    try await complains(1)
    #expect(systemd.drain() == 0)
    hang.stop()
    #expect(await systemd.next() == "WATCHDOG=1\n")
    running.cancel()
    await running.value
  }

  @Test(
    arguments: [
      [:], ["WATCHDOG_USEC": ""], ["WATCHDOG_USEC": "0"], ["WATCHDOG_USEC": "soon"],
      ["WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"],
    ])
  func `there is no watchdog service if systemd does not watch this process`(_ environment: [String: String]) {
    let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
    #expect(Watchdog(Heartbeat(), logger: logger, environment: environment) == nil)
    let own = ["WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "\(ProcessInfo.processInfo.processIdentifier)"]
    #expect(Watchdog(Heartbeat(), logger: logger, environment: own) != nil)
  }
}
