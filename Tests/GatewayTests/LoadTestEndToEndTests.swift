// The built program against a whole gateway and its simulators.

import Foundation
import HTTP2TestSupport
import HTTPSurfaceTestSupport
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
    configuration.ports.log = 0
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
          "loadtest", "--calls", "100", "--ring-window", "5m", "--simulator-log", log, "--json", "--report", page,
          "--cleanup", "--seed", "3", "--require", "delivered>=100%,failed<1,p99<10m",
        ])
      #expect(run.status == 0, "\(run.errors)")
      let verdict = try Self.verdict(run)
      #expect(verdict["good"] as? Bool == true && verdict["result"] as? String == "good")
      #expect(verdict["enqueued"] as? Int == 300 && verdict["answers"] as? [String: Int] == ["committed": 100])
      let conditions = try #require(verdict["requirements"] as? [[String: Any]])
      #expect(conditions.map { $0["met"] as? Bool } == [true, true, true])
      #expect(conditions[0]["measured"] as? String == "100%, 300 of 300")
      #expect((verdict["outcomes"] as? [String: Int])?["delivered"] == 300)
      let latencies = try #require(run.object()["latency_us"] as? [String: [String: [String: Int]]])
      #expect(latencies["all"]?["request"]?["count"] == 300 && latencies["all"]?["settle"]?["count"] == 300)
      // A busy machine may answer so late that a push is tried again.
      #expect(await harness.pushesByToken().values.reduce(0, +) >= 300)
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
          "loadtest", "--stage", "500ms@100", "--stage", "1s@50", "--devices", "2", "--mix", "apns=1,fcm=1", "--faults",
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
    try await TestDatabase.with(.migrated) { database in
      try await database.execute(
        """
        create function public.vanish() returns trigger language plpgsql as
          $$ begin if new.user_id like '%-4' then return null; end if; return new; end $$;
        select push.register_app('porteiro', 60);
        create trigger vanish before insert on push.delivery for each row execute function public.vanish();
        """)
      // No gateway is running, so the other deliveries stay pending.
      let run = try await OperationsFixture.run(
        database.url, ["loadtest", "--calls", "2", "--wait", "0s", "--json"])
      let verdict = try Self.verdict(run)
      #expect(run.status == 1 && verdict["lost"] as? Int == 1 && verdict["owed"] as? Int == 5)
      #expect(run.errors.contains("No gateway is running"))
    }
  }

  @Test func `a run of which nothing is settled is INCOMPLETE`() async throws {
    try await TestDatabase.with { database in
      try await database.execute("select push.register_app('porteiro', 60)")
      let run = try await OperationsFixture.run(database.url, ["loadtest", "--calls", "2", "--wait", "0s"])
      #expect(run.status == 2, "\(run.output)")
      #expect(run.output.contains("because: 6 not settled") && run.output.contains("INCOMPLETE: 0 lost"))
      #expect(run.output.contains("Not checked without a simulators' log"))
    }
  }

  /// The user's own calls: a registered user whose phone the simulators accept, and one whose token they call dead.
  private static func ownCalls(_ database: TestDatabase, _ users: [String]) async throws -> String {
    try await database.execute(
      """
      insert into push.devices (app, user_id, provider, platform, token) values
        ('porteiro', 'ana', 'apns', 'ios', '\(String(repeating: "ab", count: 32))'),
        ('porteiro', 'bruno', 'fcm', 'android', 'bruno_fcm_token_000000000001:APA91b'),
        ('porteiro', 'carla', 'fcm', 'android', 'fault-UNREGISTERED-000000000001:APA91b')
      """)
    let path = FileManager.default.temporaryDirectory.appendingPathComponent("calls-\(UUID()).jsonl").path
    let lines = users.map {
      #"{"app":"porteiro","payload":{"from":"doorman-7"},"recipients":["\#($0)"],"ringSeconds":300}"#
    }
    try lines.joined(separator: "\n").write(toFile: path, atomically: true, encoding: .utf8)
    return path
  }

  @Test func `the user's own calls, over the HTTP API, with the log of another machine`() async throws {
    try await Self.withGateway { harness, _ in
      try await APIHarness.with(on: harness.database) { api in
        let calls = try await Self.ownCalls(harness.database, ["ana", "bruno"])
        let key = calls + ".key"
        defer { for path in [calls, key] { try? FileManager.default.removeItem(atPath: path) } }
        try SecretFixture.write(api.key + "\n", to: key)
        func run(_ rate: String) async throws -> CommandRun {
          try await OperationsFixture.run(
            harness.database.url,
            [
              "loadtest", "--calls", calls, "--rate", rate, "--duration", "1s", "--over", "http", "--url",
              "http://127.0.0.1:\(api.port)/",
              "--api-key-file", key, "--simulator-log",
              "https://127.0.0.1:\(try #require(harness.simulators.log).port)/log", "--ca-file",
              harness.simulators.material.authorityFile, "--json", "--seed", "5",
            ])
        }
        let good = try await run("30")
        let verdict = try Self.verdict(good)
        #expect(good.status == 0 && verdict["not_checked"] as? [String] == [], "\(good.output) \(good.errors)")
        let count = try #require(verdict["enqueued"] as? Int)
        #expect(
          count > 5 && verdict["answers"] as? [String: Int] == ["202": count] && verdict["settled"] as? Int == count)
        let latencies = try #require(good.object()["latency_us"] as? [String: [String: [String: Int]]])
        #expect(Set(latencies.keys) == ["all", "apns", "fcm"] && latencies["all"]?["request"]?["count"] == count)

        let other = try await OperationsFixture.run(
          harness.database.url,
          [
            "loadtest", "--rate", "1", "--app", "condo", "--over", "http", "--url", "http://127.0.0.1:\(api.port)",
            "--api-key-file", key,
          ])
        #expect(other.status == 64 && other.errors.contains("but the key of --api-key-file is of porteiro"), "\(other)")

        // A quota that is used up.
        try await harness.database.execute("select push.set_quota('porteiro', calls_per_minute => 1)")
        let refused = try await run("30")
        let answers = try #require(Self.verdict(refused)["answers"] as? [String: Int])
        #expect(refused.status == 1 && answers["429", default: 0] > 0, "\(refused.output) \(refused.errors)")
      }
    }
  }

  @Test func `a failure that nobody asked for makes a run BAD`() async throws {
    try await Self.withGateway { harness, log in
      let calls = try await Self.ownCalls(harness.database, ["bruno", "carla"])
      defer { try? FileManager.default.removeItem(atPath: calls) }
      let run = try await OperationsFixture.run(
        harness.database.url,
        ["loadtest", "--calls", calls, "--stage", "1s@20", "--simulator-log", log, "--seed", "5"])
      #expect(run.status == 1, "\(run.output) \(run.errors)")
      #expect(run.output.contains("failed without a requested fault, and no condition allows it"))
      #expect(run.output.contains("\nBAD: 0 lost, 0 duplicated, 0 late, "))
    }
  }

  @Test func `a file is checked by the database before anything is enqueued`() async throws {
    try await TestDatabase.with { database in
      try await database.execute("select push.register_app('porteiro', 60)")
      let calls = try await Self.ownCalls(database, ["ana", "nobody", ""])
      defer { try? FileManager.default.removeItem(atPath: calls) }
      let run = try await OperationsFixture.run(database.url, ["loadtest", "--calls", calls, "--rate", "5"])
      #expect(
        run.status == 64 && run.errors.contains("line 2: no recipient has a device to send to; line 3: "),
        "\(run.errors)")
      #expect(try await database.value("select count(*) from push.outbox") == "0")
    }
  }

  @Test func `a lane that is paused, and calls of an earlier run, are named before a run`() async throws {
    try await TestDatabase.with { database in
      try await database.execute(
        """
        select push.register_app('porteiro', 300, p_providers => '{apns,fcm}');
        update push.lane set paused = true where provider = 'apns';
        """)
      let arguments = ["loadtest", "--calls", "2", "--devices", "1", "--ring-window", "300s", "--wait", "0s", "--mix"]
      let first = try await OperationsFixture.run(database.url, arguments + ["fcm=1"])
      #expect(first.status == 2 && !first.errors.contains("Warning"), "a lane that the run does not use: \(first)")
      let second = try await OperationsFixture.run(database.url, arguments + ["apns=1,fcm=1"])
      #expect(second.status == 2, "\(second)")
      #expect(second.errors.contains("porteiro/apns is paused until somebody resumes it"), "\(second)")
      #expect(second.errors.contains("porteiro/fcm still has 2 deliveries of earlier calls, for "), "\(second)")
    }
  }

  @Test func `calls whose app lacks the provider fail, and a quota makes a COPY BAD`() async throws {
    try await TestDatabase.with { database in
      try await database.execute("select push.register_app('porteiro', 60, p_providers => '{apns,fcm}')")
      let arguments = ["loadtest", "--calls", "2", "--mix", "expo=1", "--wait", "0s", "--json"]
      let skipped = try await OperationsFixture.run(database.url, arguments)
      let verdict = try Self.verdict(skipped)
      #expect(skipped.status == 1 && verdict["failed"] as? Int == 6 && verdict["lost"] as? Int == 0, "\(skipped)")
      #expect((verdict["outcomes"] as? [String: Int])?["skipped"] == 6)
      #expect(skipped.errors.contains("the app porteiro has no expo"))

      try await database.execute("select push.set_quota('porteiro', calls_per_minute => 1)")
      let refused = try await OperationsFixture.run(
        database.url, ["loadtest", "--calls", "5", "--wait", "0s", "--json"])
      let answers = try Self.verdict(refused)["answers"] as? [String: Int]
      #expect(refused.status == 1 && answers == ["22023": 5], "\(refused)")
    }
  }

  @Test func `an API that cannot be reached makes a run INCOMPLETE`() async throws {
    try await TestDatabase.with { database in
      try await database.execute("select push.register_app('porteiro', 60)")
      let key = FileManager.default.temporaryDirectory.appendingPathComponent("key-\(UUID())").path
      defer { try? FileManager.default.removeItem(atPath: key) }
      try SecretFixture.write("pgk_1_nobody\n", to: key)
      let run = try await OperationsFixture.run(
        database.url,
        [
          "loadtest", "--rate", "50", "--duration", "1s", "--over", "http", "--url", "http://127.0.0.1:1",
          "--api-key-file", key,
        ])
      #expect(run.status == 2 && run.output.contains("because: no call was answered: NotConnected"), "\(run)")
    }
  }

  @Test func `a connection that breaks is opened again, and the run goes on`() async throws {
    try await TestDatabase.with { database in
      try await database.execute("select push.register_app('porteiro', 300)")
      let process = OperationsFixture.process(
        database.url, ["loadtest", "--rate", "20", "--duration", "1h", "--ring-window", "300s", "--json"])
      let output = Pipe()
      process.standardOutput = output
      process.standardError = FileHandle.nullDevice
      try process.start()
      try await database.wait(for: "select count(*) > 5 from push.outbox")
      try await database.execute(
        """
        select pg_terminate_backend(pid, 60000) from pg_stat_activity
        where application_name = 'push-gateway-lab loadtest' and datname = current_database()
        """)
      let count = try await database.value("select count(*) from push.outbox")
      try await database.wait(for: "select count(*) > \(count) + 5 from push.outbox")
      process.interrupt()
      let text = try await Task.detached { try output.fileHandleForReading.readToEnd() ?? Data() }.value
      process.waitUntilExit()
      let verdict = try #require(
        (JSONSerialization.jsonObject(with: text) as? [String: Any])?["verdict"] as? [String: Any])
      // At most the calls under way on four connections are not known.
      #expect(verdict["lost"] as? Int == 0 && (verdict["owed"] as? Int).map { $0 >= 8 * 3 } == true, "\(verdict)")
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
      #expect(process.terminationStatus == 2 && verdict["result"] as? String == "incomplete")
      #expect(verdict["reasons"] as? [String] == ["the run was stopped"] || verdict["owed"] as? Int != 0)
      #expect(try #require(verdict["settled"] as? Int) > 5)
      #expect(try #require(verdict["enqueued"] as? Int) < 10 * 3600)
    }
  }

  @Test func `a server on another machine is refused, and so are invalid arguments`() async throws {
    let away = try await OperationsFixture.run("postgres://u:secret@db.example.com/x", ["loadtest", "--calls", "1"])
    #expect(away.status == 64 && away.errors.contains("db.example.com") && away.errors.contains("--i-own-this-server"))
    #expect(!away.errors.contains("secret"))
    let empty = FileManager.default.temporaryDirectory.appendingPathComponent("empty-\(UUID())").path
    defer { try? FileManager.default.removeItem(atPath: empty) }
    try SecretFixture.write("", to: empty)
    for arguments in [
      [], ["--rate", "1", "--calls", "1"], ["--rate", "0"], ["--calls", "1", "--mix", "gcm=1"],
      ["--calls", "1", "--faults", "ded=1%"], ["--calls", "1", "--kind", "telegram"],
      ["--calls", "1", "--simulator-log", "/nonexistent/pushes.log"], ["--calls", "1", "--require", "p99<500"],
      ["--stage", "2m"], ["--stage", "1s@1", "--rate", "1"], ["--calls", "calls.jsonl"],
      ["--rate", "1", "--over", "http"],
      ["--rate", "1", "--url", "https://example.com"], ["--calls", "1", "--wait", "5x"],
      ["--calls", "1", "--ring-window", "1500ms"], ["--calls", "1", "--report", "/nonexistent/load.html"],
      ["--calls", "1", "--simulator-log", "https://127.0.0.1:1/log"], ["--calls", "1", "--database", "nonsense"],
      ["--calls", empty, "--rate", "1"], ["--calls", "1", "--ca-file", empty],
      ["--rate", "1", "--over", "http", "--url", "http://127.0.0.1:1", "--api-key-file", empty],
      ["--rate", "1", "--over", "http", "--url", "http://127.0.0.1:1", "--api-key-file", empty, "--app", "a,b"],
    ] {
      #expect(try await OperationsFixture.run("postgres://localhost/x", ["loadtest"] + arguments).status == 64)
    }
  }
}
