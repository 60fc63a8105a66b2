// The ways in: SQL, and the HTTP API.

import Console
import Foundation
import Providers
import Queue
import Runtime

/// What became of an attempt to enqueue a call.
enum LoadAnswer: Equatable, Sendable {
  /// The call is committed. `text` is the answer as it is counted.
  case accepted(outboxID: Int64, deliveries: Int, text: String)
  /// The call was refused. Further calls may be accepted.
  case refused(String)
  /// There is no answer, as it is counted, and why, for people. Whether the call was committed is not known.
  case unanswered(String, reason: String)
  /// No further call would be accepted. For people.
  case failed(String)
}

/// A way to enqueue a call.
protocol LoadSender: Sendable {
  func enqueue(_ call: LoadCall) async -> LoadAnswer
}

/// HTTP requests of a load test, on a loop of their own. The owner must call `close()`.
actor LoadHTTP {
  nonisolated let loop: EventLoop
  nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

  private let configuration: CurlConfiguration
  private var client: CurlClient?

  /// - Parameters:
  ///   - caFile: a PEM file of authorities trusted in addition to the system's.
  ///   - timeout: of a request, with its wait for a connection.
  init(caFile: String?, connections: Int, timeout: Nanoseconds) {
    loop = EventLoop(name: "loadtest.http")
    var configuration = CurlConfiguration(caFile: caFile)
    configuration.connectionsPerHostMax = connections
    configuration.totalTimeout = timeout
    configuration.responseSizeMax = 4 << 20
    self.configuration = configuration
  }

  func send(_ request: CurlRequest) async -> Result<CurlResponse, CurlFailure> {
    let client = client ?? CurlClient(loop: loop, configuration: configuration)
    self.client = client
    return await client.perform(request)
  }

  func close() {
    client?.close()
    client = nil
  }
}

/// `POST /v1/calls`.
struct LoadAPI: LoadSender {
  /// The number in the key: `pgk_17_…`; nil if it has none.
  let keyID: Int32?
  /// Without the slash at the end.
  private let url: String
  private let headers: [(name: String, value: String)]
  private let http: LoadHTTP

  /// - Parameters:
  ///   - url: of the API, such as `http://127.0.0.1:8081`.
  ///   - key: the API key of the app of the calls.
  init(url: String, key: String, http: LoadHTTP) {
    self.url = url.hasSuffix("/") ? String(url.dropLast()) : url
    let parts = key.split(separator: "_", maxSplits: 2)
    keyID = parts.count == 3 ? Int32(parts[1]) : nil
    headers = [("authorization", "Bearer \(key)"), ("content-type", "application/json")]
    self.http = http
  }

  func enqueue(_ call: LoadCall) async -> LoadAnswer {
    let request = CurlRequest(url: "\(url)/v1/calls", headers: headers, body: Self.body(call))
    return switch await http.send(request) {
    case .success(let response): Self.answer(response, isGenerated: !call.devices.isEmpty)
    case .failure(let failure) where failure.reason == .addressNotAllowed:
      .failed("--url: must be https://…, or http://… on this machine")
    case .failure(let failure) where failure.reason == .untrusted:
      .failed("--url: the certificate is not trusted: give the certificate of its authority with --ca-file")
    case .failure(let failure): .unanswered("no answer (\(failure.reason.rawValue))", reason: "\(failure)")
    }
  }

  /// - Parameter isGenerated: whether all calls of the load have the same form, so that what is wrong with one is wrong with all.
  static func answer(_ response: CurlResponse, isGenerated: Bool) -> LoadAnswer {
    switch response.status {
    case 202:
      let json = JSONScanner(trusting: response.body)
      guard let id = json.member("outboxId").flatMap(json.integer),
        let deliveries = json.member("deliveries").flatMap(json.integer)
      else { return .failed("--url: the answer 202 is not that of push-gateway's API") }
      return .accepted(outboxID: id, deliveries: Int(deliveries), text: "202")
    case 401, 403:
      return .failed(
        "the API refuses the key with \(response.status): "
          + (detail(response.body) ?? "it needs a valid key with the scope enqueue"))
    case let status where isGenerated && [400, 413, 415, 422].contains(status):
      return .failed("the API refuses the calls with \(status)" + (detail(response.body).map { ": \($0)" } ?? ""))
    case 404, 405:
      return .failed("--url: the answer to POST /v1/calls is \(response.status): this is not push-gateway's API")
    default: return .refused("\(response.status)")
    }
  }

  /// What the API says is wrong, which quotes neither keys nor tokens; nil if it says nothing.
  private static func detail(_ body: [UInt8]) -> String? {
    guard let json = try? JSONScanner(body), json.root.kind == .object,
      let text = json.member("detail").flatMap(json.text)
    else { return nil }
    let field = json.member("field").flatMap(json.text).map { "\($0): " } ?? ""
    return Terminal.printable(String("\(field)\(text)".prefix(200)))
  }

  private static func body(_ call: LoadCall) -> [UInt8] {
    var writer = JSONWriter(reservingCapacity: 1_024)
    writer.beginObject()
    writer.key("payload")
    writer.raw(call.payload)
    writer.key("recipients")
    writer.raw(call.recipients)
    writer.key("kind")
    writer.string(call.kind.rawValue)
    writer.key("ringSeconds")
    writer.integer(Int64(call.ringSeconds))
    writer.endObject()
    return writer.bytes
  }
}
