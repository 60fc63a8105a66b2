// A database in a known state for the operators' commands, and the built programs to run them.

import Foundation
import Queue
import TestProcess
import TestSupport
import Testing

/// The result of a program.
struct CommandRun {
  var output: String
  var errors: String
  var status: Int32

  func json() throws -> Any { try JSONSerialization.jsonObject(with: Data(output.utf8)) }
  func object() throws -> [String: Any] { try #require(try json() as? [String: Any]) }
  func array() throws -> [[String: Any]] { try #require(try json() as? [[String: Any]]) }
}

enum OperationsFixture {
  static let fcmToken = "cQ7mZl2pR0uX:APA91bHexample-token"
  static let voipToken = String(repeating: "ab", count: 32)

  private static let laboratory: Set = ["simulate", "loadtest"]

  /// The directory of the built programs, which is that of the tests' bundle.
  private static let folder =
    (Bundle.allBundles.first { $0.bundlePath.hasSuffix(".xctest") }?.bundleURL
    ?? URL(fileURLWithPath: CommandLine.arguments[0]))
    .deletingLastPathComponent()

  /// A database with an app `porteiro` with two lanes, one of which has an open circuit; a replica; and a ringing call
  /// `call-1` of two devices. Both this app and another one have a call `shared`.
  static func with(_ body: (TestDatabase) async throws -> Void) async throws {
    try await TestDatabase.with { database in
      try await database.execute(
        """
        select push.register_app('porteiro', 600, p_providers => '{apns,fcm}'),
          push.register_app('condo', 600, p_providers => '{fcm}');
        select push.register_gateway('pod-1', '1.0.0');
        -- It counts as silent after 5 s, which a test may take.
        update push.gateways set heartbeat_at = now() + interval '1 hour';
        select push.report_lanes((select id from push.gateways), array[id], array[40], array[1000], array[12],
          array['open'], array[5000], array[120]) from push.lane where app = 'porteiro' and provider = 'apns';
        select push.enqueue_call('{"callId": "call-1", "from": "d"}', '[{"userId": "ios", "voipPushToken": "\(voipToken)"},
          {"userId": "android", "fcmToken": "\(fcmToken)"}]', 'porteiro');
        select push.enqueue_call('{"callId": "shared", "from": "d"}', '[{"userId": "u", "fcmToken": "\(fcmToken)"}]', app)
          from push.apps;
        """)
      try await body(database)
    }
  }

  /// Runs push-gateway with these arguments to its end.
  static func runGateway(_ arguments: [String]) async throws -> CommandRun {
    let process = Process()
    process.executableURL = folder.appendingPathComponent("push-gateway")
    process.arguments = arguments
    return try await withCheckedThrowingContinuation { continuation in
      DispatchQueue.global().async { continuation.resume(with: Result { try runAndWait(process) }) }
    }
  }

  /// The program that has this command, not started yet.
  static func process(_ database: String, _ arguments: [String], environment: [String: String] = [:]) -> Process {
    let process = Process()
    let program = laboratory.contains(arguments.first ?? "") ? "push-gateway-lab" : "push-gateway"
    process.executableURL = folder.appendingPathComponent(program)
    process.arguments = arguments
    process.environment = ["DATABASE_URL": database, "TERM": "xterm"].merging(environment) { $1 }
    return process
  }

  /// Runs the program to its end. Waits on a thread of its own.
  static func run(
    _ database: String, _ arguments: [String], environment: [String: String] = [:]
  ) async throws -> CommandRun {
    try await withCheckedThrowingContinuation { continuation in
      DispatchQueue.global().async {
        continuation.resume(with: Result { try runAndWait(process(database, arguments, environment: environment)) })
      }
    }
  }

  private static func runAndWait(_ process: Process) throws -> CommandRun {
    let (output, errors) = (Pipe(), Pipe())
    process.standardOutput = output
    process.standardError = errors
    try process.start()
    // Errors are a few lines, which fit into the pipe's buffer.
    let text = output.fileHandleForReading.readDataToEndOfFile()
    let complaint = errors.fileHandleForReading.readDataToEndOfFile()
    process.waitUntilExit()
    return CommandRun(
      output: String(decoding: text, as: UTF8.self), errors: String(decoding: complaint, as: UTF8.self),
      status: process.terminationStatus)
  }
}
