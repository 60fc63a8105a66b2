// The examples of gorush's documentation.

/// Requests of gorush's documentation, without the array around their notifications.
package enum GorushExamples {
  /// Notifications, the number that gorush counts, and the number of tokens and topics.
  package static let all: [(String, Int, Int)] = [
    (
      #"""
      {"tokens":["token_a","token_b"],"platform":1,"message":"Hello World iOS!"}
      """#, 2, 2
    ),
    (
      #"""
      {"tokens":["token_a","token_b"],"platform":1,"badge":5,"alert":{"title":"Game Request","body":"Bob wants to play poker","action-loc-key":"PLAY"}}
      """#, 2, 2
    ),
    (
      #"""
      {"tokens":["token_a","token_b"],"platform":1,"message":"You got your emails.","badge":9,"sound":{"critical":1,"name":"default","volume":1.0}}
      """#, 2, 2
    ),
    (
      #"""
      {"tokens":["token_a","token_b"],"platform":1,"message":"Hello World iOS!","data":{"key1":"welcome","key2":2}}
      """#, 2, 2
    ),
    (
      #"""
      {"tokens":["token_a","token_b"],"platform":1,"production":true,"message":"Hello"},{"tokens":["token_a"],"platform":1,"development":true,"message":"Hello"}
      """#, 3, 3
    ),
    (
      #"""
      {"tokens":["push_to_start_token"],"platform":1,"push_type":"liveactivity","topic":"com.example.app.push-type.liveactivity","event":"start","timestamp":1685952000,"content-state":{"homeScore":0},"attributes-type":"FootballMatchAttributes","attributes":{"homeTeam":"Team 1"},"alert":{"title":"Team 1 vs Team 2"}}
      """#, 1, 1
    ),
    (
      #"""
      {"tokens":["token_a","token_b"],"platform":2,"message":"Hello World Android!","title":"You got message"}
      """#, 2, 2
    ),
    (
      #"""
      {"tokens":["token_a","token_b"],"platform":2,"message":"Hello World Android!","title":"You got message","fcm_options":{"analytics_label":"example"}}
      """#, 2, 2
    ),
    (
      ##"""
      {"tokens":["token_a","token_b"],"platform":2,"message":"Hello","title":"You got message","notification":{"icon":"myicon","color":"#112244"}}
      """##, 2, 2
    ),
    (
      #"""
      {"tokens":["token_a","token_b"],"platform":2,"message":"Hello","title":"You got message","data":{"Nick":"Mario","body":"great match!","Room":"PortugalVSDenmark"}}
      """#, 2, 2
    ),
    (
      #"""
      {"topic":"highScores","platform":2,"message":"This is a Firebase Cloud Messaging Topic Message"}
      """#, 0, 1
    ),
    (
      #"""
      {"tokens":["token_a","token_b"],"platform":3,"message":"Hello World Huawei!","title":"You got message"}
      """#, 0, 2
    ),
    (
      #"""
      {"topic":"foo-bar","platform":3,"message":"A topic","title":"You got message"}
      """#, 0, 1
    ),
  ]
}
