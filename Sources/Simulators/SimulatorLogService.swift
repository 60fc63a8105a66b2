// Serves the log of accepted pushes to a load test on another machine.

internal import Runtime

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// Read-only access to the log file: `GET /log?offset=N` answers with the bytes from N on, at most `pieceSizeMax` of them and none at the
/// end; `GET /log/size` with the size of the file in decimal digits.
struct SimulatorLogService: SimulatedService {
  static let pieceSizeMax = 1 << 20

  let path: String

  mutating func respond(
    to request: SimulatedRequest, on connection: inout ConnectionMemory, at now: Int64, journal: inout SimulatorJournal
  ) -> SimulatedAnswer {
    guard request.method.equals("GET") else { return SimulatedAnswer(status: 405) }
    let descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { return SimulatedAnswer(status: 404) }
    let file = FileDescriptor(owning: descriptor)
    if request.path.equals("/log/size") {
      return SimulatedAnswer(status: 200, body: Array(String(lseek(file.rawValue, 0, SEEK_END)).utf8))
    }
    guard request.path.equals("/log") else { return SimulatedAnswer(status: 404) }
    guard let offset = Self.offset(in: request.headers[":path"] ?? []) else { return SimulatedAnswer(status: 400) }
    var piece = [UInt8](repeating: 0, count: Self.pieceSizeMax)
    let count = unsafe pread(file.rawValue, &piece, piece.count, off_t(offset))
    guard count >= 0 else { return SimulatedAnswer(status: 500) }
    return SimulatedAnswer(status: 200, body: Array(piece[..<count]))
  }

  mutating func setFaults(_ plan: FaultPlan) {}

  private static func offset(in path: ArraySlice<UInt8>) -> Int64? {
    let query = path.drop { $0 != UInt8(ascii: "?") }
    guard query.hasPrefix("?offset=") else { return nil }
    return query.dropFirst("?offset=".utf8.count).decimal
  }
}
