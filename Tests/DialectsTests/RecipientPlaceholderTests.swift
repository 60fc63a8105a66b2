// Placeholders for the members of a recipient's own data.

import DialectsTestSupport
import Foundation
import Providers
import PushModel
import Queue
import Runtime
import Testing

@testable import Dialects

@Suite struct RecipientPlaceholderTests {
  /// The body of a template for a delivery whose recipient has this data.
  private func render(_ template: String, data: String?) throws -> [String: Any] {
    let dialect = try Dialect(name: "custom", json: #"{"apns":{"invite":\#(template)}}"#)
    var fixture = DeliveryFixture()
    (fixture.platform, fixture.recipientData) = (.ios, data)
    let planner = CallPlanner(dialect: dialect, provider: .apns)
    return try parse(Data(try planner.plan(fixture.delivery, now: DeliveryFixture.now, tag: 1).get().body))
  }

  @Test func `a placeholder is replaced by the recipient's own text, escaped once`() throws {
    let body = try render(
      #"{"aps":{},"phone":"${recipient.phone}","both":"${fromName} to ${recipient.name|'you'}","json":"${recipient.phone:json}"}"#,
      data: #"{"name": "Ana \"é\" \\ \u2028", "phone": "+31 6 1234"}"#)
    #expect(body["phone"] as? String == "+31 6 1234")
    #expect(body["json"] as? String == "+31 6 1234")
    #expect(body["both"] as? String == "Portaria \"Sul\" é to Ana \"é\" \\ \u{2028}")
  }

  @Test(arguments: [nil, "{}", #"{"name": "Ana"}"#, #"{"phone": ""}"#])
  func `without the recipient's text, its alternative is used or the member is left out`(data: String?) throws {
    let body = try render(
      #"{"aps":{},"phone":"${recipient.phone?}","other":"${recipient.phone|callId}","json":"${recipient.phone?:json}"}"#,
      data: data)
    #expect(body["phone"] == nil)
    #expect(body["json"] == nil)
    #expect(body["other"] as? String == DeliveryFixture().callID)
  }

  @Test func `the failure for a missing required text has its name`() throws {
    #expect(throws: PlanningFailure.missingField("recipient.phone")) {
      try render(#"{"aps":{},"phone":"${recipient.phone}"}"#, data: nil)
    }
  }

  @Test func `a placeholder for the recipient's data never reads the payload`() throws {
    let body = try render(#"{"aps":{},"code":"${recipient.doorCode|'none'}"}"#, data: #"{"phone": "1"}"#)
    #expect(body["code"] as? String == "none")
  }

  @Test func `recipient without a member's name is no placeholder`() {
    #expect(throws: (any Error).self) { try render(#"{"aps":{},"x":"${recipient.}"}"#, data: nil) }
    #expect(throws: (any Error).self) { try render(#"{"aps":{},"x":"${recipient}"}"#, data: nil) }
  }
}
