// Tests of a proxy's user and password: the file, and the header of a request.

import Foundation
import HTTP2TestSupport
import Testing

@testable import Runtime

@Suite struct ProxyCredentialsTests {
  private static func load(_ text: String) throws -> ProxyCredentials {
    let file = FileManager.default.temporaryDirectory.appending(path: "proxy-credentials-\(UUID())").path()
    defer { try? FileManager.default.removeItem(atPath: file) }
    try SecretFixture.write(text, to: file)
    return try ProxyCredentials.load(file: file)
  }

  // RFC 7617 §2 and §2.1.
  @Test(arguments: [
    ("Aladdin:open sesame", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), ("test:123£\n", "Basic dGVzdDoxMjPCow=="),
    ("user:pass:word\r\n", "Basic dXNlcjpwYXNzOndvcmQ="), ("user:", "Basic dXNlcjo="),
    ("a:??>>~~", "Basic YTo/Pz4+fn4="),
  ])
  func `a line becomes the header of Basic`(line: String, header: String) throws {
    #expect(try Self.load(line).authorization == header)
  }

  @Test(arguments: [
    "", "\n", "secret", ":secret", "user:sec\nret", "user:sec\0ret", "a:" + String(repeating: "sec", count: 700),
  ])
  func `anything else is refused, and nothing of it told`(text: String) throws {
    let error = try #require(throws: ProxyCredentials.Failure.self) { try Self.load(text) }
    #expect(error.description.contains("expected one line user:password"))
    #expect(!error.description.contains("sec"))
  }

  @Test func `a request contains its target twice and the credentials`() throws {
    let proxy = HTTPProxy(host: "proxy.example", port: 3128, credentials: try Self.load("user:password"))
    #expect(
      String(decoding: proxy.request(for: HTTPProxy.authority("::1", 443)), as: UTF8.self)
        == "CONNECT [::1]:443 HTTP/1.1\r\nHost: [::1]:443\r\nUser-Agent: push-gateway\r\n"
        + "Proxy-Authorization: Basic dXNlcjpwYXNzd29yZA==\r\n\r\n")
    #expect(!"\(proxy)".contains("password"))
    #expect(proxy.use(nil))
    #expect(!proxy.use(nil))
    #expect(!String(decoding: proxy.request(for: "a:443"), as: UTF8.self).contains("Authorization"))
  }
}
