// Attacks on the HTTP API: large requests, many connections, slow clients. All are refused, with an answer where
// possible.

import HTTPSurfaceTestSupport
import Foundation
import TestSupport
import TestTime
import Testing

#if canImport(Glibc)
import Glibc
#elseif canImport(Darwin)
import Darwin
#endif

@testable import Settings

/// Serialized, because each test uses much of the process's sockets and time.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct APIAttackTests {
  @Test func `a body of ten megabytes is refused, and the client can read the reason`() async throws {
    try await APIHarness.with { api in
      let megabytes = String(repeating: "x", count: 10_000_000)
      let announced = try await api.send("POST", "/v1/calls", megabytes)
      #expect(announced.status == 413)
      #expect(announced.problem == "body-too-large")
      #expect(announced.headers["connection"] == "close")
      let head =
        "POST /v1/calls HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer \(api.key)\r\n"
        + "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
      let chunked = head + String(megabytes.count, radix: 16) + "\r\n" + megabytes + "\r\n0\r\n\r\n"
      #expect(try await api.send(raw: Array(chunked.utf8)).status == 413)
      #expect(try await api.send("POST", "/v1/calls", APIHarness.call).status == 202)
    }
  }

  @Test func `a body of exactly the limit is accepted, and one of one byte more is refused`() async throws {
    try await APIHarness.with(adjust: { $0.bodyMaxBytes = 1024 }) { api in
      let padded = APIHarness.call + String(repeating: " ", count: 1024 - APIHarness.call.utf8.count)
      let tooLarge = try await api.send("POST", "/v1/calls", padded + " ")
      #expect(tooLarge.status == 413)
      let right = try await api.send("POST", "/v1/calls", padded)
      #expect(right.status == 202)
    }
  }

  @Test(arguments: ["{}", "GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n"])
  func `a valid request and an invalid one in one write are both answered, and the connection ends`(
    _ behind: String
  ) async throws {
    try await APIHarness.with(adjust: { $0.connectionsMax = 2 }) { api in
      for _ in 0..<4 {
        let both = try await api.send(raw: Array("GET /v1/calls/x HTTP/1.1\r\nHost: api\r\n\r\n\(behind)".utf8))
        #expect(both.status == 401)
        #expect(both.body.contains("HTTP/1.1 400"), "\(both)")
      }
      #expect(try await api.send("POST", "/v1/calls", APIHarness.call).status == 202)
    }
  }

  @Test func `a client that expects 100 Continue gets it, unless its body is too large`() async throws {
    try await APIHarness.with { api in
      let socket = try TestSocket(port: api.port)
      defer { socket.close() }
      let head = """
        POST /v1/calls HTTP/1.1\r\nHost: api\r\nConnection: close\r\nContent-Type: application/json\r
        Authorization: Bearer \(api.key)\r\nExpect: 100-continue\r\nContent-Length: \(APIHarness.call.utf8.count)\r\n\r\n
        """
      let leave = String(decoding: await socket.ask(Array(head.utf8)), as: UTF8.self)
      #expect(leave.hasPrefix("HTTP/1.1 100"))
      #expect(APIAnswer(await socket.exchange(Array(APIHarness.call.utf8))).status == 202)
      let large = "POST /v1/calls HTTP/1.1\r\nHost: api\r\nExpect: 100-continue\r\nContent-Length: 9999999\r\n\r\n"
      #expect(try await api.send(raw: Array(large.utf8)).status == 413)
    }
  }

  /// Java's client sends such requests. The server reads nothing after them.
  @Test func `a request that offers another protocol is answered, with Connection: close`() async throws {
    try await APIHarness.with { api in
      let socket = try TestSocket(port: api.port)
      defer { socket.close() }
      let request = """
        POST /v1/calls HTTP/1.1\r\nHost: api\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r
        HTTP2-Settings: AAEAAEAAAAIAAAAB\r\nContent-Type: application/json\r\nAuthorization: Bearer \(api.key)\r
        Content-Length: \(APIHarness.call.utf8.count)\r\n\r\n\(APIHarness.call)
        """
      let answer = APIAnswer(await socket.exchange(Array(request.utf8)))
      #expect(answer.status == 202)
      #expect(answer.headers["connection"] == "close")
    }
  }

  @Test func `a head that is too large is refused, and so is a request that is not HTTP`() async throws {
    try await APIHarness.with { api in
      let long = String(repeating: "x", count: 20_000)
      #expect(try await api.send("GET", "/v1/calls/c1", headers: ["X-Long: \(long)"]).status == 431)
      let many = (0..<100).map { "X-\($0): y" }
      #expect(try await api.send("GET", "/v1/calls/c1", headers: many).status == 431)
      for bytes in [
        "GARBAGE\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET /\u{1} HTTP/1.1\r\n\r\n", "\u{16}\u{3}\u{1}\u{2}\r\n",
      ] {
        let answer = try await api.send(raw: Array(bytes.utf8))
        #expect(answer.status == 400, "\(bytes)")
        #expect(answer.problem == "malformed-request")
      }
      #expect(try await api.send("GET", "/v1/calls/none").status == 404)
    }
  }

  @Test func `a slow client gets 408, both in the head and in the body`() async throws {
    try await APIHarness.with(adjust: { $0.requestTimeoutSeconds = 1 }) { api in
      let head = "POST /v1/calls HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer \(api.key)\r\n"
      for start in ["PO", head, head + "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"payload"] {
        let begun = ContinuousClock.now
        let answer = try await api.send(raw: Array(start.utf8))
        #expect(answer.status == 408, "\(answer)")
        #expect(answer.problem == "request-timeout")
        #expect(ContinuousClock.now - begun > .milliseconds(900))
      }
      // Sending a byte now and then does not extend the time limit.
      let socket = try TestSocket(port: api.port)
      defer { socket.close() }
      let drip = Task {
        for byte in (head + "X-Slow: " + String(repeating: "y", count: 1000)).utf8 {
          socket.write([byte])
          try await letPass(.milliseconds(20), "bytes trickle in")
        }
      }
      #expect(APIAnswer(await socket.next()).status == 408)
      drip.cancel()
      _ = await drip.result
      // A client that sends nothing gets no answer.
      #expect(try await api.send(raw: []).status == 0)
      #expect(try await api.database.value("select count(*) from push.outbox") == "0")
    }
  }

  @Test func `thousands of connections disturb neither served connections nor probes`() async throws {
    try await APIHarness.with(adjust: { $0.connectionsMax = 50 }) { api in
      let request = Array("GET /v1/calls/none HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer \(api.key)\r\n\r\n".utf8)
      let served = try TestSocket(port: api.port)
      defer { served.close() }
      let enqueue =
        "POST /v1/calls HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer \(api.key)\r\nContent-Type: application/json\r\n"
        + "Content-Length: \(APIHarness.call.utf8.count)\r\n\r\n\(APIHarness.call)"
      #expect(APIAnswer(await served.ask(Array(enqueue.utf8))).status == 202)

      // Each connection takes two descriptors, because both ends are in this process.
      var limit = rlimit()
      #if canImport(Glibc)
      getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
      #else
      getrlimit(RLIMIT_NOFILE, &limit)
      #endif
      let count = min(5_000, Int(clamping: limit.rlim_cur) / 2 - 300)
      try #require(count >= 200)
      var crowd: [TestSocket] = []
      defer { for socket in crowd { socket.close() } }
      for _ in 0..<count { crowd.append(try TestSocket(port: api.port)) }
      #expect(APIAnswer(await served.ask(request)).status == 404)
      let probe = try TestSocket(port: api.opsPort)
      defer { probe.close() }
      let live = await probe.exchange(Array("GET /livez HTTP/1.1\r\nHost: ops\r\nConnection: close\r\n\r\n".utf8))
      #expect(APIAnswer(live).status == 200)
      // New clients are served as well, because the oldest of the other connections is closed.
      #expect(try await api.send("GET", "/v1/calls/none").status == 404)
      #expect(await crowd[0].next() == [])

      for socket in crowd { socket.close() }
      crowd = []
      let free = try await api.eventually {
        try await api.send("GET", "/v1/calls/none")
      } until: {
        $0.status == 404
      }
      #expect(free.status == 404)
    }
  }

  @Test func `an idle connection is evicted by a new one`() async throws {
    try await APIHarness.with(adjust: { $0.connectionsMax = 1 }) { api in
      let first = try TestSocket(port: api.port)
      defer { first.close() }
      let request = Array("GET /v1/calls/none HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer \(api.key)\r\n\r\n".utf8)
      #expect(APIAnswer(await first.ask(request)).status == 404)
      // An answer can be read a moment before its connection counts as idle.
      let second = try await api.eventually {
        try await api.send("GET", "/v1/calls/none")
      } until: {
        $0.status == 404
      }
      #expect(second.status == 404)
      #expect(await first.next() == [])
    }
  }

  @Test func `while calls wait too long, further calls are refused, and other requests are served`() async throws {
    try await APIHarness.with(adjust: { $0.busyAfterSeconds = 60 }) { api in
      try await api.database.execute(
        """
        select push.enqueue_call('{"callId": "old", "from": "a"}',
          '[{"userId": "u", "fcmToken": "fcm-token-of-us-phone"}]', 'porteiro', 600);
        update push.delivery set created_at = now() - interval '61 s';
        """)
      let busy = try await api.send("POST", "/v1/calls", APIHarness.call)
      #expect(busy.status == 503)
      #expect(busy.problem == "busy")
      #expect(busy.headers["retry-after"] == "2")
      let other = try await api.createKey(app: "other")
      #expect(try await api.send("POST", "/v1/calls", APIHarness.call, key: other).status == 202)
      #expect(try await api.send("GET", "/v1/calls/old").status == 200)
      #expect(try await api.send("POST", "/v1/calls/old/end").status == 200)
      try await api.database.followUp()
      let taken = try await api.eventually {
        try await api.send("POST", "/v1/calls", APIHarness.call)
      } until: {
        $0.status == 202
      }
      #expect(taken.status == 202)
    }
  }

  @Test func `a call to a provider that nobody serves does not make the API refuse calls`() async throws {
    try await APIHarness.with(adjust: { $0.busyAfterSeconds = 60 }) { api in
      try await api.database.execute(
        """
        select push.report_lanes(g, array[push.register_lane('porteiro', 'apns')]::smallint[], '{1}', '{1}', '{0}', '{closed}', '{0}', '{0}')
        from push.register_gateway('serving', '1') g;
        -- It counts as silent after 5 s, which a test may take.
        update push.gateways set heartbeat_at = now() + interval '1 hour';
        select push.enqueue_call('{"callId": "old", "from": "a"}',
          '[{"userId": "u", "fcmToken": "fcm-token-of-us-phone"}]', 'porteiro', 600);
        update push.delivery set created_at = now() - interval '61 s';
        """)
      #expect(try await api.send("POST", "/v1/calls", APIHarness.call).status == 202)
    }
  }

  @Test func `a key with too many requests gets Retry-After, and other keys are served`() async throws {
    try await APIHarness.with(adjust: { $0.ratePerSecond = 1 }) { api in
      let other = try await api.createKey()
      // At once, because a busy machine may have a second between one request and the next.
      let answers = try await withThrowingTaskGroup(of: APIAnswer.self) { group in
        for _ in 0..<10 { group.addTask { try await api.send("GET", "/v1/calls/none") } }
        return try await group.reduce(into: []) { $0.append($1) }
      }
      #expect(Set(answers.map(\.status)) == [404, 429])
      #expect(answers.allSatisfy { $0.status == 404 || $0.headers["retry-after"] == "1" })
      #expect(try await api.send("GET", "/v1/calls/none", key: other).status == 404)
      let served = try await api.eventually {
        try await api.send("GET", "/v1/calls/none")
      } until: {
        $0.status == 404
      }
      #expect(served.status == 404)
    }
  }

  @Test func `without a database, or with one that is not migrated, requests get 503 until it is back`() async throws {
    try await APIHarness.with { api in
      #expect(try await api.send("POST", "/v1/calls", APIHarness.call).status == 202)
      try await api.database.execute(
        "select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name = 'push-gateway api'")
      #expect(try await api.send("POST", "/v1/calls", APIHarness.call).status == 202)
      try await api.database.execute("alter schema push rename to elsewhere")
      let away = try await api.eventually {
        try await api.send("GET", "/v1/calls/c1")
      } until: {
        $0.status == 503
      }
      #expect(away.status == 503)
      #expect(away.problem == "database-unavailable")
      #expect(away.headers["retry-after"] != nil)
      try await api.database.execute("alter schema elsewhere rename to push")
      let back = try await api.eventually {
        try await api.send("GET", "/v1/calls/c1")
      } until: {
        $0.status == 200
      }
      #expect(back.status == 200)
    }
  }
}
