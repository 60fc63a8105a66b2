// Tests of what a provider's answers say of a lane's credentials, and for how long.

import Runtime
import Testing

@testable import Providers

@Suite struct RefusedCredentialsTests {
  private let start = Instant(nanoseconds: 1_000_000_000_000)
  private let refused = PushOutcome.unauthorized(reason: "InvalidProviderToken")

  private func reason(_ credentials: RefusedCredentials, isWell: Bool = true, after: Nanoseconds = .zero) -> String? {
    credentials.reason(isWell: isWell, start + after).map { "\($0.text) \($0.concernsAll ? "all" : "some")" }
  }

  @Test func `a reason is true of all pushes while the circuit is open, and of some for a while if it is not`() {
    var credentials = RefusedCredentials()
    #expect(reason(credentials, isWell: false) == nil)
    credentials.didHear(refused, concernsLane: true, start)
    #expect(reason(credentials) == "InvalidProviderToken some")
    #expect(reason(credentials, after: RefusedCredentials.memory) == nil)
    #expect(reason(credentials, isWell: false, after: .seconds(3_600)) == "InvalidProviderToken all")
  }

  @Test(arguments: [
    PushOutcome.accepted(messageID: nil), .tokenInvalid(reason: "BadDeviceToken", since: nil),
    .unavailable(reason: "ServiceUnavailable", after: nil),
  ])
  func `it ends when the provider looks further than at the credentials, or is ill`(outcome: PushOutcome) {
    var credentials = RefusedCredentials()
    credentials.didHear(refused, concernsLane: true, start)
    credentials.didHear(outcome, concernsLane: true, start)
    #expect(reason(credentials, isWell: false) == nil)
  }

  @Test func `silence says nothing about credentials, except that an old reason is not why`() {
    var credentials = RefusedCredentials()
    let silence = PushOutcome.unknown(reason: "TimedOut")
    credentials.didHear(refused, concernsLane: true, start)
    credentials.didHear(silence, concernsLane: true, start + .seconds(1))
    #expect(reason(credentials, isWell: false) == "InvalidProviderToken all")
    credentials.didHear(silence, concernsLane: true, start + RefusedCredentials.memory)
    #expect(reason(credentials, isWell: false) == nil)
  }

  @Test(arguments: [
    PushOutcome.unauthorized(reason: "BadEnvironmentKeyInToken"), .rejected(reason: "THIRD_PARTY_AUTH_ERROR"),
    .rejected(reason: "InvalidCredentials"), .rejected(reason: "MismatchSenderId"),
  ])
  func `the reason of an environment or a platform concerns some, whatever else is accepted`(outcome: PushOutcome) {
    var credentials = RefusedCredentials()
    credentials.didHear(outcome, concernsLane: false, start)
    credentials.didHear(.accepted(messageID: nil), concernsLane: true, start)
    #expect(reason(credentials) == "\(outcome.failureReason ?? "") some")
    // The circuit is open for another reason.
    #expect(reason(credentials, isWell: false) == "\(outcome.failureReason ?? "") some")
    #expect(reason(credentials, after: RefusedCredentials.memory) == nil)
    credentials.didHear(outcome, concernsLane: false, start)
    credentials.forget()
    #expect(reason(credentials) == nil)
  }

  @Test(arguments: [
    PushOutcome.rejected(reason: "DeviceTokenNotForTopic"), .tokenInvalid(reason: "SENDER_ID_MISMATCH", since: nil),
    .unauthorized(reason: "HTTP403"), .throttled(reason: "TooManyRequests", after: nil, isLaneWide: false),
  ])
  func `what concerns one token says nothing`(outcome: PushOutcome) {
    var credentials = RefusedCredentials()
    credentials.didHear(outcome, concernsLane: false, start)
    #expect(reason(credentials) == nil)
    #expect(reason(credentials, isWell: false) == nil)
  }
}
