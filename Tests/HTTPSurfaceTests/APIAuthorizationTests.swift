// Authorization in the HTTP API: keys, their scopes and their apps.

import HTTPSurfaceTestSupport
import Foundation
import TestSupport
import Testing

@testable import HTTPSurface
@testable import Settings

@Suite(.timeLimit(.minutes(10)))
struct APIAuthorizationTests {
  private static let requests: [(method: String, path: String, body: String?, scope: String)] = [
    ("POST", "/v1/calls", APIHarness.call("new"), "enqueue"),
    ("POST", "/v1/calls/c1/answer", nil, "enqueue"),
    ("POST", "/v1/calls/c1/end", nil, "enqueue"),
    ("POST", "/v1/calls/c1/ringing", #"{"userId": "ana"}"#, "device"),
    ("GET", "/v1/calls/c1", nil, "read"),
    ("PUT", "/v1/devices", #"{"userId": "u", "provider": "fcm", "token": "a-token-of-some-phone"}"#, "device"),
    ("DELETE", "/v1/devices", #"{"provider": "fcm", "token": "a-token-of-some-phone"}"#, "device"),
  ]

  @Test func `without a good key, every request is refused and changes nothing`() async throws {
    try await APIHarness.with { api in
      _ = try await api.send("POST", "/v1/calls", APIHarness.call)
      let other = try await api.createKey()
      let wrong = String(api.key.dropLast()) + (api.key.hasSuffix("0") ? "1" : "0")
      let parts = other.split(separator: "_")
      let keys = [
        "", "pgk", "pgk_1", "pgk_1_", "pgk__x", "pgk_999999_\(String(repeating: "a", count: 64))", wrong,
        // The secret of one key with the number of another.
        "pgk_1_\(parts[2])", "pgk_99999999999_\(parts[2])", "PGK_1_\(parts[2])",
        "pgk_-1_\(parts[2])", String(repeating: "x", count: 4000),
      ]
      for key in keys {
        for request in Self.requests {
          let answer = try await api.send(request.method, request.path, request.body, key: key)
          #expect(answer.status == 401, "\(key.prefix(8)) \(request.method) \(request.path)")
          #expect(answer.headers["www-authenticate"]?.hasPrefix("Bearer") == true)
          #expect(!answer.body.contains(parts[2]))
        }
      }
      #expect(try await api.database.value("select string_agg(state, ',') from push.outbox") == "ringing")
      #expect(try await api.database.value("select count(*) from push.devices") == "0")
    }
  }

  @Test(arguments: ["enqueue", "device", "read"])
  func `a key may do what its scope allows, and nothing else`(_ scope: String) async throws {
    try await APIHarness.with { api in
      _ = try await api.send("POST", "/v1/calls", APIHarness.call)
      let key = try await api.createKey(scopes: scope)
      for request in Self.requests {
        let answer = try await api.send(request.method, request.path, request.body, key: key)
        if request.scope == scope {
          #expect(200..<300 ~= answer.status, "\(request.method) \(request.path): \(answer)")
        } else {
          #expect(answer.status == 403, "\(request.method) \(request.path)")
          #expect(answer.problem == "missing-scope")
          #expect(answer.headers["www-authenticate"]?.contains("scope=\"\(request.scope)\"") == true)
        }
      }
    }
  }

  @Test func `calls and devices of another app are not found`() async throws {
    try await APIHarness.with { api in
      let theirs = try await api.createKey(app: "other")
      _ = try await api.send("POST", "/v1/calls", APIHarness.call)
      _ = try await api.send("PUT", "/v1/devices", Self.requests[5].body, key: api.key)
      for request in Self.requests[1...4] {
        let answer = try await api.send(request.method, request.path, request.body, key: theirs)
        #expect(answer.status == 404, "\(request.path)")
        #expect(answer.problem == "unknown-call")
      }
      #expect(try await api.send("DELETE", "/v1/devices", Self.requests[6].body, key: theirs).status == 204)
      #expect(try await api.database.value("select string_agg(app, ',') from push.devices") == "porteiro")
      #expect(try await api.database.value("select string_agg(state, ',') from push.outbox") == "ringing")
      // The same id in another app is another call.
      let own = try await api.send("POST", "/v1/calls", APIHarness.call, key: theirs)
      #expect(own.json["duplicate"] as? Bool == false)
      #expect(
        try await api.database.value("select string_agg(app, ',' order by app) from push.outbox") == "other,porteiro")
    }
  }

  @Test func `a key is made, used and revoked without a restart`() async throws {
    try await APIHarness.with { api in
      let key = try await api.createKey()
      #expect(try await api.send("GET", "/v1/calls/none", key: key).status == 404)
      try await api.database.execute("select push.revoke_api_key(\(key.split(separator: "_")[1]))")
      let refused = try await api.eventually {
        try await api.send("GET", "/v1/calls/none", key: key)
      } until: {
        $0.status == 401
      }
      #expect(refused.status == 401)
      #expect(try await api.send("GET", "/v1/calls/none").status == 404)
    }
  }

  @Test func `an expired or revoked key is told so, if the secret is right`() async throws {
    try await APIHarness.with { api in
      let key = try await api.createKey()
      let id = try #require(key.split(separator: "_").dropFirst().first)
      try await api.database.execute("update push.api_keys set expires_at = now() - interval '1 s' where id = \(id)")
      // The gateway may have read the good keys before.
      _ = try await api.eventually {
        try await api.send("GET", "/v1/calls/none", key: key)
      } until: {
        $0.status == 401
      }
      let expired = try await api.send("POST", "/v1/calls", APIHarness.call, key: key)
      #expect(expired.status == 401)
      #expect(expired.json["detail"] as? String == "the key has expired")
      let wrong = try await api.send("POST", "/v1/calls", APIHarness.call, key: key.dropLast() + "x")
      #expect(wrong.json["detail"] as? String == "the key is not known, revoked or expired")
      #expect(try await api.database.value("select count(*) from push.outbox") == "0")
      #expect(api.counters.snapshot.refusals[.expired] ?? 0 >= 2)
      #expect(api.counters.snapshot.refusals[.wrongSecret] == 1)
    }
  }

  @Test func `a key limited to a network is refused from elsewhere, whatever the request's headers say`()
    async throws
  {
    try await APIHarness.with { api in
      let key = try await api.createKey(addresses: "127.0.0.2/32")
      for headers in [[], ["X-Forwarded-For: 127.0.0.2"], ["Forwarded: for=127.0.0.2"], ["X-Real-IP: 127.0.0.2"]] {
        let answer = try await api.send("POST", "/v1/calls", APIHarness.call, key: key, headers: headers)
        #expect(answer.status == 403, "\(headers)")
        #expect(answer.problem == "address-not-allowed")
      }
      #expect(try await api.database.value("select count(*) from push.outbox") == "0")
      #expect(try await api.send("POST", "/v1/calls", APIHarness.call, key: key, from: "127.0.0.2").status == 202)
      #expect(api.counters.snapshot.refusals[.address] == 4)
    }
  }

  @Test func `behind a proxy, the client's address is the one that the proxy adds`() async throws {
    try await APIHarness.with(adjust: { $0.trustedProxies = [IPRange("127.0.0.3")!] }) { api in
      let key = try await api.createKey(addresses: "203.0.113.0/24")
      func status(_ forwarded: [String], from host: String = "127.0.0.3") async throws -> Int {
        try await api.send(
          "GET", "/v1/calls/none", key: key, headers: forwarded.map { "X-Forwarded-For: \($0)" }, from: host
        ).status
      }
      #expect(try await status(["203.0.113.7"]) == 404)
      #expect(try await status(["198.51.100.1", "203.0.113.7"]) == 404)
      // The client adds a false address; the proxy appends the real one.
      #expect(try await status(["203.0.113.7, 198.51.100.1"]) == 403)
      #expect(try await status(["203.0.113.7", "198.51.100.1"]) == 403)
      #expect(try await status(["203.0.113.7, not an address"]) == 403)
      #expect(try await status([]) == 403)
      // The header is ignored if the request does not come from the proxy.
      #expect(try await status(["203.0.113.7"], from: "127.0.0.2") == 403)
    }
  }

  @Test func `a guesser gets 429, and locks out no good key, neither at other addresses nor at its own`()
    async throws
  {
    try await APIHarness.with { api in
      let unused = try await api.createKey()
      #expect(try await api.send("GET", "/v1/calls/none").status == 404)
      var statuses: Set<Int> = []
      let wrong = String(api.key.dropLast()) + (api.key.hasSuffix("0") ? "1" : "0")
      // Many at once, and on a busy machine more of them: ten a second are answered with 401 for ever.
      var guesses = 0
      while guesses < 400 || statuses.count < 2 && guesses < 10_000 {
        try await withThrowingTaskGroup(of: Int.self) { group in
          for index in guesses..<guesses + 20 {
            let guess = index % 2 == 0 ? wrong : "pgk_\(90_000 + index)_\(String(repeating: "a", count: 64))"
            group.addTask { try await api.send("GET", "/v1/calls/none", key: guess, from: "127.0.0.2").status }
          }
          for try await status in group { statuses.insert(status) }
        }
        guesses += 20
        for host in ["127.0.0.1", "127.0.0.2"] {
          #expect(try await api.send("GET", "/v1/calls/none", from: host).status == 404, "from \(host)")
        }
      }
      #expect(statuses == [401, 429])
      // A wrong key from another address still gets 401.
      #expect(try await api.send("GET", "/v1/calls/none", key: wrong).status == 401)
      let first = try await api.eventually {
        try await api.send("GET", "/v1/calls/none", key: unused, from: "127.0.0.2")
      } until: {
        $0.status == 404
      }
      #expect(first.status == 404)
    }
  }

  @Test func `the last use of a key is noted, with the address`() async throws {
    try await APIHarness.with { api in
      #expect(try await api.send("GET", "/v1/calls/none", from: "127.0.0.2").status == 404)
      try await api.database.wait(for: "select coalesce(last_used_from, '') from push.keys", toBe: "127.0.0.2")
    }
  }
}
