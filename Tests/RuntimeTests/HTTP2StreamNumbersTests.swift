// Tests of finding slots by stream id after thousands of streams.

import Testing

@testable import Runtime

@Suite struct HTTP2StreamNumbersTests {
  /// Streams 1, 3, 5, …, each with a slot of its own.
  private func numbers(_ count: Int) -> HTTP2StreamNumbers {
    var numbers = HTTP2StreamNumbers()
    for index in 0..<count { _ = numbers.add(index % 500) }
    return numbers
  }

  @Test func `streams after an open one keep their slots`() {
    var numbers = numbers(20_000)
    for index in 1..<20_000 { numbers.remove(Int32(2 * index + 1)) }
    #expect(numbers[1] == .open(0))
    #expect(numbers[3] == .closed && numbers[39_999] == .closed)
    #expect(numbers[40_001] == .idle && numbers[2] == .idle)
    numbers.remove(1)
    #expect(numbers[1] == .closed)
    #expect(numbers.add(9) == 40_001)
    #expect(numbers[40_001] == .open(9) && numbers[39_999] == .closed)
  }

  @Test func `ended streams at the front are removed, and the others keep their slots`() {
    var numbers = numbers(10_000)
    // Beyond the point at which the entries are moved to the front, one by one.
    for gone in 0..<9_000 {
      numbers.remove(Int32(2 * gone + 1))
      guard gone % 250 == 0 || (4_090...5_010).contains(gone) else { continue }
      #expect(numbers[Int32(2 * gone + 1)] == .closed)
      #expect(numbers[Int32(2 * gone + 3)] == .open((gone + 1) % 500))
      #expect(numbers[19_999] == .open(9_999 % 500))
      #expect(numbers[20_001] == .idle)
    }
    #expect(numbers.add(3) == 20_001)
    #expect(numbers[20_001] == .open(3))
  }

  @Test func `there is a last stream id`() {
    var numbers = HTTP2StreamNumbers(firstID: Int32.max - 2)
    #expect(numbers.areLeft)
    #expect(numbers.add(1) == Int32.max - 2)
    #expect(numbers.areLeft)
    #expect(numbers.add(2) == Int32.max)
    #expect(!numbers.areLeft)
    #expect(numbers[Int32.max] == .open(2))
  }
}
