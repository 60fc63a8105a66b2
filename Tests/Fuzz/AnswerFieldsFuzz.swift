// The parts of an answer besides its body: header lines as libcurl passes them on, and the debug data of GOAWAY.
//
// Input: lines.

enum AnswerFieldsFuzz {
  static func run(_ input: FuzzInput) {
    checkWord(input.bytes)
    var input = input
    var fields = AnswerFields()
    var expected: (retryAfter: [UInt8]?, date: [UInt8]?)
    while !input.isAtEnd {
      let line = input.line() + [0x0D, 0x0A]
      let copy = UnsafeMutableRawBufferPointer.allocate(byteCount: line.count, alignment: 1)
      defer { copy.deallocate() }
      copy.copyBytes(from: line)
      fields.read(UnsafeRawBufferPointer(copy))
      if line.starts(with: "HTTP/".utf8) {
        expected = (nil, nil)
      } else if let colon = line.firstIndex(of: UInt8(ascii: ":")) {
        let name = line[..<colon].map { 0x41...0x5A ~= $0 ? $0 + 0x20 : $0 }
        let isSpace: (UInt8) -> Bool = { [0x20, 0x09, 0x0D, 0x0A].contains($0) }
        var value = Array(line[(colon + 1)...].drop(while: isSpace))
        while let last = value.last, isSpace(last) { value.removeLast() }
        if name.elementsEqual("retry-after".utf8) { expected.retryAfter = value }
        if name.elementsEqual("date".utf8) { expected.date = value }
      }
    }
    require(fields.retryAfter == expected.retryAfter, "another Retry-After than there stands")
    require(fields.date == expected.date, "another Date than there stands")
  }

  private static func checkWord(_ debugData: [UInt8]) {
    let word = HTTP2GoAwayWord.word(debugData)
    require(word.utf8.count <= 42, "debug data of \(word.utf8.count) bytes goes into the log")
    require(
      word.utf8.allSatisfy { 0x61...0x7A ~= $0 || 0x41...0x5A ~= $0 || "_ :()".utf8.contains($0) },
      "debug data that is no word goes into the log")
  }
}
