import Runtime
import TestSupport
import Testing

@testable import Queue

@Suite("Postgres connection", .timeLimit(.minutes(10)))
struct PostgresConnectionTests {
  @Test("parameters and rows are sent in binary and return unchanged")
  func roundTrip() async throws {
    try await TestDatabase.with(.empty) { database in
      let connection = try await database.connect()
      var parameters = PostgresParameters()
      parameters.append(true)
      parameters.append(Int16.min)
      parameters.append(Int32.max)
      parameters.append(Int64.min + 1)
      parameters.append("naïve ☎")
      parameters.append(String?.none)
      parameters.append([Int64(3), 1, 2])
      parameters.append(texts: [Array("a,b".utf8), nil, Array("\"}\0x".utf8)])
      parameters.append(timestamps: [1_700_000_000_123_456, nil, .min])
      parameters.append([Int32]())
      let statement = PostgresStatement(
        name: "round_trip",
        sql: """
          select $1, $2, $3, $4, $5, $6 is null, ($7::int8[])[2], ($8::text[])[2] is null, ($8::text[])[3],
            ($9::timestamptz[])[1], ($9::timestamptz[])[3] = '-infinity', cardinality($10::int4[]), '{"a": 1}'::jsonb, 1.5::float8
          """)
      let row = try await connection.query(statement, parameters)
      #expect(row.bool(0, 0))
      #expect(row.int16(0, 1) == .min)
      #expect(row.int32(0, 2) == .max)
      #expect(row.int64(0, 3) == .min + 1)
      #expect(row.text(0, 4) == "naïve ☎")
      #expect(row.bool(0, 5))
      #expect(row.int64(0, 6) == 1)
      #expect(row.bool(0, 7))
      #expect(row.text(0, 8) == "\"}x")
      #expect(row.timestamp(0, 9) == 1_700_000_000_123_456)
      #expect(row.bool(0, 10))
      #expect(row.int32(0, 11) == 0)
      #expect(String(decoding: row.json(0, 12), as: UTF8.self) == #"{"a": 1}"#)
      #expect(row.double(0, 13) == 1.5)
      await connection.close()
    }
  }

  @Test("a statement that could not be prepared is prepared again when it is needed again")
  func preparedAfterAll() async throws {
    try await TestDatabase.with(.empty) { database in
      let connection = try await database.connect()
      let statement = PostgresStatement(name: "later", sql: "select later from later")
      await #expect(throws: PostgresError.self) { try await connection.query(statement) }
      try await database.execute("create table later (later int4); insert into later values (7)")
      #expect(try await connection.query(statement).int32(0, 0) == 7)
      await connection.close()
    }
  }

  @Test("places of rows are sent in binary and return unchanged")
  func places() async throws {
    try await TestDatabase.with(.empty) { database in
      let connection = try await database.connect()
      let places = [
        DeliveryPlace(block: 0xffff_fffe, offset: 0xfffe), .unknown, DeliveryPlace(block: 258, offset: 3),
      ]
      var parameters = PostgresParameters()
      parameters.append(places: places) { $0 }
      parameters.append(places: [DeliveryPlace]()) { $0 }
      let statement = PostgresStatement(
        name: "places",
        sql:
          "select t.place, t.place::text, cardinality($2::tid[]) from unnest($1::tid[]) with ordinality t(place, i) order by i"
      )
      let result = try await connection.query(statement, parameters)
      #expect((0..<result.rowCount).map { result.place($0, 0) } == places)
      #expect((0..<result.rowCount).map { result.text($0, 1) } == ["(4294967294,65534)", "(0,0)", "(258,3)"])
      #expect(result.int32(0, 2) == 0)
      await connection.close()
    }
  }

  @Test("many statements may be pending; each gets its own answer, and an error affects no other")
  func pipelining() async throws {
    try await TestDatabase.with(.empty) { database in
      let connection = try await database.connect()
      let divide = PostgresStatement(name: "divide", sql: "select 100 / $1::int4")
      try await withThrowingTaskGroup { group in
        for divisor in Int32(0)..<50 {
          group.addTask {
            var parameters = PostgresParameters()
            parameters.append(divisor)
            do {
              let result = try await connection.query(divide, parameters)
              #expect(result.int32(0, 0) == 100 / divisor)
            } catch let error as PostgresError {
              #expect(divisor == 0)
              #expect(error.code == .server(sqlState: "22012"))
            }
          }
        }
        try await group.waitForAll()
      }
      await connection.close()
    }
  }

  @Test("a statement that does not parse fails with its SQLSTATE and can be tried again")
  func badStatement() async throws {
    try await TestDatabase.with(.empty) { database in
      let connection = try await database.connect()
      let bad = PostgresStatement(name: "bad", sql: "select * from push.no_such_table")
      await #expect(throws: PostgresError.self) { try await connection.query(bad) }
      let good = PostgresStatement(name: "good", sql: "select 1")
      #expect(try await connection.query(good).int32(0, 0) == 1)
      await connection.close()
    }
  }

  @Test("a script runs several statements, and the connection goes on afterwards")
  func script() async throws {
    try await TestDatabase.with(.empty) { database in
      let connection = try await database.connect()
      try await connection.script("create table t (a int); insert into t values (1), (2);")
      let count = PostgresStatement(name: "count", sql: "select count(*) from t")
      #expect(try await connection.query(count).int64(0, 0) == 2)
      await #expect(throws: PostgresError.self) {
        try await connection.script("insert into t values (3); select 1 / 0;")
      }
      #expect(try await connection.query(count).int64(0, 0) == 2)
      await connection.close()
    }
  }

  @Test("a server that is not there is a clear error without the password")
  func refused() async throws {
    let loop = EventLoop(name: "test")
    defer { loop.stop() }
    let error = await #expect(throws: PostgresError.self) {
      try await PostgresConnection.connect(
        to: "postgres://ops:geheim@127.0.0.1:1/push", applicationName: "tests", on: loop)
    }
    #expect(error?.code == .connectionFailed)
    #expect(error?.description.contains("127.0.0.1") == true)
    #expect(error?.description.contains("geheim") == false)
  }

  @Test("an input that the server quotes in its message is removed from ours")
  func quotedInput() async throws {
    try await TestDatabase.with(.empty) { database in
      let connection = try await database.connect()
      var parameters = PostgresParameters()
      parameters.append("secret-token")
      let statement = PostgresStatement(name: "cast", sql: "select $1::text::int4")
      let error = await #expect(throws: PostgresError.self) { try await connection.query(statement, parameters) }
      #expect(error?.description.contains("secret-token") == false)
      await connection.close()
    }
  }

  @Test("when the server ends the connection, pending statements fail as lost")
  func terminated() async throws {
    try await TestDatabase.with(.empty) { database in
      let (victim, other) = (try await database.connect(), try await database.connect())
      let pid = try await victim.query(PostgresStatement(name: "pid", sql: "select pg_backend_pid()")).int32(0, 0)
      async let sleeping = victim.query(PostgresStatement(name: "sleep", sql: "select pg_sleep(30)"))
      var parameters = PostgresParameters()
      parameters.append(pid)
      let terminate = PostgresStatement(name: "end", sql: "select pg_terminate_backend($1)")
      _ = try await other.query(terminate, parameters)
      do {
        _ = try await sleeping
        Issue.record("the statement outlived its connection")
      } catch let error as PostgresError {
        #expect(error.isTransient)
      }
      await other.close()
    }
  }
}
