// Tests of header lines as libcurl passes them on.

import Testing

@testable import Providers

@Suite struct AnswerFieldsTests {
  private func read(_ lines: String...) -> (retryAfter: String?, date: String?) {
    var fields = AnswerFields()
    for line in lines { Array(line.utf8).withUnsafeBytes { fields.read($0) } }
    return (
      fields.retryAfter.map { String(decoding: $0, as: UTF8.self) },
      fields.date.map { String(decoding: $0, as: UTF8.self) }
    )
  }

  @Test(arguments: ["Retry-After: 5\r\n", "retry-after:5\r\n", "RETRY-AFTER:\t5 \r\n", "rEtry-aFter: 5"])
  func `the case of a field's name does not matter`(line: String) {
    #expect(read("HTTP/1.1 429 \r\n", line).retryAfter == "5")
  }

  @Test(arguments: [
    "Retry-After 5\r\n", "retry\rafter: 5\r\n", " retry-after: 5\r\n", "retry-after", "x-retry-after: 5",
  ])
  func `other lines are ignored`(line: String) {
    #expect(read(line).retryAfter == nil)
  }

  @Test func `the fields of an interim answer are not part of the final answer`() {
    let found = read("HTTP/1.1 103 Early Hints\r\n", "retry-after: 5\r\n", "HTTP/1.1 200 OK\r\n", "date: today\r\n")
    #expect(found.retryAfter == nil && found.date == "today")
  }
}
