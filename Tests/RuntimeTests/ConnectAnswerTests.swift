// Tests of a proxy's answers to CONNECT: every kind of answer, whole and byte by byte.

import Testing

@testable import Runtime

@Suite struct ConnectAnswerTests {
  private enum End: Equatable {
    case open
    case unfinished
    case fault(ConnectAnswer.Fault)
  }

  private static func read(_ text: String) -> End {
    var answer = ConnectAnswer()
    return Array(text.utf8).withUnsafeBytes { bytes in
      do throws(ConnectAnswer.Fault) {
        try answer.receive(bytes)
        return answer.isOpen ? .open : .unfinished
      } catch {
        return .fault(error)
      }
    }
  }

  private static func readByBytes(_ text: String) -> End {
    var answer = ConnectAnswer()
    do throws(ConnectAnswer.Fault) {
      for byte in text.utf8 { try answer.receive(byte) }
    } catch {
      return .fault(error)
    }
    return answer.isOpen ? .open : .unfinished
  }

  private static let long = String(repeating: "x", count: ConnectAnswer.bytesMax)

  private static let answers: [(String, End)] = [
    ("HTTP/1.1 200 Connection established\r\n\r\n", .open),
    ("HTTP/1.0 200 Connection established\r\nProxy-agent: tinyproxy/1.11.1\r\n\r\n", .open),
    ("HTTP/1.1 200\r\n\r\n", .open), ("HTTP/1.1 204 \r\n\r\n", .open), ("HTTP/1.1 200 OK\n\n", .open),
    // Header fields about a body do not count (RFC 9110 §9.3.6).
    ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n", .open),
    ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Wait\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", .open),
    ("", .unfinished), ("HTTP/1.1 20", .unfinished), ("HTTP/1.1 200 OK\r\n", .unfinished),
    ("HTTP/1.1 200 OK\r\nVia: x\r\n", .unfinished), ("HTTP/1.1 100 Continue\r\n\r\n", .unfinished),
    ("HTTP/1.1 407 Proxy Authentication Required\r\n", .fault(.refused(status: 407))),
    ("HTTP/1.1 403 Forbidden\r\n\r\n<html>", .fault(.refused(status: 403))),
    ("HTTP/1.1 502 Bad Gateway\r\n", .fault(.refused(status: 502))),
    ("HTTP/1.1 302 Found\r\nLocation: http://portal\r\n\r\n", .fault(.refused(status: 302))),
    ("HTTP/1.1 101 Switching Protocols\r\n\r\n", .fault(.refused(status: 101))),
    ("HTTP/1.1 200 OK\r\n\r\nhello", .fault(.bytesBehindHead)),
    ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", .fault(.bytesBehindHead)),
    ("HTTP/2 200\r\n\r\n", .fault(.isNotHTTP)), ("SSH-2.0-OpenSSH_9", .fault(.isNotHTTP)),
    ("\r\nHTTP/1.1 200 OK\r\n\r\n", .fault(.isNotHTTP)), ("HTTP/1.1  200 OK\r\n", .fault(.isNotHTTP)),
    ("HTTP/1.1 2000 OK\r\n", .fault(.isNotHTTP)), ("HTTP/1.1 20x OK\r\n", .fault(.isNotHTTP)),
    ("HTTP/1.1 099 No\r\n", .fault(.isNotHTTP)), ("HTTP/1.1 600 No\r\n", .fault(.isNotHTTP)),
    ("HTTP/1.1 -20 No\r\n", .fault(.isNotHTTP)), ("HTTP/1.x 200 OK\r\n", .fault(.isNotHTTP)),
    ("HTTP/1.1 200OK\r\n", .fault(.isNotHTTP)), ("\u{15}\u{3}\u{3}", .fault(.isNotHTTP)),
    // Endless: a status line, a field, many fields, many interim answers.
    ("HTTP/1.1 200 " + long, .fault(.tooLong)), ("HTTP/1.1 200 OK\r\nA: " + long, .fault(.tooLong)),
    ("HTTP/1.1 200 OK\r\n" + String(repeating: "A: b\r\n", count: 4000), .fault(.tooLong)),
    (String(repeating: "HTTP/1.1 100 Continue\r\n\r\n", count: 1000), .fault(.tooLong)),
  ]

  @Test(arguments: answers.indices) func `an answer is read the same way whole and byte by byte`(index: Int) {
    let (text, expected) = Self.answers[index]
    #expect(Self.read(text) == expected, "\(text.prefix(60))")
    #expect(Self.readByBytes(text) == expected, "\(text.prefix(60))")
  }

  @Test func `an answer of the maximum size is accepted`() {
    let head = "HTTP/1.1 200 OK\r\nA: "
    let filler = String(repeating: "x", count: ConnectAnswer.bytesMax - head.utf8.count - 4)
    #expect(Self.read(head + filler + "\r\n\r\n") == .open)
    #expect(Self.read(head + filler + "x\r\n\r\n") == .fault(.tooLong))
  }

  @Test func `every fault says what to do, and names the host`() {
    let faults: [ConnectAnswer.Fault] = [
      .refused(status: 407), .refused(status: 401), .refused(status: 403), .refused(status: 405), .refused(status: 502),
      .isNotHTTP, .tooLong,
      .bytesBehindHead, .closed, .silent(seconds: 4), .targetNotASCII,
    ]
    let words = faults.flatMap { fault in
      [true, false].map { fault.words(target: "push.example:443", isLoggedIn: $0) }
    }
    #expect(Set(words).count == faults.count + 2)
    #expect(words[0] == "answers 407 to our user and password: check proxy.credentials_file")
    #expect(words[1] == "answers 407, it asks for a user and password: set proxy.credentials_file")
    #expect(words[4] == "answers 403: let it allow CONNECT to push.example:443")
  }
}
