// Tests of the numbers of claims: which are answered, and which are to be forgotten.

import Queue
import Runtime
import Testing

@testable import Dispatching

private let start = MachineRig.start

@Suite("Claim ledger") struct ClaimLedgerTests {
  @Test("the answered number grows with answers, not with claims sent")
  func answered() {
    var ledger = ClaimLedger(retryInterval: .seconds(1))
    #expect(ledger.next() == 1)
    #expect(ledger.answered == 0)
    #expect(!ledger.isClear)
    #expect(ledger.didAnswer(1) == true)
    #expect(ledger.answered == 1)
    #expect(ledger.didAnswer(1) == false, "an answer comes once")
    #expect(ledger.next() == 2)
    #expect(ledger.didFail(2, .answerLost) == true)
    #expect(ledger.answered == 1)
    #expect(ledger.isQuiet)
    #expect(ledger.forget(start) == 2)
    #expect(!ledger.isQuiet)
    #expect(ledger.forget(start) == nil)
    ledger.didFailToForget(2, start)
    #expect(ledger.forget(start) == nil)
    #expect(ledger.forget(start + .seconds(1)) == 2)
    #expect(ledger.didForget(2) == true)
    #expect(ledger.answered == 2)
    #expect(ledger.next() == 3)
  }

  @Test("another gateway id continues the numbers, so that each lease is unique")
  func anotherGateway() {
    var ledger = ClaimLedger(retryInterval: .seconds(1))
    _ = ledger.next()
    _ = ledger.didFail(1, .answerLost)
    ledger.changeGateway()
    #expect(ledger.isClear)
    #expect(ledger.next() == 2)
  }
}
