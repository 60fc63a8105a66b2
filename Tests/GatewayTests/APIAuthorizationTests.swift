// Who may do what over the HTTP API: keys, their scopes and their apps.

import Foundation
import TestSupport
import Testing

@testable import Gateway

@Suite(.timeLimit(.minutes(2)))
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

  @Test func `nothing is done without a good key`() async throws {
    try await APIHarness.with { api in
      _ = try await api.send("POST", "/v1/calls", APIHarness.call)
      let other = try await api.createKey()
      let wrong = String(api.key.dropLast()) + (api.key.hasSuffix("0") ? "1" : "0")
      let parts = other.split(separator: "_")
      let keys = [
        "", "pgk", "pgk_1", "pgk_1_", "pgk__x", "pgk_999999_\(String(repeating: "a", count: 64))", wrong,
        // The secret of one key under the number of another.
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
  func `a key does what its scope is, and nothing else`(_ scope: String) async throws {
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

  @Test func `another app's calls and devices do not exist`() async throws {
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
      // The same id is a call of their own.
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
}
