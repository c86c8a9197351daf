import com.zaxxer.hikari.HikariDataSource;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.sql.CallableStatement;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.sql.Timestamp;
import java.sql.Types;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.FutureTask;

/** What one connection does, of a pool so small that all of it fits at the server. */
final class Single {
    private static final String[] VARIABLES = {
        "autocommit", "character_set_client", "character_set_connection", "character_set_results",
        "collation_connection", "innodb_lock_wait_timeout", "max_statement_time",
        "net_write_timeout", "session_track_schema", "session_track_state_change", "session_track_system_variables",
        "session_track_transaction_info", "sql_auto_is_null", "sql_mode", "sql_select_limit",
        "time_zone", "tx_isolation", "tx_read_only", "wait_timeout",
    };

    private final HikariDataSource pool;
    private final Report report;

    Single(HikariDataSource pool, Report report) {
        this.pool = pool;
        this.report = report;
    }

    private interface With {
        Object run(Connection connection) throws Exception;
    }

    private void check(String name, With body) {
        report.check(name, () -> {
            try (Connection connection = pool.getConnection()) {
                return body.run(connection);
            }
        });
    }

    void run() {
        for (String variable : VARIABLES) {
            check("@@" + variable, connection -> Sql.value(connection, "SELECT @@" + variable));
        }
        check("prepared: values of all types", this::types);
        check("prepared: one statement 100 times, across transactions", this::reused);
        check("prepared: 300 statements at once", this::many);
        check("prepared: an error, then the same again", this::failing);
        check("a result of 5000 rows is streamed", this::streamed);
        check("a transaction with a savepoint", this::savepoint);
        check("a batch of statements with generated keys", this::batch);
        check("a batch of texts", this::texts);
        check("a procedure with a result", this::procedure);
        check("setReadOnly refuses a write or does not", this::readOnly);
        check("setNetworkTimeout ends what takes longer", this::networkTimeout);
        check("setQueryTimeout ends what takes longer", this::queryTimeout);
        check("setQueryTimeout of a prepared statement", this::preparedTimeout);
        check("Statement.cancel ends its own query only", this::cancel);
        check("Statement.cancel of a prepared statement", this::preparedCancel);
        check("isValid", connection -> connection.isValid(2));
        check("metadata: product", this::product);
        check("metadata: tables and columns", this::columns);
        check("metadata: keys", this::keys);
        check("warnings", this::warnings);
    }

    private Object types(Connection connection) throws SQLException {
        String word = "Gr\u00fc\u00dfe \ud83d\ude00 ' \\ \"";
        byte[] bytes = {0, 1, '\'', '\\', (byte) 0xff};
        Timestamp moment = Timestamp.valueOf("2024-02-29 12:34:56.789012");
        String insert = "INSERT INTO notes (tag, number, amount, word, bytes, moment)"
                + " VALUES ('types', ?, ?, ?, ?, ?)";
        Timestamp found;
        long key;
        try (PreparedStatement statement =
                connection.prepareStatement(insert, Statement.RETURN_GENERATED_KEYS)) {
            statement.setNull(1, Types.INTEGER);
            statement.setBigDecimal(2, new BigDecimal("-12345.678901"));
            statement.setString(3, word);
            statement.setBytes(4, bytes);
            statement.setTimestamp(5, moment);
            statement.executeUpdate();
            try (ResultSet rows = statement.getGeneratedKeys()) {
                rows.next();
                key = rows.getLong(1);
            }
        }
        String select = "SELECT number, amount, word, bytes, moment FROM notes WHERE id = ?";
        try (PreparedStatement statement = connection.prepareStatement(select)) {
            statement.setLong(1, key);
            try (ResultSet rows = statement.executeQuery()) {
                Report.that(rows.next(), "no row");
                Report.that(rows.getInt(1) == 0 && rows.wasNull(), "not null");
                Report.equal(new BigDecimal("-12345.678901"), rows.getBigDecimal(2), "amount");
                Report.equal(word, rows.getString(3), "word");
                Report.that(Arrays.equals(bytes, rows.getBytes(4)), "bytes");
                // Not every driver sends the fraction to every server.
                found = rows.getTimestamp(5);
            }
        }
        String length = "SELECT LENGTH(word) FROM notes WHERE id = " + key;
        int expected = word.getBytes(StandardCharsets.UTF_8).length;
        Report.equal(Integer.toString(expected), Sql.value(connection, length), "length");
        return found;
    }

