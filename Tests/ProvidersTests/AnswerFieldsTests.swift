// Header lines as libcurl gives them.

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
  func aFieldIsReadHoweverItsNameIsWritten(line: String) {
    #expect(read("HTTP/1.1 429 \r\n", line).retryAfter == "5")
  }

  @Test(arguments: [
    "Retry-After 5\r\n", "retry\rafter: 5\r\n", " retry-after: 5\r\n", "retry-after", "x-retry-after: 5",
  ])
  func otherLinesArePassedOver(line: String) {
    #expect(read(line).retryAfter == nil)
  }

  @Test func theFieldsOfAnInterimAnswerAreNotTheAnswers() {
    let found = read("HTTP/1.1 103 Early Hints\r\n", "retry-after: 5\r\n", "HTTP/1.1 200 OK\r\n", "date: today\r\n")
    #expect(found.retryAfter == nil && found.date == "today")
  }
}
