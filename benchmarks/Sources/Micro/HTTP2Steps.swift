// The encoding of a request's header, and a request and its answer through two HTTP/2 sessions.

import Runtime

enum HTTP2Steps {
  static var all: [Step] {
    [Step(name: "http2.head", run: heads), Step(name: "http2.exchange", run: Exchanges().run)]
  }

  private static let token = [UInt8](repeating: UInt8(ascii: "a"), count: 64)
  private static let bearer = [UInt8](repeating: UInt8(ascii: "b"), count: 200)
  private static let id = Array("01234567-89ab-cdef-fedc-ba9876543210".utf8)

  private static let shared: HTTP2SharedFields = [
    ":method": "POST", ":scheme": "https", ":authority": "api.push.apple.com", "apns-topic": "com.example.app.voip",
    "apns-push-type": "voip", "apns-priority": "10", "apns-expiration": "0",
  ]
  private static let idName = HTTP2FieldName("apns-id")

  private static func fill(_ head: inout HTTP2RequestHead) {
    head.begin(with: shared)
    head.add(.path, token)
    head.add(.authorization, bearer)
    head.add(idName, id)
  }

  private static func heads(_ count: Int) {
    var head = HTTP2RequestHead()
    for _ in 0..<count {
      fill(&head)
      keep(head)
    }
  }

  /// A client's and a server's session connected in memory; a hundred requests at a time.
  private final class Exchanges {
    private var client = HTTP2ClientSession()
    private let server: HTTP2ServerSession
    private var head = HTTP2RequestHead()
    private var answer = HTTP2HeaderBlock()
    private let body = [UInt8](repeating: UInt8(ascii: "x"), count: 400)
    private var wire: [UInt8] = []
    private var events: [HTTP2Event] = []
    private var requests: [HTTP2Request] = []

    init() {
      var settings = HTTP2SessionSettings()
      settings.streamsMax = 1000
      server = HTTP2ServerSession(settings: settings)
      answer.add(":status", "200")
      answer.add("apns-id", HTTP2Steps.id, isIndexed: false)
      for _ in 0..<3 { pass() }  // SETTINGS and their acknowledgements
    }

    func run(_ count: Int) {
      var left = count
      while left > 0 {
        let batch = min(left, 100)
        for tag in 0..<batch {
          HTTP2Steps.fill(&head)
          guard (try? client.request(head, body: body, tag: tag)) != nil else { preconditionFailure("no stream left") }
        }
        pass()
        left -= batch
      }
    }

    /// From the client to the server, and the answers back.
    private func pass() {
      wire.removeAll(keepingCapacity: true)
      client.openWaiting()
      client.drainOutput(into: &wire)
      client.departures.removeAll(keepingCapacity: true)
      guard wire.withUnsafeBytes({ (try? server.receive($0)) != nil }) else {
        preconditionFailure("the server does not understand the client")
      }
      server.drainRequests(into: &requests)
      for request in requests { server.respond(to: request.stream, answer) }
      wire.removeAll(keepingCapacity: true)
      guard (try? server.send(into: &wire, upTo: .max)) != nil,
        wire.withUnsafeBytes({ (try? client.receive($0)) != nil })
      else { preconditionFailure("the client does not understand the server") }
      client.drainEvents(into: &events)
      for event in events {
        if case .ended(_, _, let response?) = event { client.recycle(response) }
      }
    }
  }
}
