// The ops server over a real socket.

import HTTPSurfaceTestSupport
import Foundation
import Hummingbird
import Logging
import Runtime
import ServiceLifecycle
import TestProcess
import Testing

@testable import HTTPSurface
@testable import Settings

@Suite(.timeLimit(.minutes(10))) struct OpsServerTests {
  private actor State {
    var readiness = Readiness.notReady(["the database cannot be reached", "no lane has a connection"])
    func set(_ readiness: Readiness) { self.readiness = readiness }
  }

  /// Status and body of a GET request. Waits on a thread of its own, because the server needs those of the concurrency
  /// pool.
  private func get(_ path: String, _ port: Int) async throws -> (status: String, body: String) {
    try await withCheckedThrowingContinuation { continuation in
      DispatchQueue.global().async {
        continuation.resume(
          with: Result {
            let curl = Process()
            curl.executableURL = URL(fileURLWithPath: "/usr/bin/env")
            curl.arguments = ["curl", "-s", "-m", "120", "-w", "%{http_code}", "http://127.0.0.1:\(port)\(path)"]
            let output = Pipe()
            curl.standardOutput = output
            try curl.start()
            let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
            curl.waitUntilExit()
            return (String(text.suffix(3)), String(text.dropLast(3)))
          })
      }
    }
  }

  @Test func `the server is alive while it runs, and ready when the gateway says so`() async throws {
    let state = State()
    let (ports, continuation) = AsyncStream.makeStream(of: Int.self)
    var logger = Logger(label: "test")
    logger.logLevel = .error
    let server = OpsServer(
      listener: .init(host: "127.0.0.1", port: 0), logger: logger,
      routes: [HealthRoutes { await state.readiness }, APIPathRoutes(api: nil)],
      onListening: { continuation.yield($0) })
    let group = ServiceGroup(services: [server], logger: logger)
    try await withThrowingTaskGroup(of: Void.self) { tasks in
      tasks.addTask { try await group.run() }
      let port = try #require(await ports.first { _ in true })
      for path in ["/v1/calls", "/v1/calls/x/answer", "/api/push", "/_matrix/push/v1/notify"] {
        let answer = try await get(path, port)
        #expect(answer.status == "404" && answer.body.hasPrefix("the HTTP API is off: set api.enabled"), "\(path)")
      }
      #expect(try await get("/livez", port) == ("200", "alive\n"))
      #expect(try await get("/readyz", port) == ("503", "the database cannot be reached\nno lane has a connection\n"))
      await state.set(.ready)
      #expect(try await get("/readyz", port) == ("200", "ready\n"))
      #expect(try await get("/", port).status == "404")
      #expect(try await get("/livez?x=1", port).status == "200")
      await group.triggerGracefulShutdown()
      try await tasks.waitForAll()
      #expect(try await get("/livez", port).status == "000")
    }
  }

  /// Holds requests until the test opens it.
  private actor Door {
    private var waiting: [CheckedContinuation<Void, Never>] = []
    private let arrivals: AsyncStream<Void>.Continuation
    private var isOpen = false

    init(_ arrivals: AsyncStream<Void>.Continuation) { self.arrivals = arrivals }

    func pass() async -> Readiness {
      if !isOpen {
        await withCheckedContinuation {
          waiting.append($0)
          arrivals.yield()
        }
      }
      return .ready
    }

    func open() {
      isOpen = true
      for continuation in waiting { continuation.resume() }
      waiting = []
    }
  }

  /// `/door` lets requests in, so that their connections are not evicted, and holds them at the door. `/body` waits for
  /// the client.
  private struct DoorRoutes: OpsRoutes {
    let door: Door
    let gate: OpsGate

    func add(to router: OpsRouter) {
      router.get("door") { request, context in
        try await gate.admitReader(request, context)
        // When this returns, the connection has handled the event.
        try await context.channel.eventLoop.submit {}.get()
        _ = await door.pass()
        return "in"
      }
      router.post("body") { request, _ in
        _ = try await request.body.collect(upTo: 1)
        return "read"
      }
    }
  }

  @Test func `silent connections are evicted, and those whose request was let in are not`() async throws {
    let (ports, continuation) = AsyncStream.makeStream(of: Int.self)
    let (arrivals, arriving) = AsyncStream.makeStream(of: Void.self)
    let door = Door(arriving)
    let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
    let listener = GatewayConfiguration.Listener(host: "127.0.0.1", port: 0)
    let gate = OpsGate(access: .init(), listener: listener, logger: logger)
    let server = OpsServer(
      listener: listener, connectionsMax: 2, logger: logger,
      routes: [HealthRoutes { .ready }, DoorRoutes(door: door, gate: gate)],
      onListening: { continuation.yield($0) })
    let group = ServiceGroup(services: [server], logger: logger)
    try await withThrowingTaskGroup(of: Void.self) { tasks in
      tasks.addTask { try await group.run() }
      let port = try #require(await ports.first { _ in true })
      let live = Array("GET /livez HTTP/1.1\r\nHost: ops\r\n\r\n".utf8)
      let entry = Array("GET /door HTTP/1.1\r\nHost: ops\r\nConnection: close\r\n\r\n".utf8)
      // Connections are served by several threads, and get their seats in any order. So each is seated, and has said
      // so, before the next one connects.
      let silent = try TestSocket(port: port)
      let beginning = "POST /body HTTP/1.1\r\nHost: ops\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n"
      #expect(APIAnswer(await silent.ask(Array(beginning.utf8))).status == 100)
      let second = try TestSocket(port: port)
      #expect(APIAnswer(await second.ask(live)).status == 200)
      let third = try TestSocket(port: port)
      #expect(await silent.next() == [])

      async let answer = second.exchange(entry)
      async let other = third.exchange(entry)
      var arrival = arrivals.makeAsyncIterator()
      for _ in 0..<2 { await arrival.next() }
      let refused = try TestSocket(port: port)
      let refusal = APIAnswer(await refused.exchange(live))
      #expect(refusal.status == 503)
      #expect(refusal.problem == "too-many-connections")
      #expect(refusal.headers["retry-after"] == "5")
      await door.open()
      #expect(APIAnswer(await answer).status == 200)
      #expect(APIAnswer(await other).status == 200)
      for socket in [silent, second, third, refused] { socket.close() }
      await group.triggerGracefulShutdown()
      try await tasks.waitForAll()
    }
  }
}
