// The built program against a whole gateway and its simulators.

import Foundation
import Queue
import Simulators
import TestProcess
import TestSupport
import Testing

@testable import Gateway

@Suite(.timeLimit(.minutes(10))) struct LoadTestEndToEndTests {
  /// A gateway whose simulators write a log.
  private static func withGateway(_ body: (GatewayHarness, _ log: String) async throws -> Void) async throws {
    let log = FileManager.default.temporaryDirectory.appendingPathComponent("pushes-\(UUID()).log").path
    defer { try? FileManager.default.removeItem(atPath: log) }
    var configuration = SimulatorSuite.Configuration()
    configuration.journal = .init(keepsAccepted: true, logs: true)
    configuration.logFile = log
    try await GatewayHarness.with(simulators: configuration) { try await body($0, log) }
  }

  private static func verdict(_ run: CommandRun) throws -> [String: Any] {
    try #require(run.object()["verdict"] as? [String: Any], "\(run.errors)")
  }

  @Test func `a hundred calls in bulk are settled, compared with the log, and removed`() async throws {
    try await Self.withGateway { harness, log in
      let page = log + ".html"
      defer { try? FileManager.default.removeItem(atPath: page) }
      let run = try await OperationsFixture.run(
        harness.database.url,
        [
          "loadtest", "--calls", "100", "--ring-seconds", "300", "--simulator-log", log, "--json", "--report", page,
          "--cleanup", "--seed", "3",
        ])
      #expect(run.status == 0, "\(run.errors)")
      let verdict = try Self.verdict(run)
      #expect(verdict["good"] as? Bool == true && verdict["enqueued"] as? Int == 300)
      #expect((verdict["outcomes"] as? [String: Int])?["delivered"] == 300)
      let latencies = try #require(run.object()["latency_us"] as? [String: [String: [String: Int]]])
      #expect(latencies["all"]?["request"]?["count"] == 300 && latencies["all"]?["settle"]?["count"] == 300)
      #expect(await harness.pushesByToken().values.reduce(0, +) == 300)
      #expect(try String(contentsOfFile: page, encoding: .utf8).contains("GOOD: 0 lost"))
      for table in ["outbox", "delivery", "history"] {
        #expect(try await harness.database.value("select count(*) from push.\(table)") == "0", "\(table)")
      }
    }
  }

  @Test func `with faults, only the calls with a fault fail, and no promise is broken`() async throws {
    try await Self.withGateway { harness, log in
      let run = try await OperationsFixture.run(
        harness.database.url,
        [
          "loadtest", "--rate", "100", "--duration", "1", "--devices", "2", "--mix", "apns=1,fcm=1", "--faults",
          "dead=10%,goaway=2%", "--ring-seconds", "300", "--simulator-log", log, "--json", "--seed", "11",
        ])
      #expect(run.status == 0, "\(run.errors)")
      let verdict = try Self.verdict(run)
      let failed = try #require(verdict["failed"] as? Int)
      #expect(failed > 0 && verdict["failed_as_asked"] as? Int == failed)
      #expect(verdict["settled"] as? Int == verdict["enqueued"] as? Int && verdict["owed"] as? Int == 0)
      let enqueue = try #require((run.object()["latency_us"] as? [String: [String: [String: Int]]])?["all"]?["enqueue"])
      #expect(enqueue["count"] == verdict["enqueued"] as? Int)
      let runName = try #require(run.object()["run"] as? String)
      let calls = try await harness.database.value(
        "select count(*) from push.outbox where starts_with(call_id, 'loadtest-\(runName)-')")
      #expect(Int(calls) == (verdict["enqueued"] as? Int).map { $0 / 2 }, "nothing is deleted unless asked for")
    }
  }

  @Test func `a delivery that vanishes from the database is reported as lost, by the exit code as well`() async throws {
    try await TestDatabase.with(isMigrated: false) { database in
      let connection = try await database.connect()
      try await Migrator().migrate(connection)
      await connection.close()
      try await database.execute(
        """
        create function public.vanish() returns trigger language plpgsql as
          $$ begin if new.user_id like '%-4' then return null; end if; return new; end $$;
        select push.register_app('porteiro', 60);
        create trigger vanish before insert on push.delivery for each row execute function public.vanish();
        """)
      // No gateway is running, so the other deliveries stay pending.
      let run = try await OperationsFixture.run(
        database.url, ["loadtest", "--calls", "2", "--wait", "0", "--json"])
      let verdict = try Self.verdict(run)
      #expect(run.status == 1 && verdict["lost"] as? Int == 1 && verdict["owed"] as? Int == 5)
      #expect(run.errors.contains("No gateway is running"))
    }
  }

  @Test func `Ctrl-C ends the calls and still reports`() async throws {
    try await Self.withGateway { harness, log in
      let process = OperationsFixture.process(
        harness.database.url,
        ["loadtest", "--rate", "10", "--duration", "3600", "--simulator-log", log, "--json"])
      let output = Pipe()
      process.standardOutput = output
      process.standardError = FileHandle.nullDevice
      try process.start()
      try await harness.database.wait(for: "select count(*) > 5 from push.history")
      process.interrupt()
      let text = try await Task.detached { try output.fileHandleForReading.readToEnd() ?? Data() }.value
      process.waitUntilExit()
      let verdict = try #require(
        (JSONSerialization.jsonObject(with: text) as? [String: Any])?["verdict"] as? [String: Any])
      #expect(process.terminationStatus == 0 && verdict["good"] as? Bool == true)
      #expect(try #require(verdict["settled"] as? Int) > 5)
      #expect(try #require(verdict["enqueued"] as? Int) < 10 * 3600)
    }
  }

  @Test func `a server on another machine is refused, and so are invalid arguments`() async throws {
    let away = try await OperationsFixture.run("postgres://u:secret@db.example.com/x", ["loadtest", "--calls", "1"])
    #expect(away.status == 1 && away.errors.contains("db.example.com") && away.errors.contains("--i-own-this-server"))
    #expect(!away.errors.contains("secret"))
    for arguments in [
      [], ["--rate", "1", "--calls", "1"], ["--rate", "0"], ["--calls", "1", "--mix", "gcm=1"],
      ["--calls", "1", "--faults", "ded=1%"], ["--calls", "1", "--kind", "telegram"],
    ] {
      #expect(try await OperationsFixture.run("postgres://localhost/x", ["loadtest"] + arguments).status == 64)
    }
  }
}