    private Object reused(Connection connection) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement("SELECT ? * 2")) {
            for (int number = 0; number < 100; number++) {
                connection.setAutoCommit(number % 10 < 5);
                statement.setInt(1, number);
                try (ResultSet rows = statement.executeQuery()) {
                    rows.next();
                    Report.equal(number * 2, rows.getInt(1), "twice");
                }
                if (number % 10 == 9) {
                    connection.commit();
                }
            }
        }
        return null;
    }

    private Object many(Connection connection) throws SQLException {
        List<PreparedStatement> all = new ArrayList<>();
        for (int number = 0; number < 300; number++) {
            all.add(connection.prepareStatement("SELECT ? + " + number));
        }
        for (int number = 0; number < all.size(); number++) {
            PreparedStatement statement = all.get(number);
            statement.setInt(1, 1);
            try (ResultSet rows = statement.executeQuery()) {
                rows.next();
                Report.equal(number + 1, rows.getInt(1), "sum");
            }
            statement.close();
        }
        return null;
    }

    private Object failing(Connection connection) throws SQLException {
        String text = "SELECT place FROM home WHERE place = ? AND 1 = (SELECT 1 UNION SELECT ?)";
        try (PreparedStatement statement = connection.prepareStatement(text)) {
            for (int number : new int[] {2, 1, 2, 1}) {
                statement.setString(1, "hikari");
                statement.setInt(2, number);
                try (ResultSet rows = statement.executeQuery()) {
                    Report.that(number == 1 && rows.next(), "no error");
                } catch (SQLException refused) {
                    Report.equal(1242, refused.getErrorCode(), "code, number " + number);
                }
            }
        }
        return null;
    }

    private Object streamed(Connection connection) throws SQLException {
        String query = "SELECT seq, REPEAT('x', 100) FROM seq_1_to_5000";
        try (Statement statement = connection.createStatement()) {
            statement.setFetchSize(10);
            int found = 0;
            try (ResultSet rows = statement.executeQuery(query)) {
                while (rows.next()) {
                    Report.equal(++found, rows.getInt(1), "row");
                }
            }
            Report.equal(5000, found, "rows");
        }
        Report.equal("1", Sql.value(connection, "SELECT 1"), "afterwards");
        return null;
    }

    private Object savepoint(Connection connection) throws SQLException {
        long before = Sql.count(connection, "savepoint");
        connection.setAutoCommit(false);
        Sql.insert(connection, "savepoint", 1);
        Savepoint point = connection.setSavepoint("half");
        Sql.insert(connection, "savepoint", 2);
        connection.rollback(point);
        connection.commit();
        Report.equal(before + 1, Sql.count(connection, "savepoint"), "rows");
        connection.commit();
        return null;
    }

    private Object batch(Connection connection) throws SQLException {
        String text = "INSERT INTO notes (tag, number) VALUES ('batch', ?)";
        try (PreparedStatement statement =
                connection.prepareStatement(text, Statement.RETURN_GENERATED_KEYS)) {
            for (int number = 0; number < 100; number++) {
                statement.setInt(1, number);
                statement.addBatch();
            }
            Report.equal(100, statement.executeBatch().length, "counts");
            List<Long> keys = new ArrayList<>();
            try (ResultSet rows = statement.getGeneratedKeys()) {
                while (rows.next()) {
                    keys.add(rows.getLong(1));
                }
            }
            for (int number = 0; number < keys.size(); number++) {
                String query = "SELECT number FROM notes WHERE id = " + keys.get(number);
                Report.equal(Integer.toString(number), Sql.value(connection, query), "row");
            }
            return keys.size() + " keys";
        }
    }

    private Object texts(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.addBatch("SET @a = 1");
            statement.addBatch("INSERT INTO notes (tag, number) VALUES ('texts', @a)");
            statement.addBatch("UPDATE notes SET number = 2 WHERE tag = 'texts'");
            Report.equal(3, statement.executeBatch().length, "counts");
        }
        return Sql.value(connection, "SELECT MIN(number) FROM notes WHERE tag = 'texts'");
    }

    private Object procedure(Connection connection) throws SQLException {
        try (CallableStatement call = connection.prepareCall("{CALL twice(?, ?)}")) {
            call.setInt(1, 21);
            call.registerOutParameter(2, Types.INTEGER);
            call.execute();
            return call.getInt(2);
        }
    }

    private Object readOnly(Connection connection) throws SQLException {
        connection.setReadOnly(true);
        String seen;
        try {
            Sql.insert(connection, "single read-only", 1);
            seen = "accepted";
        } catch (SQLException refused) {
            seen = refused.getErrorCode() + " " + refused.getSQLState();
        }
        connection.setReadOnly(false);
        Sql.insert(connection, "single read-only", 2);
        return seen;
    }

    private Object networkTimeout(Connection connection) throws SQLException {
        connection.setNetworkTimeout(Runnable::run, 1_000);
        long since = System.nanoTime();
        try {
            Sql.value(connection, "SELECT SLEEP(5)");
        } catch (SQLException late) {
            long took = Report.millis(since);
            Report.that(took < 4_000, "ended after " + took + " ms");
            return null;
        }
        throw new AssertionError("no error");
    }

    private Object queryTimeout(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.setQueryTimeout(1);
            ends(connection, () -> first(statement.executeQuery("SELECT SLEEP(6)")));
        }
        return null;
    }

    private Object preparedTimeout(Connection connection) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement("SELECT SLEEP(?)")) {
            statement.setQueryTimeout(1);
            statement.setInt(1, 6);
            ends(connection, () -> first(statement.executeQuery()));
        }
        return null;
    }

    private Object cancel(Connection connection) throws Exception {
        try (Connection other = pool.getConnection();
                Statement statement = connection.createStatement()) {
            FutureTask<String> slow = new FutureTask<>(() -> Sql.value(other, "SELECT SLEEP(2.5)"));
            start(slow);
            start(new FutureTask<>(() -> cancelSoon(statement)));
            ends(connection, () -> first(statement.executeQuery("SELECT SLEEP(6)")));
            Report.equal("0", slow.get(), "the other's query");
        }
        return null;
    }

    private Object preparedCancel(Connection connection) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement("SELECT SLEEP(?)")) {
            statement.setInt(1, 6);
            start(new FutureTask<>(() -> cancelSoon(statement)));
            ends(connection, () -> first(statement.executeQuery()));
        }
        return null;
    }

    private static Object cancelSoon(Statement statement) throws Exception {
        Thread.sleep(700);
        try {
            statement.cancel();
        } catch (SQLException refused) {
            System.err.println("cancel: " + refused);
            throw refused;
        }
        return null;
    }

    private static void start(FutureTask<?> task) {
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        thread.start();
    }

    private interface Slow {
        String run() throws SQLException;
    }

    private static String first(ResultSet rows) throws SQLException {
        try (rows) {
            return rows.next() ? rows.getString(1) : null;
        }
    }

    /** A query of six seconds ends early, by an error or by SLEEP's 1; its connection goes on. */
    private static void ends(Connection connection, Slow query) throws SQLException {
        long since = System.nanoTime();
        try {
            Report.equal("1", query.run(), "what SLEEP returned");
        } catch (SQLException interrupted) {
            // As it should be; the drivers differ in the kind.
        }
        Report.that(Report.millis(since) < 4_500, "ran for " + Report.millis(since) + " ms");
        Report.equal("7", Sql.value(connection, "SELECT 7"), "afterwards");
    }

    private Object product(Connection connection) throws SQLException {
        DatabaseMetaData about = connection.getMetaData();
        return about.getDatabaseProductName() + " " + about.getDatabaseProductVersion() + " "
                + about.getDefaultTransactionIsolation();
    }

    private Object columns(Connection connection) throws SQLException {
        StringBuilder seen = new StringBuilder();
        DatabaseMetaData about = connection.getMetaData();
        try (ResultSet rows = about.getTables("hikari", null, "%", new String[] {"TABLE"})) {
            while (rows.next()) {
                seen.append(rows.getString("TABLE_NAME")).append(' ');
            }
        }
        try (ResultSet rows = about.getColumns("hikari", null, "notes", "%")) {
            while (rows.next()) {
                seen.append(rows.getString("COLUMN_NAME")).append(' ');
                seen.append(rows.getString("TYPE_NAME")).append(' ');
            }
        }
        Report.that(seen.length() > 0, "nothing");
        return seen;
    }

    private Object keys(Connection connection) throws SQLException {
        StringBuilder seen = new StringBuilder();
        DatabaseMetaData about = connection.getMetaData();
        try (ResultSet rows = about.getPrimaryKeys("hikari", null, "notes")) {
            while (rows.next()) {
                seen.append(rows.getString("COLUMN_NAME")).append(' ');
            }
        }
        return seen;
    }

    private Object warnings(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.executeQuery("SELECT CAST('1x' AS INT)").close();
            return String.valueOf(statement.getWarnings());
        }
    }
}
