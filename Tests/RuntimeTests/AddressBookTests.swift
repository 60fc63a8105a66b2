// Tests of what is remembered of the addresses of a host.

import Testing

@testable import Runtime

@Suite struct AddressBookTests {
  private let book = AddressBook()
  private let now = Instant(nanoseconds: 1_000_000_000_000)

  private func order(_ addresses: [String], after time: Nanoseconds = .zero, interleaves: Bool = true) -> [String] {
    book.order(
      addresses.map { ($0, $0.contains(":")) }, of: "host", now: now + time, interleaves: interleaves
    ).map { addresses[$0] }
  }

  @Test func `address families alternate, starting with the family of the first address`() {
    #expect(order(["::1", "::2", "::3", "1", "2"]) == ["::1", "1", "::2", "2", "::3"])
    #expect(order(["1", "::1", "::2"]) == ["1", "::1", "::2"])
    #expect(order(["1", "2", "1"]) == ["1", "2"])
    #expect(order(["::1", "::2", "1"], interleaves: false) == ["::1", "::2", "1"])
  }

  @Test func `the address that worked is tried first, and those that failed last`() {
    book.didFail("1", of: "host", now: now)
    book.didWork("3", of: "host")
    #expect(order(["1", "2", "3", "4"]) == ["3", "2", "4", "1"])
    #expect(book.order([("1", false), ("2", false)], of: "other", now: now) == [0, 1])
  }

  @Test func `a failure is forgotten after ten minutes, or when the address works`() {
    book.didFail("1", of: "host", now: now)
    #expect(order(["1", "2"], after: .seconds(599)) == ["2", "1"])
    #expect(order(["1", "2"], after: .seconds(601)) == ["1", "2"])
    book.didWork("1", of: "host")
    #expect(order(["1", "2"]) == ["1", "2"])
    book.didFail("1", of: "host", now: now)
    #expect(order(["1", "2"]) == ["2", "1"], "it is not the one that worked any more")
  }

  @Test func `the number of remembered addresses is limited`() {
    book.didWork("2", of: "first")
    for number in 0..<1000 { book.didFail("1", of: "host-\(number)", now: now) }
    #expect(book.order([("1", false), ("2", false)], of: "first", now: now) == [0, 1])
    #expect(book.order([("1", false), ("2", false)], of: "host-999", now: now) == [1, 0])
  }
}
