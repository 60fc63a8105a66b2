// The fuzzer's entry: one executable for all targets; its name at the start selects the target (Tests/Fuzz/README.md).
//
// scripts/fuzz.sh compiles this as one module with the tested sources, so nothing is imported.

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// The targets. A target returns for every input, and traps if a rule is broken.
enum FuzzTargets {
  static let all: [String: @Sendable (FuzzInput) -> Void] = [
    "http2-session": HTTP2SessionFuzz.run,
    "hpack": HPACKFuzz.run,
    "json": JSONFuzz.run,
    "apns-answer": AnswerFuzz.apns,
    "fcm-answer": AnswerFuzz.fcm,
    "expo-tickets": AnswerFuzz.expoTickets,
    "expo-receipts": AnswerFuzz.expoReceipts,
    "oauth-answer": AnswerFuzz.oauth,
    "http-dates": HTTPDateFuzz.run,
    "answer-fields": AnswerFieldsFuzz.run,
    "connect-answer": ConnectAnswerFuzz.run,
  ]

  nonisolated(unsafe) static var target: (FuzzInput) -> Void = { _ in }
}

/// Ends the run: libFuzzer saves the input.
func fail(_ rule: String) -> Never {
  let line = Array("broken: \(rule)\n".utf8)
  _ = write(2, line, line.count)
  abort()
}

/// Ends the run if a rule is broken.
func require(_ holds: Bool, _ rule: @autoclosure () -> String) {
  if !holds { fail(rule()) }
}

@_cdecl("LLVMFuzzerInitialize")
public func initializeFuzzer(
  _ count: UnsafeMutablePointer<CInt>,
  _ arguments: UnsafeMutablePointer<UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>>
) -> CInt {
  let name = arguments.pointee[0].map { String(cString: $0) } ?? ""
  let word = String(name.split(separator: "/").last ?? "")
  guard let target = FuzzTargets.all[word] else {
    fail("no such target: \(word); there are \(FuzzTargets.all.keys.sorted().joined(separator: " "))")
  }
  FuzzTargets.target = target
  return 0
}

@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ data: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
  FuzzTargets.target(FuzzInput(Array(UnsafeBufferPointer(start: data, count: count))))
  return 0
}
