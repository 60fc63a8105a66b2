// The head of a request, and the way of a request and its answer through two HTTP/2 sessions.

import Runtime

enum HTTP2Steps {
  static var all: [Step] {
    [Step(name: "http2.head", run: heads), Step(name: "http2.exchange", run: Exchanges().run)]
  }

  private static let token = [UInt8](repeating: UInt8(ascii: "a"), count: 64)
  private static let bearer = [UInt8](repeating: UInt8(ascii: "b"), count: 200)
  private static let id = Array("01234567-89ab-cdef-fedc-ba9876543210".utf8)

  /// What an APNs request has, with what never changes in it.
  private static let template: HTTP2HeaderBlock = {
    var head = HTTP2HeaderBlock()
    head.add(":method", "POST")
    head.add(":scheme", "https")
    head.add(":path", "", isIndexed: false)
    head.add(":authority", "api.push.apple.com")
    head.add("authorization", "", isIndexed: false)
    head.add("apns-topic", "com.example.app.voip")
    head.add("apns-push-type", "voip")
    head.add("apns-priority", "10")
    head.add("apns-expiration", "0", isIndexed: false)
    head.add("apns-id", "", isIndexed: false)
    return head
  }()

  private static func fill(_ head: inout HTTP2HeaderBlock) {
    head.fill(from: template)
    head.replace(2) { $0.append(contentsOf: token) }
    head.replace(4, bearer)
    head.replace(9, id)
  }

  private static func heads(_ count: Int) {
    var head = HTTP2HeaderBlock()
    for _ in 0..<count {
      fill(&head)
      keep(head)
    }
  }

  /// A client's and a server's session with only memory between them; a hundred requests at a time.
  private final class Exchanges {
    private let client = HTTP2Session(.client)
    private let server: HTTP2Session
    private var head = HTTP2HeaderBlock()
    private var answer = HTTP2HeaderBlock()
    private let body = [UInt8](repeating: UInt8(ascii: "x"), count: 400)
    private var wire: [UInt8] = []
    private var events: [HTTP2Event] = []

    init() {
      var settings = HTTP2SessionSettings()
      settings.streamsMax = 1000
      server = HTTP2Session(.server, settings: settings)
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
      move(from: client, to: server)
      server.takeEvents(into: &events)
      for case .request(let stream, _) in events { server.respond(to: stream, answer) }
      move(from: server, to: client)
      client.takeEvents(into: &events)
      for event in events {
        if case .streamClosed(_, _, _, let response?) = event { client.recycle(response) }
      }
    }

    private func move(from sender: HTTP2Session, to receiver: HTTP2Session) {
      wire.removeAll(keepingCapacity: true)
      guard (try? sender.send(into: &wire, upTo: .max)) != nil,
        wire.withUnsafeBytes({ (try? receiver.receive($0)) != nil })
      else { preconditionFailure("the sessions do not understand each other") }
    }
  }
}
