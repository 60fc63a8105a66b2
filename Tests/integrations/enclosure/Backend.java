import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.util.ArrayList;
import java.util.List;

/** A backend that does what it is told, a line each: words between tabs, "-" for null. It answers each line with one. */
final class Backend {
  public static void main(String[] arguments) throws Exception {
    PushClient push = new PushClient(URI.create(arguments[0]), System.getenv("PUSH_GATEWAY_KEY"));
    try (Connection connection = DriverManager.getConnection(arguments[1], "push", "");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
      connection.setAutoCommit(false);
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        System.out.println("> " + answer(push, connection, line.split("\t")));
      }
    }
  }

  private static String answer(PushClient push, Connection connection, String[] words) {
    String[] w = new String[words.length];
    for (int i = 0; i < w.length; i++) {
      w[i] = words[i].equals("-") ? null : words[i];
    }
    try {
      switch (w[0]) {
        case "call" -> push.call(w[1], w[2].equals("video"), w[3], w[4], w[5], receivers(w));
        case "message" -> push.message(w[1], w[3], w[4], w[5], receivers(w));
        case "answered" -> push.answered(w[1], w[2], w[3]);
        case "declined" -> push.declined(w[1], w[2], w[3]);
        case "ended" -> push.ended(w[1], w[2]);
        case "enqueue" -> {
          return PushOutbox.enqueue(connection, "enclosure", w[1], w[2], w[3], 45).toString();
        }
        case "answer" -> {
          return String.valueOf(PushOutbox.answer(connection, "enclosure", w[1], w[2], w[3]));
        }
        case "decline" -> {
          return String.valueOf(PushOutbox.decline(connection, "enclosure", w[1], w[2], w[3]));
        }
        case "end" -> {
          return String.valueOf(PushOutbox.end(connection, "enclosure", w[1], w[2]));
        }
        case "commit" -> connection.commit();
        case "rollback" -> connection.rollback();
        default -> throw new IllegalArgumentException("no such word: " + w[0]);
      }
      return "done";
    } catch (Exception trouble) {
      return trouble.getClass().getSimpleName() + ": " + trouble.getMessage().replace("\n", " ");
    }
  }

  /** From the seventh word on, five for each. The last one is the platform, and which calls are switched off. */
  private static List<PushClient.Receiver> receivers(String[] w) {
    List<PushClient.Receiver> receivers = new ArrayList<>();
    for (int i = 6; i < w.length; i += 5) {
      String phone = w[i + 4];
      receivers.add(new PushClient.Receiver(w[i], w[i + 1], w[i + 2], w[i + 3], phone.startsWith("ios"),
          !phone.contains("-voice"), !phone.contains("-video")));
    }
    return receivers;
  }
}
