// Proxies in the configuration: which one applies, what is refused, and what check-config prints.

import SettingsTestSupport
import Foundation
import Testing

@testable import Gateway
@testable import Settings

@Suite(.timeLimit(.minutes(10))) struct ProxyConfigurationTests {
  private let folder = try! ConfigurationFolder()

  private static func yaml(_ proxy: String, _ app: String = "") -> String {
    """
    database: postgres:///push
    \(proxy)
    apps:
      a: { expo: {}\(app.isEmpty ? "" : ", proxy: \(app)") }
      b: { expo: {} }
    """
  }

  @Test func `an app's proxy replaces the global one as a whole`() throws {
    let global = "proxy: { url: \"http://proxy.example:3128\", credentials_file: token }"
    var configuration = try folder.load(Self.yaml(global, "{ url: \"HTTP://[::1]:8888/\" }"))
    let proxy = GatewayConfiguration.Proxy(
      host: "proxy.example", port: 3128, credentialsFile: folder.path + "/token")
    #expect(configuration.proxy == proxy)
    #expect(configuration.apps.map(\.proxy) == [.init(host: "::1", port: 8888), proxy])
    #expect(configuration.apps[0].proxy?.description == "[::1]:8888")
    configuration = try folder.load(Self.yaml(global, "{ url: none }"))
    #expect(configuration.apps.map(\.proxy) == [nil, proxy])
    configuration = try folder.load(Self.yaml("", "{ url: \"http://p:1\" }"))
    #expect(configuration.apps.map(\.proxy) == [.init(host: "p", port: 1), nil])
    configuration = try folder.load(Self.yaml("proxy: { url: none }"))
    #expect(configuration.apps.map(\.proxy) == [nil, nil])
  }

  @Test func `proxies can come from the environment, but not from variables of other programs`() throws {
    let configuration = try folder.load(
      Self.yaml(""),
      [
        "PUSH_GATEWAY_PROXY_URL": "http://proxy.example:3128", "PUSH_GATEWAY_APPS_B_PROXY_URL": "none",
        "HTTPS_PROXY": "http://other.example:1", "NO_PROXY": "*",
      ])
    #expect(configuration.apps.map(\.proxy) == [.init(host: "proxy.example", port: 3128), nil])
  }

  @Test(arguments: [
    (
      "https://proxy.example:3128",
      "for a proxy that requires TLS itself, run a forwarder such as stunnel on this machine"
    ),
    (
      "socks5://proxy.example:1080",
      "must begin with http://: SOCKS is not supported; use an HTTP proxy that supports CONNECT"
    ),
    ("SOCKS4A://proxy.example:1080", "SOCKS is not supported"),
    ("proxy.example:3128", "must be a URL such as http://proxy.example:3128, or none"),
    ("http://user:secret@proxy.example:3128", "put user:password into a file, and set proxy.credentials_file"),
    ("http://proxy.example", "must be host and port (1 to 65535) and nothing else, such as http://proxy.example:3128"),
    ("http://proxy.example:0", "must be host and port"), ("http://proxy.example:3128/path", "must be host and port"),
    ("http://:3128", "must be host and port"), ("http://a b:3128", "must be host and port"),
    ("http://proxy:secret", "must be host and port"),
  ])
  func `a URL that is not an HTTP proxy is refused with the remedy, and not quoted`(url: String, words: String) throws {
    let global = try folder.message(Self.yaml("proxy: { url: \"\(url)\" }"))
    #expect(global.hasPrefix("gateway.yaml:2: proxy.url: ") && global.contains(words), "\(global)")
    #expect(!global.contains("\n") && !global.contains("secret"))
    let own = try folder.message(Self.yaml("", "{ url: \"\(url)\" }"))
    #expect(own.hasPrefix("gateway.yaml:4: apps.a.proxy.url: "), "\(own)")
    #expect(own.contains(words.replacing("set proxy.", with: "set apps.a.proxy.")) && !own.contains("secret"))
  }

  @Test(arguments: [
    (
      "proxy: { credentials_file: token }",
      "gateway.yaml:2: proxy.url: is missing; it may also be given as PUSH_GATEWAY_PROXY_URL"
    ),
    (
      "proxy: { url: none, credentials_file: token }",
      "gateway.yaml:2: proxy.credentials_file: is not used, because url is none: remove it, or set url"
    ),
    (
      "proxy: { url: \"http://p:1\", credentials_file: no.txt }",
      "gateway.yaml:2: proxy.credentials_file: cannot read the file no.txt: No such file or directory"
    ),
    ("proxy: http://p:1", "gateway.yaml:2: proxy: must be a section with keys below it: url, credentials_file"),
    ("proxy: { user: u }", "gateway.yaml:2: proxy.user: unknown key; known keys: url, credentials_file"),
  ])
  func `a fault is named with its line, its key and the way out`(proxy: String, expected: String) throws {
    #expect(try folder.message(Self.yaml(proxy)).split(separator: "\n").first.map(String.init) == expected)
  }

  @Test func `check-config reads the credentials of every proxy, and prints none`() throws {
    try folder.write("gateway:word", to: "good")
    try folder.write("secret", to: "bad")
    let configuration = try folder.load(
      """
      database: postgres:///push
      proxy: { url: "http://one:1", credentials_file: good }
      apps:
        a: { expo: {} }
        b: { expo: {}, proxy: { url: "http://two:2", credentials_file: bad } }
        c: { expo: {}, proxy: { url: "http://three:3" } }
        d: { expo: {}, proxy: { url: none } }
      """)
    let checks = CredentialCheck.all(of: configuration).filter { $0.subject.contains("proxy") }.map { check in
      switch check.result {
      case .success(let text): "ok \(check.subject): \(text)"
      case .failure(let failure): "FAILED \(check.subject): \(failure)"
      }
    }
    #expect(
      checks.map { $0.replacing(folder.path + "/", with: "") } == [
        "ok proxy.credentials_file: a user and password in good, for one:1",
        "FAILED apps.b.proxy.credentials_file: proxy credentials file bad: "
          + "expected one line user:password and nothing else",
        "ok apps.c.proxy: three:3, without a password",
        "ok apps.d.proxy: none, connections go directly to the providers",
      ])
  }
}
