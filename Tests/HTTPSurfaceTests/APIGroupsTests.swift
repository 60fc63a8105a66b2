// Calls of many requests share a commit. Each has its own answer, and none waits because of another's error.

import HTTPSurfaceTestSupport
import Foundation
import Queue
import TestSupport
import Runtime
import Testing

@testable import Settings

@Suite(.timeLimit(.minutes(10)))
struct APIGroupsTests {
  private func answers(_ api: APIHarness, _ bodies: [String]) async throws -> [APIAnswer] {
    try await withThrowingTaskGroup(of: (Int, APIAnswer).self) { tasks in
      for (index, body) in bodies.enumerated() {
        tasks.addTask { (index, try await api.send("POST", "/v1/calls", body)) }
      }
      return try await tasks.reduce(into: [Int: APIAnswer]()) { $0[$1.0] = $1.1 }.sorted { $0.key < $1.key }.map(
        \.value)
    }
  }

  @Test func `calls share commits, and each has its own answer`() async throws {
    try await APIHarness.with { api in
      _ = try await api.send("POST", "/v1/calls", APIHarness.call("was-there"))
      var bodies = (0..<100).map { APIHarness.call("c-\($0)") }
      bodies[10] = APIHarness.call("was-there")
      bodies[20] = #"{"payload": {"callId": "bad"}, "recipients": ["ana"]}"#
      bodies[30] = #"{"payload": {"callId": "c-nobody", "from": "x"}, "recipients": ["nobody"]}"#
      bodies[40] = APIHarness.call("c-41")
      let answers = try await answers(api, bodies)
      for (index, answer) in answers.enumerated() where ![10, 20, 30, 40, 41].contains(index) {
        #expect(answer.status == 202, "\(index): \(answer)")
        #expect(answer.body.contains(#""callId":"c-\#(index)""#))
        #expect(answer.body.contains(#""deliveries":1,"duplicate":false,"skipped":0"#))
      }
      #expect(answers[10].status == 202)
      #expect(answers[10].body.contains(#""duplicate":true"#))
      #expect(answers[20].status == 422)
      #expect(answers[20].body.contains("payload.from"))
      #expect(answers[30].body.contains(#""deliveries":0,"duplicate":false,"skipped":1"#))
      #expect(answers[30].body.contains("NoDevice"))
      // The call that was sent twice was created once.
      #expect([answers[40], answers[41]].map { $0.body.contains(#""duplicate":true"#) }.count { $0 } == 1)
      let commits = try await api.database.value("select count(distinct xmin::text) from push.outbox")
      #expect(Int(commits).map { $0 < 90 } == true, "\(commits) commits for 98 calls")
    }
  }

  @Test func `a large call is enqueued alone, and small calls share commits`() async throws {
    try await APIHarness.with { api in
      let recipients = (0...20).map { #""user-\#($0)""# }.joined(separator: ",")
      var bodies = (0..<60).map { APIHarness.call("c-\($0)") }
      for index in [10, 30] {
        bodies[index] = #"{"payload": {"callId": "large-\#(index)", "from": "x"}, "recipients": [\#(recipients)]}"#
      }
      let answers = try await answers(api, bodies)
      #expect(answers.allSatisfy { $0.status == 202 })
      let beside = try await api.database.value(
        """
        select count(*) from push.outbox o join push.outbox l on l.xmin = o.xmin and l.id <> o.id
        where l.call_id like 'large-%'
        """)
      #expect(beside == "0")
    }
  }

  @Test func `a call that waits for a lock does not delay others`() async throws {
    try await APIHarness.with(adjust: { $0.requestTimeoutSeconds = 60 }, lockPatience: .seconds(60)) { api in
      let holder = try await api.database.connect()
      try await holder.script(
        "begin; select from push.enqueue_call('{\"callId\": \"held\", \"from\": \"x\"}', '[\"ana\"]', 'porteiro')")
      let other = try await api.createKey(app: "other")
      try await withThrowingTaskGroup(of: APIAnswer.self) { tasks in
        tasks.addTask { try await api.send("POST", "/v1/calls", APIHarness.call("held")) }
        for index in 0..<60 {
          let key = index % 2 == 0 ? other : nil
          tasks.addTask { try await api.send("POST", "/v1/calls", APIHarness.call("free-\(index)"), key: key) }
        }
        // All except the call that waits for the lock.
        for _ in 0..<60 { #expect(try await tasks.next()?.status == 202) }
        try await holder.script("rollback")
        let held = try await tasks.next()
        #expect(held?.status == 202)
        #expect(held?.body.contains(#""duplicate":false"#) == true)
      }
      await holder.close()
    }
  }

  @Test func `a notification without an id is enqueued once`() async throws {
    try await APIHarness.with { api in
      _ = try await api.send("GET", "/v1/calls/none")
      let message = #"{"payload": {"from": "x", "chatId": "room"}, "recipients": ["ana"], "kind": "message"}"#
      let answers = try await answers(api, Array(repeating: message, count: 20))
      for answer in answers { #expect(answer.status == 202, "\(answer)") }
      #expect(try await api.database.value("select count(*) from push.outbox") == "20")
    }
  }
}
