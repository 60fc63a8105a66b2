// Tests of the keepalive options of sockets.

import Foundation
import Runtime
import Testing

@Suite(.timeLimit(.minutes(10))) struct TCPKeepaliveTests {
  @Test func `a connecting socket is probed after 15 s of silence, and closed after about 20 s`() throws {
    let loop = EventLoop(name: "keepalive-test")
    defer { loop.stop() }
    let address = try #require(SocketAddress(numericHost: "127.0.0.1", port: 0))
    let listener = try TCPListener(on: address, loop: loop)
    let target = try #require(SocketAddress(numericHost: "127.0.0.1", port: listener.port))
    let socket = try TCPSocket.connect(to: target, keepalive: TCPKeepalive())
    func option(_ level: Int32, _ name: Int32) -> Int32 {
      var value: Int32 = -1
      var length = socklen_t(MemoryLayout<Int32>.size)
      getsockopt(socket.rawValue, level, name, &value, &length)
      return value
    }
    #expect(option(SOL_SOCKET, SO_KEEPALIVE) != 0)
    let tcp = Int32(IPPROTO_TCP)
    #expect(option(tcp, TCP_KEEPINTVL) == 2)
    #expect(option(tcp, TCP_KEEPCNT) == 3)
    #if os(Linux)
    #expect(option(tcp, TCP_KEEPIDLE) == 15)
    #expect(option(tcp, TCP_USER_TIMEOUT) == 20_000)
    #endif
  }
}
