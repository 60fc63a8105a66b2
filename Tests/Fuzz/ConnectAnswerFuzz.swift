// Answers of a proxy to CONNECT.
//
// Input: the size of the pieces in which the answer arrives, then the answer.

enum ConnectAnswerFuzz {
  private enum End: Equatable {
    case open
    case unfinished
    case fault(ConnectAnswer.Fault)
  }

  static func run(_ input: FuzzInput) {
    var input = input
    let size = Int(input.byte()) + 1
    let bytes = input.rest()
    let end = read(bytes, piece: bytes.count)
    require(end == read(bytes, piece: size), "another end where the answer arrives in pieces of \(size)")
    let expected = byTheBook(bytes)
    require(end == expected, "\(end), and by the book \(expected)")
    if case .fault(let fault) = end {
      require(fault.words(target: "a:1", isLoggedIn: true).utf8.allSatisfy { $0 >= 0x20 }, "words that are no line")
    }
  }

  private static func read(_ bytes: [UInt8], piece: Int) -> End {
    var answer = ConnectAnswer()
    var start = 0
    while start < bytes.count {
      let part = Array(bytes[start..<min(start + piece, bytes.count)])
      do throws(ConnectAnswer.Fault) {
        for byte in part { try answer.receive(byte) }
      } catch {
        return .fault(error)
      }
      start += part.count
    }
    return answer.isOpen ? .open : .unfinished
  }

  /// Reads line by line, without a state between the lines.
  private static func byTheBook(_ bytes: [UInt8]) -> End {
    var rest = bytes.prefix(ConnectAnswer.bytesMax)
    let isCut = rest.count < bytes.count
    func line() -> [UInt8]? {
      guard let end = rest.firstIndex(of: 0x0A) else { return nil }
      var line = Array(rest[rest.startIndex..<end])
      rest = rest[(end + 1)...]
      if line.last == 0x0D { line.removeLast() }
      return line
    }
    while true {
      let begin = Array(rest.prefix(7))
      let version = Array("HTTP/1.".utf8)
      if begin.contains(0x0A) { return .fault(.isNotHTTP) }  // too short for a status
      if !version.starts(with: begin) { return .fault(.isNotHTTP) }
      guard let first = line() else { return isCut ? .fault(.tooLong) : .unfinished }
      guard let status = status(first) else { return .fault(.isNotHTTP) }
      guard 100...299 ~= status, status != 101 else { return .fault(.refused(status: status)) }
      while true {
        guard let field = line() else { return isCut ? .fault(.tooLong) : .unfinished }
        if field.isEmpty { break }
      }
      guard status >= 200 else { continue }
      return rest.isEmpty && !isCut ? .open : .fault(.bytesBehindHead)
    }
  }

  private static func status(_ line: [UInt8]) -> Int? {
    let words = line.split(separator: 0x20, maxSplits: 2, omittingEmptySubsequences: false)
    guard words.count >= 2, words[0].count == 8, words[1].count == 3 else { return nil }
    let digits: (ArraySlice<UInt8>) -> Bool = { $0.allSatisfy { 0x30...0x39 ~= $0 } }
    guard digits(words[0].suffix(1)), digits(words[1]), let status = Int(String(decoding: words[1], as: UTF8.self)),
      100...599 ~= status
    else { return nil }
    return status
  }
}
