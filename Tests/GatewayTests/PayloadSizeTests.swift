// What enqueueing accepts, and what the gateway can send.

import Dialects
import DialectsTestSupport
import Foundation
import Providers
import PushModel
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(10))) struct PayloadSizeTests {
  /// `push.size_faults` and the dialects cut the same names to the same length, or this fails.
  @Test func `the largest payload that enqueueing accepts can be sent, however long its names are`() async throws {
    try await TestDatabase.with { database in
      for part in ["x", "\"", "é", "門", "🔔", "👨‍👩‍👧‍👦"] {
        var fixture = DeliveryFixture()
        for name in ["fromName", "callerName", "apartmentNumber", "buildingName", "groupName"] {
          fixture.payload[name] = String(repeating: part, count: 3000 / part.unicodeScalars.count)
        }
        for (index, provider) in ProviderKind.allCases.enumerated() {
          fixture.payload["metadata"] = nil
          let payload = String(
            decoding: try JSONSerialization.data(withJSONObject: fixture.payload), as: UTF8.self)
          let largest = try await database.value(
            """
            select max(n) from generate_series(0, 5120, 16) n where (push.size_faults($json$\(payload)$json$::jsonb
              || jsonb_build_object('metadata', jsonb_build_object('x', repeat('y', n)))))[\(index + 1)] is null
            """)
          fixture.payload["metadata"] = ["x": String(repeating: "y", count: try #require(Int(largest)))]
          for dialect in ShippedDialects.names {
            for platform in DevicePlatform.allCases where (platform == .web) == (provider == .webpush) {
              fixture.platform = platform
              do {
                _ = try fixture.plan(dialect, provider)
              } catch PlanningFailure.noTemplate {
              } catch {
                Issue.record("\(dialect) over \(provider.rawValue) on \(platform), names of \(part): \(error)")
              }
            }
          }
        }
      }
    }
  }
}
