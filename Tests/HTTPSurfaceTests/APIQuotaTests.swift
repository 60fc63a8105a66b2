// An app that has used up its quota: what its backend is told, and what it may still do.

import HTTPSurfaceTestSupport
import Foundation
import TestSupport
import Testing

@testable import HTTPSurface

@Suite(.timeLimit(.minutes(10)))
struct APIQuotaTests {
  /// Stops the clock by which the database counts: a slow machine must not come into the next minute, in which there is room again.
  private static func stopMinute(_ database: TestDatabase) async throws {
    try await database.execute(
      """
      do $$
      declare
        v_name text;
      begin
        foreach v_name in array '{read_meter,count_on_meter}'::text[] loop
          execute replace(pg_get_functiondef(('push.' || v_name)::regproc), 'clock_timestamp()',
            format('%L::timestamptz', clock_timestamp()));
        end loop;
      end
      $$
      """)
  }

  @Test func `a new call is refused with 429, Retry-After and a type of its own, and what exists or ends is not`()
    async throws
  {
    try await APIHarness.with { api in
      try await Self.stopMinute(api.database)
      _ = try await api.database.value("select message from push.set_quota('porteiro', 2, 1)")
      for call in ["c-1", "c-2"] {
        #expect(try await api.send("POST", "/v1/calls", APIHarness.call(call)).status == 202)
      }
      let refused = try await api.send("POST", "/v1/calls", APIHarness.call("c-3"))
      #expect(refused.status == 429)
      #expect(refused.problem == "quota-exceeded")
      let seconds = try #require(refused.headers["retry-after"].flatMap { Int($0) })
      #expect((1...120).contains(seconds))
      #expect(
        refused.json["detail"] as? String
          == "app porteiro has used up its quota of 2 calls a minute; try again in \(seconds) s")
      #expect(refused.field == nil)
      #expect(api.counters.snapshot.refusals[.quota] == 1)
      #expect(try await api.database.value("select count(*) from push.outbox") == "2")
      // A duplicate, the end of a call, a report of ringing and a notification.
      let again = try await api.send("POST", "/v1/calls", APIHarness.call("c-1"))
      #expect(again.status == 202 && again.json["duplicate"] as? Bool == true)
      #expect(try await api.send("POST", "/v1/calls/c-1/ringing", #"{"userId": "ana"}"#).status == 200)
      #expect(try await api.send("POST", "/v1/calls/c-1/answer", #"{"userId": "ana"}"#).status == 200)
      #expect(try await api.send("POST", "/v1/calls/c-2/end", "{}").status == 200)
      let note = #"{"kind": "missed_call", "payload": {"callId": "n", "from": "a"}, "recipients": ["ana"]}"#
      #expect(try await api.send("POST", "/v1/calls", note).status == 202)
      // Another app is not affected.
      let other = try await api.createKey(app: "other")
      #expect(try await api.send("POST", "/v1/calls", APIHarness.call("c-3"), key: other).status == 202)
    }
  }

  @Test func `calls that share a commit are refused one by one, and those of another app are not`() async throws {
    try await APIHarness.with { api in
      try await Self.stopMinute(api.database)
      _ = try await api.database.value("select message from push.set_quota('porteiro', 4)")
      _ = try await api.database.value("select message from push.set_quota('other', 1000)")
      let other = try await api.createKey(app: "other")
      func send(_ name: String) async throws -> [(app: String, status: Int)] {
        try await withThrowingTaskGroup(of: (app: String, status: Int).self) { group in
          for index in 0..<40 {
            group.addTask {
              ("porteiro", try await api.send("POST", "/v1/calls", APIHarness.call("p-\(name)-\(index)")).status)
            }
            group.addTask {
              let call = APIHarness.call("o-\(name)-\(index)")
              return ("other", try await api.send("POST", "/v1/calls", call, key: other).status)
            }
          }
          return try await group.reduce(into: []) { $0.append($1) }
        }
      }
      func used() async throws -> Int {
        try #require(
          Int(try await api.database.value("select used from push.quotas where app = 'other' and what = 'calls'")))
      }
      let first = try await send("a")
      #expect(first.count { $0.app == "porteiro" && $0.status == 202 } == 4)
      #expect(first.count { $0.app == "porteiro" && $0.status == 429 } == 36)
      #expect(first.count { $0.app == "other" && $0.status == 202 } == 40)
      // When two commits race for the last call of a quota, one is repeated, and its other calls count twice. Later
      // refusals are known before anything is counted.
      let before = try await used()
      #expect(before >= 1)
      let second = try await send("b")
      #expect(second.allSatisfy { $0.status == ($0.app == "other" ? 202 : 429) })
      #expect(try await used() <= before + 40)
    }
  }

  @Test func `a call with more recipients than a minute's quota is invalid, because no retry would help`() async throws
  {
    try await APIHarness.with { api in
      _ = try await api.database.value("select message from push.set_quota('porteiro', null, null, 2)")
      let users = #"{"payload": {"callId": "many", "from": "a"}, "recipients": ["a", "b", "c"]}"#
      let refused = try await api.send("POST", "/v1/calls", users)
      #expect(refused.status == 422 && refused.field == "recipients" && refused.headers["retry-after"] == nil)
      #expect(
        refused.json["detail"] as? String
          == "this statement has 3 recipients, and the quota of app porteiro is 2 a minute; split it")
    }
  }
}
