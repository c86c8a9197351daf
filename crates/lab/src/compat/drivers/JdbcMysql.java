import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;

/** A driver for MariaDB or MySQL that is idle. The suite `hikari` has the other checks. */
final class JdbcMysql {
    private final String url;
    private final Idle idle;

    private JdbcMysql(String url, Report report) {
        this.url = url;
        this.idle = new Idle(report);
    }

    /** Arguments: host, port, port of the pool of two, scheme of the URL, options. */
    public static void main(String[] arguments) throws Exception {
        String address = arguments[3] + "://" + arguments[0] + ":" + arguments[2] + "/sbtest";
        JdbcMysql checks = new JdbcMysql(address + "?" + arguments[4], new Report());
        try (Connection connection = checks.open("")) {
            run(connection, "CREATE TABLE IF NOT EXISTS jdbc_notes (id BIGINT PRIMARY KEY"
                    + " AUTO_INCREMENT, tag VARCHAR(20))");
        }
        checks.run();
        System.out.println("end");
        System.exit(0);
    }

    private Connection open(String options) throws SQLException {
        return DriverManager.getConnection(url + options, "sbtest", "sbtest");
    }

    private void after(String name, String options, Idle.Step step) {
        idle.after(name, () -> open(options), step);
    }

    private void run() {
        after("a login", "", connection -> { });
        after("a query", "", connection -> run(connection, "SELECT 1"));
        after("a query prepared by the driver", "", JdbcMysql::prepared);
        after("a query prepared at the server", "&useServerPrepStmts=true", JdbcMysql::prepared);
        after("a transaction", "", JdbcMysql::transaction);
        after("a serializable transaction", "", connection -> {
            connection.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
            transaction(connection);
        });
        after("autocommit off and a commit", "", connection -> {
            connection.setAutoCommit(false);
            run(connection, "SELECT COUNT(*) FROM jdbc_notes");
            connection.commit();
        });
        after("setReadOnly", "", connection -> {
            connection.setReadOnly(true);
            run(connection, "SELECT 1");
        });
        after("isValid", "", connection -> connection.isValid(2));
        after("setCatalog", "", connection -> connection.setCatalog("sbtest"));
        after("sessionVariables", "&sessionVariables=sql_mode='ANSI_QUOTES',wait_timeout=1234",
                connection -> run(connection, "SELECT 1"));
        after("generated keys", "", JdbcMysql::generatedKeys);
        after("a query with a time limit", "", connection -> {
            try (Statement statement = connection.createStatement()) {
                statement.setQueryTimeout(5);
                statement.executeQuery("SELECT 1").close();
            }
        });
        after("metadata", "", connection -> {
            try (ResultSet rows = connection.getMetaData()
                    .getColumns("sbtest", null, "jdbc_notes", "%")) {
                Report.that(rows.next(), "no column");
            }
        });
        after("a warning", "", connection -> {
            try (Statement statement = connection.createStatement()) {
                statement.executeQuery("SELECT CAST('1x' AS UNSIGNED)").close();
                statement.getWarnings();
            }
        });
        after("a batch", "&rewriteBatchedStatements=true", connection -> {
            String text = "INSERT INTO jdbc_notes (tag) VALUES (?)";
            try (PreparedStatement statement = connection.prepareStatement(text)) {
                for (int row = 0; row < 20; row++) {
                    statement.setString(1, "batch");
                    statement.addBatch();
                }
                statement.executeBatch();
            }
        });
    }

    private static void run(Connection connection, String text) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.execute(text);
        }
    }

    private static void prepared(Connection connection) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement("SELECT ? + 1")) {
            for (int number = 0; number < 10; number++) {
                statement.setInt(1, number);
                statement.executeQuery().close();
            }
        }
    }

    private static void transaction(Connection connection) throws SQLException {
        connection.setAutoCommit(false);
        run(connection, "INSERT INTO jdbc_notes (tag) VALUES ('t')");
        connection.commit();
        connection.setAutoCommit(true);
    }

    private static void generatedKeys(Connection connection) throws SQLException {
        String text = "INSERT INTO jdbc_notes (tag) VALUES ('k')";
        try (Statement statement = connection.createStatement()) {
            statement.executeUpdate(text, Statement.RETURN_GENERATED_KEYS);
            try (ResultSet rows = statement.getGeneratedKeys()) {
                Report.that(rows.next(), "no key");
            }
        }
    }
}
