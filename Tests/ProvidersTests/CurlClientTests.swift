// Tests of the curl client with a server that shares no code with ours, over real TLS.

import Foundation
import HTTP2TestSupport
import Runtime
import Synchronization
import TestTime
import Testing

@testable import Providers

/// Owns a client on its loop, as providers do.
private actor Caller {
  nonisolated let loop: EventLoop
  nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
  private let client: CurlClient

  init(_ configuration: CurlConfiguration, on loop: EventLoop = EventLoop(name: "curl-test")) {
    self.loop = loop
    client = CurlClient(loop: loop, configuration: configuration)
  }

  func send(_ request: CurlRequest) async -> Result<CurlResponse, CurlFailure> { await client.perform(request) }

  /// The result of a request that has this time, and the time that it took. Measured on the loop, not where a busy machine resumes a task.
  func send(
    _ request: CurlRequest, within time: Nanoseconds
  ) async -> (Result<CurlResponse, CurlFailure>, Nanoseconds) {
    var request = request
    let begin = loop.now
    request.deadline = begin + time
    let result = await client.perform(request)
    return (result, loop.now - begin)
  }

  /// Starts a request, closes the client, and returns the outcome of the request.
  func sendAndClose(_ request: CurlRequest) async -> Result<CurlResponse, CurlFailure> {
    await withCheckedContinuation { continuation in
      client.perform(request) { continuation.resume(returning: $0) }
      client.close()
    }
  }

  func start(_ request: CurlRequest, _ completion: @escaping @Sendable (Result<CurlResponse, CurlFailure>) -> Void) {
    client.perform(request, completion: completion)
  }

  func didWaitInVain(since begin: Instant) { client.didWaitInVain(since: begin) }
  func cancel(_ tag: ObjectIdentifier) { client.cancel(tag) }
  func close() { client.close() }
}

/// The addresses that a resolver returned, and those that it returns next.
private final class Addresses: Sendable {
  private let hosts: Mutex<[String]>

  init(_ hosts: [String]) { self.hosts = Mutex(hosts) }

  func set(_ hosts: [String]) { self.hosts.withLock { $0 = hosts } }

  var resolver: NameResolver {
    NameResolver { [self] _ in .success(hosts.withLock { $0 }.map { SocketAddress(numericHost: $0, port: 0)! }) }
  }
}

/// A request as /echo describes it.
private struct Echo: Decodable {
  var method: String
  var path: String
  var headers: [[String]]
  var body: String
  var connection: Int

  func values(of name: String) -> [String] { headers.filter { $0[0] == name }.map { $0[1] } }
}

