// The guard of a connection in a channel without a socket: who gives way while a request is under way, and who is shed.

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

  /// - Returns: what the field `Connection` of the answer says.
  private func answer(_ channel: EmbeddedChannel, _ status: HTTPResponse.Status) throws -> String? {
    channel.write(HTTPResponsePart.head(HTTPResponse(status: status)), promise: nil)
    channel.writeAndFlush(HTTPResponsePart.end(nil), promise: nil)
    guard case .head(let head)? = try channel.readOutbound(as: HTTPResponsePart.self) else { return nil }
    return head.headerFields[.connection]
  }

  private func letIn(_ channel: EmbeddedChannel) { HTTPConnectionGuard.LetIn.tell(channel) }

  @Test func `a request that was let in gives way to nobody, one that was not does`() throws {
    let connections = HTTPConnectionCount(max: 2)
    let (backend, stranger) = (try connect(connections), try connect(connections))
    for channel in [backend, stranger] { try ask(channel) }
    letIn(backend)
    let next = try connect(connections)
    #expect(backend.isActive && !stranger.isActive && next.isActive)
    #expect(try answer(backend, .accepted) == nil)
    // Its turn is over; it was answered well, and the next newcomer takes the place of the one before.
    _ = try connect(connections)
    #expect(backend.isActive != next.isActive)
  }

  @Test func `while a listener is crowded, whoever shows no good key has one answer a connection`() throws {
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
