// Tests of a server's URL and of the files for its TLS.

import HTTP2TestSupport
import Runtime
import Testing

@Suite(.timeLimit(.minutes(10))) struct HTTP2EndpointTests {
  @Test func `valid URLs are parsed, and invalid ones are refused`() throws {
    let tls = try TLSContext.client()
    #expect(try HTTP2Endpoint(url: "https://api.push.apple.com", tls: tls).authority == "api.push.apple.com")
    #expect(try HTTP2Endpoint(url: "https://api.push.apple.com:2197/", tls: tls).authority == "api.push.apple.com:2197")
    let v6 = try HTTP2Endpoint(url: "https://[::1]:8443", tls: tls)
    #expect(v6.host == "::1")
    #expect(v6.authority == "[::1]:8443")
    for url in ["http://a", "https://", "https://a/b", "https://a:0", "https://a:x", "https://u@a", "a"] {
      #expect(throws: HTTP2Error.self) { try HTTP2Endpoint(url: url, tls: tls) }
    }
  }

  @Test func `the error for a file that cannot be used names the file`() throws {
    let missing = "/no/such/file.pem"
    #expect { try TLSContext.client(caFile: missing) } throws: { "\($0)".contains(missing) }
    #expect { try TLSContext.server(certificateFile: missing, keyFile: missing) } throws: { "\($0)".contains(missing) }
    let shared = TestCertificates.shared
    let stranger = TestCertificates.stranger
    #expect { try TLSContext.server(certificateFile: shared.certificateFile, keyFile: stranger.keyFile) } throws: {
      "\($0)".contains(stranger.keyFile)
    }
  }
}