@Suite(.timeLimit(.minutes(10))) struct CurlClientTests {
  /// Runs `body` with a client that trusts the server's CA, and closes the client.
  private static func with<Value>(
    _ server: CurlTestServer, trusting: Bool = true, change: (inout CurlConfiguration) -> Void = { _ in },
    _ body: (Caller, EventLoop) async throws -> Value
  ) async rethrows -> Value {
    var configuration = CurlConfiguration(caFile: trusting ? server.caFile : nil)
    configuration.waitLong()
    change(&configuration)
    let caller = Caller(configuration)
    do {
      let value = try await body(caller, caller.loop)
      await caller.close()
      caller.loop.stop()
      return value
    } catch {
      await caller.close()
      caller.loop.stop()
      throw error
    }
  }

  private static func decode(_ result: Result<CurlResponse, CurlFailure>) throws -> Echo {
    try JSONDecoder().decode(Echo.self, from: Data(result.get().body))
  }

  private static func failure(_ result: Result<CurlResponse, CurlFailure>) -> CurlFailure? {
    if case .failure(let failure) = result { failure } else { nil }
  }

  @Test func `a connection is not used beyond its maximum number of requests`() async throws {
    let server = try HTTP2TestServer { $0.respond(200, body: "{}") }
    var configuration = CurlConfiguration(caFile: TestCertificates.shared.caFile)
    configuration.waitLong()
    configuration.requestsBeforeRenewal = 5
    let caller = Caller(configuration)
    for _ in 0..<20 {
      let result = await caller.send(CurlRequest(url: "https://localhost:\(server.port)/", body: Array("{}".utf8)))
      #expect(try result.get().status == 200)
    }
    #expect(await server.perform { $0.connectionCount } == 4)
    await caller.close()
    caller.loop.stop()
  }

  @Test func `overlapping requests do not exceed a connection's maximum number of requests`() async throws {
    let server = try HTTP2TestServer { exchange in
      exchange.connection.note("\(exchange.connection.number)")
      exchange.respond(200, body: "{}")
    }
    var configuration = CurlConfiguration(caFile: TestCertificates.shared.caFile)
    configuration.waitLong()
    configuration.requestsBeforeRenewal = 10
    let caller = Caller(configuration)
    let url = "https://localhost:\(server.port)/"
    try await withThrowingTaskGroup(of: UInt16.self) { group in
      for number in 0..<300 {
        if number >= 6 { #expect(try await group.next() == 200) }
        group.addTask { try await caller.send(CurlRequest(url: url, body: Array("{}".utf8))).get().status }
      }
      for try await status in group { #expect(status == 200) }
    }
    let counts = await server.perform { Array($0.notes.values) }
    #expect(counts.reduce(0, +) == 300)
    #expect(counts.allSatisfy { $0 <= 10 })
    await caller.close()
    caller.loop.stop()
  }

  @Test func `a request arrives as it was written`() async throws {
    let server = try CurlTestServer.shared.get()
    try await Self.with(server) { caller, loop in
      let before = SystemClock().now()
      let result = await caller.send(
        CurlRequest(
          url: "https://localhost:\(server.port)/echo",
          headers: [("Authorization", "Bearer abc"), ("Content-Type", "a/b")],
          body: Array("héllo".utf8)))
      let echo = try Self.decode(result)
      #expect(echo.method == "POST")
      #expect(echo.body == "héllo")
      #expect(echo.values(of: "authorization") == ["Bearer abc"])
      #expect(echo.values(of: "content-type") == ["a/b"])
      #expect(echo.values(of: "expect").isEmpty)
      #expect(echo.values(of: "content-encoding").isEmpty)
      let response = try result.get()
      #expect(response.status == 200)
      #expect(response.date == Array("Sun, 06 Nov 1994 08:49:37 GMT".utf8))
      #expect(response.retryAfter == nil)
      #expect(response.sentAt > before && response.sentAt < SystemClock().now())
    }
  }

  @Test func `Retry-After is found in any case`() async throws {
    let server = try CurlTestServer.shared.get()
    try await Self.with(server) { caller, _ in
      let response = try await caller.send(CurlRequest(url: "https://localhost:\(server.port)/busy")).get()
      #expect(response.status == 429)
      #expect(response.retryAfter == Array("7".utf8))
      // The value is not found in the next answer of the same handle.
      let next = try await caller.send(CurlRequest(method: .get, url: "https://localhost:\(server.port)/echo")).get()
      #expect(next.retryAfter == nil)
      #expect(try Self.decode(.success(next)).method == "GET")
      #expect(try Self.decode(.success(next)).body == "")
    }
  }

  @Test func `an empty body is sent empty`() async throws {
    let server = try CurlTestServer.shared.get()
    try await Self.with(server) { caller, _ in
      let echo = try await Self.decode(caller.send(CurlRequest(url: "https://127.0.0.1:\(server.port)/echo")))
      #expect(echo.method == "POST")
      #expect(echo.body == "")
      #expect(echo.values(of: "content-length") == ["0"])
    }
  }

  @Test(arguments: [(1024, false), (1025, true), (60_000, true)])
  func `a compressible body above the threshold is compressed`(length: Int, isCompressed: Bool) async throws {
    let server = try CurlTestServer.shared.get()
    try await Self.with(server) { caller, _ in
      let text = String(repeating: "abcdefgh", count: length / 8 + 1).prefix(length)
      let request = CurlRequest(
        url: "https://localhost:\(server.port)/echo", body: Array(text.utf8), isCompressible: true)
      let echo = try await Self.decode(caller.send(request))
      #expect(echo.body == text)
      #expect(echo.values(of: "content-encoding") == (isCompressed ? ["gzip"] : []))
      let sent = try #require(echo.values(of: "content-length").first.flatMap { Int($0) })
      #expect(isCompressed ? sent < length / 4 : sent == length)
    }
  }

  @Test func `consecutive requests share a connection`() async throws {
    let server = try CurlTestServer.shared.get()
    try await Self.with(server) { caller, _ in
      var connections = Set<Int>()
      for _ in 0..<10 {
        let echo = try await Self.decode(caller.send(CurlRequest(url: "https://localhost:\(server.port)/echo")))
        connections.insert(echo.connection)
      }
      #expect(connections.count == 1)
    }
  }

  @Test func `simultaneous requests use at most the maximum number of connections`() async throws {
    let server = try CurlTestServer.shared.get()
    try await Self.with(server, change: { $0.connectionsPerHostMax = 3 }) { caller, _ in
      let url = "https://localhost:\(server.port)/echo?0.01"
      let connections = try await withThrowingTaskGroup(of: Int.self) { group in
        for _ in 0..<24 {
          group.addTask {
            try await Self.decode(caller.send(CurlRequest(url: url))).connection
          }
        }
        return try await group.reduce(into: Set<Int>()) { $0.insert($1) }
      }
      #expect(connections.count == 3)
    }
  }

  @Test func `a server with an unknown CA gets no byte of the request`() async throws {
    let server = try CurlTestServer.shared.get()
    let failure = await Self.with(server, trusting: false) { caller, _ in
      Self.failure(await caller.send(CurlRequest(url: "https://localhost:\(server.port)/echo")))
    }
    #expect(failure?.reason == .untrusted)
    #expect(failure?.sentAt == nil)
    #expect(failure?.detail.contains("certificate") == true)
  }

  @Test func `the error for a missing CA file names the file`() async throws {
    let server = try CurlTestServer.shared.get()
    let failure = await Self.with(server, change: { $0.caFile = "/nonexistent/ca.pem" }) { caller, _ in
      Self.failure(await caller.send(CurlRequest(url: "https://localhost:\(server.port)/echo")))
    }
    #expect(failure?.reason == .rootsUnusable)
  }

  @Test func `a host that the certificate does not name is refused`() async throws {
    let server = try CurlTestServer.shared.get()
    let here = NameResolver.of([SocketAddress(numericHost: "127.0.0.1", port: 0)!])
    let failure = await Self.with(server, change: { $0.resolver = here }) { caller, _ in
      // The certificate is for localhost itself.
      Self.failure(await caller.send(CurlRequest(url: "https://other.localhost:\(server.port)/echo")))
    }
    #expect(failure?.reason == .untrusted)
    #expect(failure?.sentAt == nil)
  }

  @Test func `a request without an answer ends at its deadline`() async throws {
    let server = try CurlTestServer.shared.get()
    await Self.with(
      server,
      change: {
        $0.totalTimeout = .seconds(120)
      }
    ) { caller, _ in
      // There is a connection already, so that the time is spent on the answer.
      _ = await caller.send(CurlRequest(url: "https://localhost:\(server.port)/echo"))
      let hanging = CurlRequest(url: "https://localhost:\(server.port)/hang")
      let (result, waited) = await caller.send(hanging, within: .seconds(3))
      let failure = Self.failure(result)
      #expect(failure?.reason == .timedOut)
      #expect(failure?.sentAt != nil, "the request had left: it may have been processed")
      #expect(waited >= .milliseconds(2_990) && waited < .seconds(60), "not at the end of one of the other times")
    }
  }

  @Test func `a request without an answer ends at the client's timeout`() async throws {
    let server = try CurlTestServer.shared.get()
    let failure = await Self.with(server, change: { $0.totalTimeout = .seconds(1) }) { caller, _ in
      Self.failure(await caller.send(CurlRequest(url: "https://localhost:\(server.port)/hang")))
    }
    #expect(failure?.reason == .timedOut)
  }

  private static let brokenHeaders = [
    "line ends in the value": ("X-A", "a\r\nX-B: b"), "line end in the name": ("X-A\n", "a"), "NUL": ("X-A", "\0"),
  ]

  @Test(arguments: brokenHeaders.keys.sorted())
  func `a header that contains a line break is not sent`(_ kind: String) async throws {
    let (name, value) = try #require(Self.brokenHeaders[kind])
    let server = try CurlTestServer.shared.get()
    let failure = await Self.with(server) { caller, _ in
      Self.failure(
        await caller.send(CurlRequest(url: "https://localhost:\(server.port)/echo", headers: [(name, value)])))
    }
    #expect(failure == CurlFailure(.malformedRequest))
  }

  @Test func `a request whose deadline has passed is not sent`() async throws {
    let server = try CurlTestServer.shared.get()
    let failure = await Self.with(server) { caller, _ in
      Self.failure(
        await caller.send(CurlRequest(url: "https://localhost:\(server.port)/echo", deadline: SystemClock().now())))
    }
    #expect(failure == CurlFailure(.deadlinePassed))
  }

  @Test(arguments: ["large?1001", "bomb?1001"])
  func `an answer beyond the size limit is truncated`(path: String) async throws {
    let server = try CurlTestServer.shared.get()
    await Self.with(server, change: { $0.responseSizeMax = 1000 }) { caller, _ in
      let failure = Self.failure(await caller.send(CurlRequest(url: "https://localhost:\(server.port)/\(path)")))
      #expect(failure?.reason == .responseTooLarge)
      #expect(failure?.sentAt != nil)
      let next = await caller.send(CurlRequest(url: "https://localhost:\(server.port)/large?1000"))
      #expect((try? next.get())?.body.count == 1000)
    }
  }

  @Test func `a redirect is an answer, and is not followed`() async throws {
    let server = try CurlTestServer.shared.get()
    let response = try await Self.with(server) { caller, _ in
      try await caller.send(CurlRequest(url: "https://localhost:\(server.port)/redirect")).get()
    }
    #expect(response.status == 302)
  }

  @Test func `an answer that ends early counts as a lost connection`() async throws {
    let server = try CurlTestServer.shared.get()
    let failure = await Self.with(server) { caller, _ in
      Self.failure(await caller.send(CurlRequest(url: "https://localhost:\(server.port)/cut")))
    }
    #expect(failure?.reason == .connectionLost)
    #expect(failure?.sentAt != nil)
  }

  @Test func `a refused connection is reported as not sent`() async throws {
    let port = try ServerProcess.freePort()
    let server = try CurlTestServer.shared.get()
    let failure = await Self.with(server) { caller, _ in
      Self.failure(await caller.send(CurlRequest(url: "https://127.0.0.1:\(port)/echo")))
    }
    #expect(failure?.reason == .notConnected)
    #expect(failure?.sentAt == nil)
  }

  @Test func `plain HTTP works on loopback addresses`() async throws {
    let server = try CurlTestServer(isTLS: false)
    let echo = try await Self.with(server) { caller, _ in
      try await Self.decode(caller.send(CurlRequest(url: "http://127.0.0.1:\(server.port)/echo")))
    }
    #expect(echo.method == "POST")
  }

  @Test func `closing the client fails the requests under way`() async throws {
    let server = try CurlTestServer.shared.get()
    let failure = await Self.with(server) { caller, _ in
      Self.failure(await caller.sendAndClose(CurlRequest(url: "https://localhost:\(server.port)/hang")))
    }
    #expect(failure?.reason == .closed)
  }

  @Test(
    arguments: [
      ("https://exp.host/--/api", "https"), ("https://[2001:db8::1]/", "https"), ("http://127.0.0.1:80/", "http"),
      ("http://localhost/", "http"), ("http://[::1]:8080/x", "http"), ("http://127.8.9.10/", "http"),
      ("http://example.com/", nil), ("http://127.0.0.1.example.com/", nil), ("http://127.0.0.1@example.com/", nil),
      ("http://10.0.0.1/", nil), ("https://user:secret@example.com/", nil), ("ftp://localhost/", nil),
      ("file:///etc/passwd", nil), ("gopher://127.0.0.1/", nil), ("localhost", nil), ("", nil), ("http://", nil),
      ("https://exa mple.com/", nil),
    ] as [(String, String?)])
  func `only https, and http on loopback addresses, may be called`(url: String, scheme: String?) {
    #expect(CurlAddress.allowedOrigin(of: url)?.scheme.rawValue == scheme)
  }

  // MARK: - Addresses

  @Test func `a connection is made despite eight dead addresses, which are remembered`() async throws {
    let server = try HTTP2TestServer { $0.acceptTicket() }
    guard let dead = DeadAddresses(8, port: server.port) else {
      print("skipped: this system has no addresses that drop a SYN")
      return
    }
    let addresses = Addresses(dead.hosts + ["127.0.0.1"])
    var configuration = CurlConfiguration(caFile: TestCertificates.shared.caFile)
    configuration.resolver = addresses.resolver
    configuration.addresses = AddressBook()
    configuration.requestsBeforeRenewal = 1  // the next request needs a new connection
    let caller = Caller(configuration, on: .paced("curl-test", with: [server.loop]))
    var times: [Nanoseconds] = []
    for _ in 0..<2 {
      let start = caller.loop.now
      let result = await caller.send(CurlRequest(url: "https://localhost:\(server.port)/", body: [0x5B, 0x5D]))
      #expect((try? result.get())?.status == 200, "\(result)")
      times.append(caller.loop.now - start)
    }
    #expect(times[0] < .seconds(7), "libcurl by itself gives each a share of five seconds, and fails")
    #expect(times[1] < .milliseconds(1_500), "\(times[1].milliseconds) ms")
    #expect(await server.perform { $0.connectionCount } == 3, "one of the race, two that were used")
    await caller.close()
    caller.loop.stop()
    withExtendedLifetime(dead) {}
  }

  @Test func `an address that stops answering is replaced by another one`() async throws {
    let server = try HTTP2TestServer { $0.acceptTicket() }
    let addresses = Addresses(["127.0.0.1", "127.0.0.2"])  // the second has no listener
    var configuration = CurlConfiguration(caFile: TestCertificates.shared.caFile)
    configuration.resolver = addresses.resolver
    configuration.addresses = AddressBook()
    configuration.addresses.didWork("127.0.0.2:\(server.port)", of: AddressDialer.bookName("localhost", server.port))
    let caller = Caller(configuration)
    let url = "https://localhost:\(server.port)/"
    #expect((try? await caller.send(CurlRequest(url: url)).get())?.status == 200, "libcurl goes on to the next")
    #expect(
      configuration.addresses.hasWorked(
        "127.0.0.1:\(server.port)", of: AddressDialer.bookName("localhost", server.port)))
    await caller.close()
    caller.loop.stop()
  }

  // A look-up by libcurl cannot be stopped: a request that is given up meanwhile would block the loop, and so every app.
  @Test func `libcurl never looks up a name`() async throws {
    let server = try HTTP2TestServer { $0.acceptTicket() }
    var configuration = CurlConfiguration(caFile: TestCertificates.shared.caFile)
    configuration.resolver = NameResolver { _ in .success([]) }
    configuration.addresses = AddressBook()
    let caller = Caller(configuration)
    let result = await caller.send(CurlRequest(url: "https://localhost:\(server.port)/", body: [0x5B, 0x5D]))
    #expect(result == .failure(CurlFailure(.nameNotResolved)))
    #expect(await server.perform { $0.connectionCount } == 0)
    await caller.close()
    caller.loop.stop()
  }

  @Test func `if the address race takes too long, the known addresses of the host are used`() async throws {
    let server = try HTTP2TestServer { $0.acceptTicket() }
    guard let dead = DeadAddresses(8, port: server.port) else {
      print("skipped: this system has no addresses that drop a SYN")
      return
    }
    var configuration = CurlConfiguration(caFile: TestCertificates.shared.caFile)
    let hosts = dead.hosts + ["127.0.0.1"]
    let loop = EventLoop.paced("curl-test", with: [server.loop])
    configuration.resolver = NameResolver { _ in
      // A second of the loop's clock, which a busy machine makes longer.
      let end = loop.now + .seconds(1)
      while loop.now < end { usleep(5_000) }
      return .success(hosts.map { SocketAddress(numericHost: $0, port: 0)! })
    }
    configuration.addresses = AddressBook()
    configuration.connectTimeout = .seconds(2)  // a second is left, and the race takes two
    let caller = Caller(configuration, on: loop)
    let result = await caller.send(CurlRequest(url: "https://localhost:\(server.port)/", body: [0x5B, 0x5D]))
    if case .failure(let failure) = result {
      #expect([.timedOut, .notConnected].contains(failure.reason), "its addresses were tried")
    } else {
      Issue.record("\(result)")
    }
    #expect(
      configuration.addresses.order(
        [(hosts[0] + ":\(server.port)", false), ("127.0.0.1:\(server.port)", false)],
        of: AddressDialer.bookName("localhost", server.port), now: caller.loop.now) == [1, 0],
      "and the first is not tried first again")
    await caller.close()
    caller.loop.stop()
    withExtendedLifetime(dead) {}
  }

  // MARK: - Missing answers

  @Test func `who waits in vain gets new connections, unless those in use are newer or have brought an answer since`()
    async throws
  {
    let server = try CurlTestServer.shared.get()
    let url = "https://localhost:\(server.port)/"
    try await Self.with(server, change: { $0.totalTimeout = .seconds(120) }) { caller, loop in
      func connection() async throws -> Int {
        try Self.decode(await caller.send(CurlRequest(url: url + "echo", body: [0x5B, 0x5D]))).connection
      }
      var request = CurlRequest(url: url + "hang", body: [0x5B, 0x5D])
      let tag = NSObject()
      request.tag = ObjectIdentifier(tag)
      let begin = loop.now
      let ended = Mutex<Result<CurlResponse, CurlFailure>?>(nil)
      await caller.start(request) { result in ended.withLock { $0 = result } }
      let first = try await connection()
      await caller.didWaitInVain(since: begin)
      #expect(try await connection() == first, "it has answered since")
      let later = loop.now + .milliseconds(1)
      while loop.now < later { await Task.yield() }
      await caller.didWaitInVain(since: later)
      let second = try await connection()
      #expect(second != first)
      await caller.didWaitInVain(since: later)
      #expect(try await connection() == second, "it is newer")
      await caller.cancel(ObjectIdentifier(tag))
      #expect(ended.withLock { $0 }.flatMap(Self.failure)?.reason == .timedOut, "long before the end of its time")
      withExtendedLifetime(tag) {}
    }
  }
}
