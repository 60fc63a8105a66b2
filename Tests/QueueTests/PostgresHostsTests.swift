import Testing

@testable import Queue

@Suite("Hosts of a connection URL")
struct PostgresHostsTests {
  private func endpoints(_ url: String) throws -> [String] {
    try PostgresHosts.plan(for: url).endpoints.map { "\($0.host) \($0.address) \($0.port)" }
  }

  @Test("each host has its own port, or the common one, or the default")
  func ports() throws {
    #expect(try endpoints("postgres://db/push") == ["db  5432"])
    #expect(try endpoints("postgres://a:1,b:2/push") == ["a  1", "b  2"])
    #expect(try endpoints("postgres://a:1,b/push") == ["a  1", "b  5432"])
    #expect(try endpoints("host=a,b port=7 dbname=push") == ["a  7", "b  7"])
    #expect(try endpoints("postgres://[::1]:5/push") == ["::1  5"])
  }

  @Test("addresses belong to their hosts; sockets need none, names do")
  func addresses() throws {
    #expect(try endpoints("host=a,b hostaddr=10.0.0.1,10.0.0.2 port=7") == ["a 10.0.0.1 7", "b 10.0.0.2 7"])
    #expect(try endpoints("hostaddr=10.0.0.1") == [" 10.0.0.1 5432"])
    let plan = try PostgresHosts.plan(for: "host=/run/pg,db hostaddr='' port=7")
    #expect(plan.endpoints.map(\.needsAddress) == [false, true])
    #expect(try PostgresHosts.plan(for: "hostaddr=10.0.0.1").endpoints.map(\.needsAddress) == [false])
  }

  @Test("URLs that only libpq can parse, or reject, are left to it")
  func libpq() throws {
    for url in [
      "service=push", "host=a,b port=1,2,3", "host=a,b hostaddr=10.0.0.1", "host=a,,b", "host=a,b hostaddr=10.0.0.1,",
    ] {
      #expect(try endpoints(url) == [], "\(url)")
    }
    #expect(throws: PostgresError.self) { try endpoints("postgres://u:secret@[::1/db") }
  }

  @Test("connect_timeout applies to each host")
  func timeout() throws {
    #expect(try PostgresHosts.plan(for: "host=a connect_timeout=3").timeoutSeconds == 3)
    #expect(try PostgresHosts.plan(for: "host=a connect_timeout=0").timeoutSeconds == nil)
    #expect(try PostgresHosts.plan(for: "host=a").timeoutSeconds == nil)
  }
}
