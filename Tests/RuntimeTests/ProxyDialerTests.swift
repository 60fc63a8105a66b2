// Tests of TLS connections through a proxy: through tinyproxy, and through hostile proxies.

import HTTP2TestSupport
import Synchronization
import TestTime
import Testing

@testable import Runtime

@Suite(.timeLimit(.minutes(10))) struct ProxyDialerTests {
  /// Resolves only the proxy's name, and records the names requested.
  private final class Names: Sendable {
    let asked = Mutex<[String]>([])
    private let addresses: [String]

    init(_ addresses: [String] = ["127.0.0.1"]) { self.addresses = addresses }

    var resolver: NameResolver {
      NameResolver { [self] name in
        asked.withLock { $0.append(name) }
        guard name == "proxy.test" else {
          return .failure(SocketAddress.ResolutionError(description: "\(name) was looked up"))
        }
        return .success(addresses.map { SocketAddress(numericHost: $0, port: 0)! })
      }
    }
  }

  /// - Returns: nil if the connection succeeded.
  private static func dial(
    _ port: UInt16, at host: String = "localhost", through proxy: HTTPProxy, trusting tls: TLSContext? = nil,
    names: Names = Names(), book: AddressBook = AddressBook(), timeout: Nanoseconds = .seconds(30)
  ) async throws -> TLSError? {
    final class Keeper { var dialer: AddressDialer? }
    let context = try tls ?? TestCertificates.shared.client()
    let loop = EventLoop.paced("dialer-test")
    defer { loop.stop() }
    var settings = AddressRace.Settings()
    settings.attemptTimeout = timeout
    let times = settings
    return await withCheckedContinuation { continuation in
      loop.execute {
        let keeper = Keeper()
        keeper.dialer = AddressDialer(
          host: host, port: port, context: context, proxy: proxy, settings: times, loop: loop, resolver: names.resolver,
          book: book
        ) { result in
          keeper.dialer = nil
          switch result {
          case .success(let dialed):
            if case .tls(let stream) = dialed.link { stream.close() }
            continuation.resume(returning: nil)
          case .failure(let error): continuation.resume(returning: error)
          }
        }
        keeper.dialer?.start()
      }
    }
  }

  private static func credentials(_ text: String) -> ProxyCredentials { ProxyCredentials(Array(text.utf8)[...])! }

  @Test(arguments: [nil, "gate way:word"])
  func `the proxy looks the server's name up, and we the proxy's`(login: String?) async throws {
    let server = try HTTP2TestServer { $0.respond(200) }
    let relay = try TinyProxy(login: login.map { _ in "gateway word" })
    let proxy = HTTPProxy(
      host: "proxy.test", port: relay.port, credentials: login.map { _ in Self.credentials("gateway:word") })
    let names = Names()
    #expect(try await Self.dial(server.port, through: proxy, names: names) == nil)
    #expect(names.asked.withLock { $0 } == ["proxy.test"])
    #expect(relay.targets == ["localhost:\(server.port)"])
    #expect(await server.perform { $0.connectionCount } == 1)
  }

  @Test(arguments: [
    (nil, "answers 407, it asks for a user and password: set proxy.credentials_file"),
    ("gateway:other", "check proxy.credentials_file"),
  ])
  func `a refused login is reported as such`(login: String?, words: String) async throws {
    let server = try HTTP2TestServer { $0.respond(200) }
    let relay = try TinyProxy(login: "gateway word")
    let proxy = HTTPProxy(host: "proxy.test", port: relay.port, credentials: login.map(Self.credentials))
    let error = try #require(try await Self.dial(server.port, through: proxy))
    // tinyproxy answers a wrong password with 401 rather than 407.
    #expect(error.code == .proxy)
    #expect(error.description.hasPrefix("the proxy proxy.test:\(relay.port) (127.0.0.1:\(relay.port)) answers 40"))
    #expect(error.description.hasSuffix(words), "\(error)")
    #expect(!error.description.contains("other"))
    #expect(await server.perform { $0.connectionCount } == 0)
  }

  @Test func `the certificate is verified for the server's name, not the proxy's`() async throws {
    let server = try HTTP2TestServer { $0.respond(200) }
    let relay = try TinyProxy()
    let proxy = HTTPProxy(host: "proxy.test", port: relay.port)
    let error = try await Self.dial(server.port, through: proxy, trusting: TestCertificates.stranger.client())
    #expect(error?.code == .verification)
    #expect(error?.description.hasSuffix(", through the proxy proxy.test:\(relay.port)") == true)
    let ipv4 = try await Self.dial(server.port, at: "127.0.0.2", through: proxy)
    #expect(ipv4 != nil, "the certificate is not for this address")
  }

  @Test func `the proxy's addresses are raced, and the result is stored under its name`() async throws {
    let server = try HTTP2TestServer { $0.respond(200) }
    let relay = try TinyProxy()
    let proxy = HTTPProxy(host: "proxy.test", port: relay.port)
    let book = AddressBook()
    // The first address has no listener.
    let names = Names(["127.0.0.3", "127.0.0.1"])
    #expect(try await Self.dial(server.port, through: proxy, names: names, book: book) == nil)
    #expect(book.hasWorked("127.0.0.1:\(relay.port)", of: "proxy.test:\(relay.port)"))
    let addresses = [("127.0.0.3:\(relay.port)", false), ("127.0.0.1:\(relay.port)", false)]
    #expect(book.order(addresses, of: "proxy.test:\(relay.port)", now: SystemClock().now()) == [1, 0])
  }

  private static let hostile: [(answer: String, ending: HostileProxy.Ending, words: String)] = [
    ("HTTP/1.1 403 Forbidden\r\n\r\n", .silence, "answers 403: let it allow CONNECT to localhost:"),
    ("HTTP/1.1 407 Login\r\n", .endless(Array("A: b\r\n".utf8)), "set proxy.credentials_file"),
    ("HTTP/1.1 502 Bad Gateway\r\n", .silence, "answers 502: it has no connection to localhost:"),
    ("HTTP/1.1 302 Found\r\nLocation: http://portal/\r\n\r\n", .silence, "answers 302 to CONNECT: check"),
    ("HTTP/1.1 200 OK\r\n", .endless(Array("X-Field: value\r\n".utf8)), "with more than 16384 bytes"),
    ("HTTP/1.1 200 OK\r\nA: ", .endless(Array("aaaaaaaa".utf8)), "with more than 16384 bytes"),
    ("", .endless(Array("HTTP/1.1 100 Continue\r\n\r\n".utf8)), "with more than 16384 bytes"),
    ("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>", .silence, "sends bytes of its own behind its answer"),
    ("HTTP/1.1 200 OK\r\nVia: x\r\n", .close, "closed the connection before it had answered CONNECT"),
    ("", .close, "closed the connection before it had answered CONNECT"),
    ("SSH-2.0-OpenSSH_9.2\r\n", .silence, "does not answer in HTTP/1"),
    ("HTTP/1.1 200 OK\r\n\r\n", .close, "TLS handshake with localhost failed"),
  ]

  @Test(arguments: hostile.indices) func `a broken answer ends the attempt, and the error describes it`(index: Int)
    async throws
  {
    let (answer, ending, words) = Self.hostile[index]
    let server = try HTTP2TestServer { $0.respond(200) }
    let relay = try HostileProxy(answer, then: ending)
    let proxy = HTTPProxy(host: "proxy.test", port: relay.port)
    let error = try #require(try await Self.dial(server.port, through: proxy))
    #expect(error.description.contains(words), "\(error)")
    #expect(error.description.contains("the proxy proxy.test:\(relay.port)"))
    #expect(await relay.received().count == 1)
    #expect(await server.perform { $0.connectionCount } == 0)
  }

  @Test(arguments: ["", "HTTP/1.1 200 OK\r\nA: b\r\n"])
  func `silence counts into the time of a connection`(answer: String) async throws {
    let relay = try HostileProxy(answer)
    let proxy = HTTPProxy(host: "proxy.test", port: relay.port)
    let error = try await Self.dial(443, through: proxy, timeout: .milliseconds(1_500))
    #expect(error?.description.hasSuffix("did not answer CONNECT within 1.5 s") == true, "\(String(describing: error))")
  }

  @Test func `silence after a positive answer is a handshake timeout`() async throws {
    let relay = try HostileProxy("HTTP/1.1 200 OK\r\n\r\n")
    let proxy = HTTPProxy(host: "proxy.test", port: relay.port)
    let error = try await Self.dial(443, through: proxy, timeout: .milliseconds(1_500))
    #expect(error?.description.hasSuffix("no TLS connection within 1.5 s") == true, "\(String(describing: error))")
  }

  @Test func `a login that is refused is not tried at the proxy's other addresses`() async throws {
    let relay = try HostileProxy("HTTP/1.1 407 Login\r\n\r\n")
    let proxy = HTTPProxy(host: "proxy.test", port: relay.port)
    let error = try await Self.dial(443, through: proxy, names: Names(["127.0.0.1", "127.0.0.4"]))
    // The last error would be that of the other address.
    #expect(error?.description.contains("answers 407") == true, "\(String(describing: error))")
  }

  @Test func `a name with a line break is refused`() async throws {
    let relay = try HostileProxy("HTTP/1.1 200 OK\r\n\r\n")
    let proxy = HTTPProxy(host: "proxy.test", port: relay.port)
    let error = try await Self.dial(443, at: "a\r\nX: y", through: proxy)
    #expect(error?.description.contains("ASCII") == true)
    #expect(await relay.received() == [])
  }

  @Test func `the error for an unknown proxy name names the proxy`() async throws {
    let error = try await Self.dial(443, through: HTTPProxy(host: "other.test", port: 1))
    #expect(error?.code == .name)
    #expect(error?.description == "the proxy: other.test was looked up")
  }
}
