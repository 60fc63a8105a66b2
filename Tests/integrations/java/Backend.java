import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;

/** A backend that does what it is told, a line each: words between tabs, "-" for null. It answers each line with one. */
final class Backend {
  public static void main(String[] arguments) throws Exception {
    try (Connection connection = DriverManager.getConnection(arguments[0], "push", "");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
      connection.setAutoCommit(false);
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        System.out.println("> " + answer(connection, line.split("\t")));
      }
    }
  }

  private static String answer(Connection connection, String[] words) {
    String[] w = new String[words.length];
    for (int i = 0; i < w.length; i++) {
      w[i] = words[i].equals("-") ? null : words[i];
    }
    try {
      switch (w[0]) {
        case "enqueue" -> {
          return PushOutbox.enqueue(connection, "porteiro", w[1], w[2], w[3], 45).toString();
        }
        case "answer" -> {
          return String.valueOf(PushOutbox.answer(connection, "porteiro", w[1], w[2], w[3]));
        }
        case "decline" -> {
          return String.valueOf(PushOutbox.decline(connection, "porteiro", w[1], w[2], w[3]));
        }
        case "end" -> {
          return String.valueOf(PushOutbox.end(connection, "porteiro", w[1], w[2]));
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
}
