// The command line.

/// The requests to send, and their server.
struct Options {
  var port: UInt16 = 0
  var caFile = ""
  var teamID = "TEAM123456"
  var keyID = "KEY7654321"
  var keyFile = ""
  /// The bundle id.
  var topic = "com.example.app"
  var requests = 200_000
  /// Number of devices; each is rung repeatedly.
  var devices = 3_000
  /// In flight on each connection.
  var streams = 1000
  var connections = 1
  /// One payload for all devices, rendered beforehand.
  var hasOnePayload = false
  /// Whether only to print the `authorization` header for other programs.
  var printsToken = false

  init(_ arguments: some Collection<String>) throws(Fault) {
    var rest = Array(arguments)[...]
    while let option = rest.popFirst() {
      switch option {
      case "--port": port = UInt16(clamping: try Self.number(option, &rest))
      case "--ca": caFile = try Self.text(option, &rest)
      case "--team": teamID = try Self.text(option, &rest)
      case "--key-id": keyID = try Self.text(option, &rest)
      case "--key": keyFile = try Self.text(option, &rest)
      case "--topic": topic = try Self.text(option, &rest)
      case "--requests": requests = try Self.number(option, &rest)
      case "--devices": devices = try Self.number(option, &rest)
      case "--streams": streams = try Self.number(option, &rest)
      case "--connections": connections = try Self.number(option, &rest)
      case "--one-payload": hasOnePayload = true
      case "--print-token": printsToken = true
      default: throw Fault("there is no option \(option)")
      }
    }
    guard !keyFile.isEmpty, printsToken || (port > 0 && !caFile.isEmpty) else {
      throw Fault("--port, --ca and --key are needed, or --key and --print-token")
    }
  }

  private static func text(_ option: String, _ rest: inout ArraySlice<String>) throws(Fault) -> String {
    guard let value = rest.popFirst() else { throw Fault("\(option) wants a value") }
    return value
  }

  private static func number(_ option: String, _ rest: inout ArraySlice<String>) throws(Fault) -> Int {
    guard let value = Int(try text(option, &rest)), value > 0 else { throw Fault("\(option) wants a number above 0") }
    return value
  }
}

/// The reason why there is no result.
struct Fault: Error, CustomStringConvertible {
  let description: String
  init(_ description: String) { self.description = description }
}
