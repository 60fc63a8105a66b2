// The connection guard in a channel without a socket: which connections are evicted during a request, and which are
// closed after it.

import HTTPTypes
import NIOCore
import NIOEmbedded
import NIOHTTPTypes
import Runtime
import Testing

@testable import HTTPSurface

struct HTTPConnectionGuardTests {
  private static let limits = HTTPConnectionGuard.Limits(bodyMaxBytes: 100, request: .seconds(10))

  private func connect(_ connections: HTTPConnectionCount) throws -> EmbeddedChannel {
    let channel = EmbeddedChannel()
    try channel.pipeline.syncOperations.addHandler(HTTPConnectionGuard(limits: Self.limits, connections: connections))
    try channel.connect(to: SocketAddress(ipAddress: "192.0.2.1", port: 1)).wait()
    return channel
  }

  private func ask(_ channel: EmbeddedChannel) throws {
    let head = HTTPRequest(method: .post, scheme: nil, authority: "api", path: "/v1/calls")
    try channel.writeInbound(HTTPRequestPart.head(head))
    try channel.writeInbound(HTTPRequestPart.end(nil))
  }

  /// - Returns: the value of `Connection` in the answer.
  private func answer(_ channel: EmbeddedChannel, _ status: HTTPResponse.Status) throws -> String? {
    channel.write(HTTPResponsePart.head(HTTPResponse(status: status)), promise: nil)
    channel.writeAndFlush(HTTPResponsePart.end(nil), promise: nil)
    guard case .head(let head)? = try channel.readOutbound(as: HTTPResponsePart.self) else { return nil }
    return head.headerFields[.connection]
  }

  private func letIn(_ channel: EmbeddedChannel) { HTTPConnectionGuard.LetIn.tell(channel) }

  @Test func `a connection whose request was let in is not evicted, and another is`() throws {
    let connections = HTTPConnectionCount(max: 2)
    let (backend, stranger) = (try connect(connections), try connect(connections))
    for channel in [backend, stranger] { try ask(channel) }
    letIn(backend)
    let next = try connect(connections)
    #expect(backend.isActive && !stranger.isActive && next.isActive)
    #expect(try answer(backend, .accepted) == nil)
    // The request was answered, so the next connection evicts one of the two.
    _ = try connect(connections)
    #expect(backend.isActive != next.isActive)
  }

  @Test func `a refusal has the form of the path that it refuses, and of no other`() throws {
    let channel = EmbeddedChannel()
    try channel.pipeline.syncOperations.addHandler(
      HTTPConnectionGuard(
        limits: Self.limits, connections: HTTPConnectionCount(max: 3),
        operationAtPath: { APIFronts.operation(at: $0) }))
    try channel.connect(to: SocketAddress(ipAddress: "192.0.2.1", port: 1)).wait()
    let path = "/_matrix/push/v1/notify?x=1"
    // The refused request waits for the answer to the first one, whose path has another form.
    try ask(channel)
    try channel.writeInbound(
      HTTPRequestPart.head(
        HTTPRequest(
          method: .post, scheme: nil, authority: "api", path: path, headerFields: [.contentLength: "101"])))
    #expect(try answer(channel, .accepted) == nil)
    var types: [String?] = []
    while let part = try channel.readOutbound(as: HTTPResponsePart.self) {
      if case .head(let head) = part { types.append(head.headerFields[.contentType]) }
    }
    #expect(types == ["application/json"])
  }

  @Test func `while a listener is crowded, a connection without a good key is closed after one answer`() throws {
    let connections = HTTPConnectionCount(max: 3)
    let channels = try (0..<3).map { _ in try connect(connections) }
    for (channel, status) in zip(channels, [HTTPResponse.Status.unauthorized, .ok]) {
      try ask(channel)
      #expect(try answer(channel, status) == nil && channel.isActive)
    }
    _ = try connect(connections)
    let (probe, backend) = (try connect(connections), try connect(connections))
    for (channel, status) in [(probe, HTTPResponse.Status.ok), (backend, .accepted)] {
      try ask(channel)
      if channel === backend { letIn(channel) }
      #expect(try answer(channel, status) == (channel === backend ? nil : "close"))
      #expect(channel.isActive == (channel === backend))
    }
  }
}
