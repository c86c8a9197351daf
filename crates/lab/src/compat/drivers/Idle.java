import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;

/** Three connections take a step and stay idle, on a pool of two; a fourth must be served. */
final class Idle {
    /** At once, on a machine that has other work too. */
    private static final int AT_ONCE_MS = 2_000;

    private final Report report;

    Idle(Report report) {
        this.report = report;
    }

    interface Open {
        Connection run() throws Exception;
    }

    interface Step {
        void run(Connection connection) throws Exception;
    }

    void after(String name, Open open, Step step) {
        report.check("idle after " + name, () -> {
            List<Connection> held = new ArrayList<>();
            try {
                for (int number = 0; number < 3; number++) {
                    long since = System.nanoTime();
                    held.add(open.run());
                    step.run(held.get(number));
                    atOnce("the step of " + number, since);
                }
                long since = System.nanoTime();
                held.add(open.run());
                atOnce("the fourth connection", since);
                for (int number : new int[] {3, 0, 1, 2}) {
                    since = System.nanoTime();
                    ask(held.get(number));
                    atOnce("a query of " + number, since);
                }
            } finally {
                for (Connection connection : held) {
                    connection.close();
                }
            }
            return null;
        });
    }

    private static void ask(Connection connection) throws Exception {
        try (Statement statement = connection.createStatement();
                ResultSet rows = statement.executeQuery("SELECT 4")) {
            rows.next();
        }
        if (!connection.getAutoCommit()) {
            connection.commit();
        }
    }

    private static void atOnce(String what, long since) {
        long took = Report.millis(since);
        Report.that(took < AT_ONCE_MS, what + " took " + took + " ms");
    }
}
