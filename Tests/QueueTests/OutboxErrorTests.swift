import TestSupport
import Testing

@testable import Queue

@Suite("Errors of the outbox")
struct OutboxErrorTests {
  @Test(
    "the SQLSTATE decides whether a statement may have been executed, may be retried, or has faulty rows",
    arguments: [
      ("40001", .transient), ("40P01", .transient),  // serialization failure, deadlock
      ("55P03", .locked), ("57014", .tooSlow),  // lock timeout, statement timeout
      ("57P01", .transient), ("57P02", .transient), ("57P03", .transient),  // shutting down, crashing, starting
      ("53100", .transient), ("53200", .transient), ("53300", .transient),  // disk, memory, connections
      ("25006", .transient), ("26000", .transient),  // a standby, a statement it does not know
      ("08006", .transient), ("08P01", .transient),
      ("22021", .refusedRows), ("22P05", .refusedRows), ("23502", .refusedRows), ("23514", .refusedRows),
      ("54000", .refusedRows), ("XX000", .refusedRows), ("XX001", .refusedRows),  // a damaged row
      ("P0001", .refusedRows), ("MY001", .refusedRows),  // what a trigger raises
      ("42501", .refused), ("42883", .refused), ("0A000", .refused), ("55000", .refused), ("3F000", .refused),
    ] as [(String, OutboxError.Code)])
  func states(_ state: String, _ code: OutboxError.Code) {
    #expect(OutboxError(PostgresError(.server(sqlState: state), "m")).code == code)
  }

  @Test(
    "a server without TLS, and one whose certificate is not trusted, are told from one that is not reached",
    arguments: [
      ("server does not support SSL, but SSL was required", "The server does not offer TLS"),
      (#"root certificate file "/root.crt" does not exist"#, "Correct sslmode and sslrootcert in the URL"),
      ("SSL error: certificate verify failed", "Correct sslmode and sslrootcert in the URL"),
      (#"server certificate for "a" does not match host name "b""#, "Correct sslmode and sslrootcert in the URL"),
      ("Connection refused", nil), ("timeout expired", nil),
    ] as [(String, String?)])
  func withoutTLS(_ reason: String, _ remedy: String?) {
    let message = #"connection to server at "127.0.0.1", port 5432 failed: \#(reason)"#
    let found = PostgresError(.connectionFailed, message).remedyOfTLS
    #expect((found == nil) == (remedy == nil) && found?.hasPrefix(remedy ?? "") != false)
    #expect(PostgresError(.connectionLost, message).remedyOfTLS == nil)
    var refused = PostgresError(.connectionFailed, message)
    refused.refusal = "28000"
    #expect(refused.remedyOfTLS == nil)
  }

  @Test("what passes is the same in SQL: no function of the schema leaves or ends a push for it")
  func passing() async throws {
    try await TestDatabase.with { database in
      // Of all functions; two lists would be no pattern of these states.
      let pattern = try await database.value(
        """
        select string_agg(distinct m[1], ' ') from pg_proc p, regexp_matches(p.prosrc, 'sqlstate ~ ''([^'']+)''', 'g') m
        where p.pronamespace = 'push'::regnamespace
        """)
      let regex = try Regex(pattern)
      // Each class, and each state that is told apart from its class. Those of sessions, and quotas, do not come from a row.
      let classes =
        "01 02 03 08 09 0A 0B 20 21 22 23 24 25 26 27 28 2B 2D 2F 34 38 39 3B 3D 3F 40 42 44 53 54 55 57 58 F0 HV P0 XX"
      let states =
        classes.split(separator: " ").map { "\($0)000" } + ["40001", "40P01", "53200", "55006", "55P03", "57014"]
      for state in states {
        let isTransient = PostgresError(.server(sqlState: state), "m").isTransient
        #expect(state.contains(regex) == (isTransient && state != "26000"), "\(state)")
      }
    }
  }

  @Test("a missing connection is not reported as a broken one")
  func connections() {
    #expect(OutboxError(PostgresError(.connectionFailed, "m")).code == .unavailable)
    #expect(OutboxError(PostgresError(.connectionLost, "m")).code == .answerLost)
    #expect(OutboxError(PostgresError(.unexpectedResult, "m")).code == .refused)
  }
}
