import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.io.StringReader;
import java.io.StringWriter;
import java.math.BigDecimal;
import java.sql.Array;
import java.sql.CallableStatement;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.sql.Types;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.postgresql.PGConnection;
import org.postgresql.PGNotification;
import org.postgresql.copy.CopyManager;
import org.postgresql.util.PSQLException;
import org.postgresql.util.ServerErrorMessage;

/** Checks pgjdbc, alone and with HikariCP: 30 connections on a pool of 20. */
final class Pgjdbc {
    private static final int SIZE = 30;
    private static final String ROWS = "SELECT count(*) FROM pgjdbc.notes WHERE tag = '%s'";

    private final String host;
    private final int port;
    private final int smallPort;
    private final Report report = new Report();

    private Pgjdbc(String host, int port, int smallPort) {
        this.host = host;
        this.port = port;
        this.smallPort = smallPort;
    }

    public static void main(String[] arguments) throws Exception {
        Pgjdbc checks = new Pgjdbc(arguments[0], Integer.parseInt(arguments[1]),
                Integer.parseInt(arguments[2]));
        try (Connection connection = checks.open("")) {
            run(connection, "CREATE SCHEMA pgjdbc");
            run(connection, "CREATE TABLE pgjdbc.notes (id serial PRIMARY KEY, tag text,"
                    + " number int UNIQUE)");
            run(connection, "CREATE FUNCTION pgjdbc.twice(n int) RETURNS int LANGUAGE sql"
                    + " AS 'SELECT 2 * n'");
        }
        checks.single();
        checks.crowd();
        checks.idle();
        System.out.println("end");
        System.exit(0);
    }

    private Connection open(String options) throws SQLException {
        return open(port, options);
    }

    private Connection open(int port, String options) throws SQLException {
        String url = "jdbc:postgresql://" + host + ":" + port + "/sbtest?" + options;
        return DriverManager.getConnection(url, "sbtest", "sbtest");
    }

    private interface With {
        Object run(Connection connection) throws Exception;
    }

    private void check(String name, String options, With body) {
        report.check(name, () -> {
            try (Connection connection = open(options)) {
                return body.run(connection);
            }
        });
    }

    private void check(String name, With body) {
        check(name, "", body);
    }

    private static String value(Connection connection, String query) throws SQLException {
        try (Statement statement = connection.createStatement();
                ResultSet rows = statement.executeQuery(query)) {
            return rows.next() ? rows.getString(1) : null;
        }
    }

    private static void run(Connection connection, String text) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.execute(text);
        }
    }

    private static SQLException fails(Callable<?> body) throws Exception {
        try {
            body.call();
        } catch (SQLException failure) {
            return failure;
        }
        throw new AssertionError("no error");
    }

    private static String state(Connection connection, String text) throws Exception {
        return fails(() -> value(connection, text)).getSQLState();
    }

    private void single() {
        check("parameters that the server reports", connection ->
                new java.util.TreeMap<>(connection.unwrap(PGConnection.class)
                        .getParameterStatuses()));
        report.check("a wrong password", () -> fails(() -> DriverManager.getConnection(
                "jdbc:postgresql://" + host + ":" + port + "/sbtest", "sbtest", "wrong"))
                .getSQLState());
        check("options of the login", "ApplicationName=app&currentSchema=pgjdbc"
                + "&options=-c%20statement_timeout=1234&assumeMinServerVersion=12", connection ->
                value(connection, "SHOW application_name") + value(connection, "SHOW search_path")
                        + value(connection, "SHOW statement_timeout"));
        for (String mode : new String[] {"simple", "extended", "extendedForPrepared",
            "extendedCacheEverything"}) {
            check("prepared 40 times, preferQueryMode=" + mode, "preferQueryMode=" + mode,
                    Pgjdbc::reused);
        }
        check("prepared at the server from the first time", "prepareThreshold=-1", Pgjdbc::reused);
        check("300 prepared statements", "preparedStatementCacheQueries=50&prepareThreshold=1",
                Pgjdbc::many);
        check("an error of a prepared statement, then the same again", "prepareThreshold=1",
                Pgjdbc::failing);
        check("a prepared statement of a changed table", "prepareThreshold=1", Pgjdbc::changed);
        check("the same with autosave=conservative", "prepareThreshold=1&autosave=conservative",
                Pgjdbc::changed);
        check("values of several types", "prepareThreshold=2", Pgjdbc::types);
        check("commit, rollback, savepoint", Pgjdbc::transactions);
        check("isolation level, read only", Pgjdbc::isolation);
        check("a failed transaction", connection -> {
            connection.setAutoCommit(false);
            String states = state(connection, "SELECT 1/0") + state(connection, "SELECT 1");
            connection.rollback();
            return states + value(connection, "SELECT 1");
        });
        check("a result is fetched in parts", Pgjdbc::fetched);
        check("a batch", Pgjdbc::batch);
        check("a batch that the driver rewrites", "reWriteBatchedInserts=true", Pgjdbc::batch);
        check("a batch with an error", Pgjdbc::failedBatch);
        check("generated keys", Pgjdbc::generatedKeys);
        check("several statements in a text", Pgjdbc::several);
        check("COPY from the client and to the client", Pgjdbc::copied);
        check("cancel", this::cancel);
        check("a time limit of a query", Pgjdbc::limited);
        check("a network timeout", Pgjdbc::networkTimeout);
        check("LISTEN and NOTIFY", this::notified);
        check("the process id is pg_backend_pid()", connection -> {
            int known = connection.unwrap(PGConnection.class).getBackendPID();
            Report.equal(Integer.toString(known), value(connection, "SELECT pg_backend_pid()"),
                    "the process id");
            return null;
        });
        check("fields of errors, warnings", Pgjdbc::errors);
        check("metadata", Pgjdbc::metadata);
        check("a function", Pgjdbc::called);
        check("setSchema", connection -> {
            connection.setSchema("pgjdbc");
            return connection.getSchema() + value(connection, "SHOW search_path");
        });
        check("setClientInfo", connection -> {
            connection.setClientInfo("ApplicationName", "other");
            return value(connection, "SHOW application_name");
        });
        check("a value of 3 MB", connection -> {
            String large = "x".repeat(3_000_000);
            try (PreparedStatement statement =
                    connection.prepareStatement("SELECT length(?)")) {
                statement.setString(1, large);
                try (ResultSet rows = statement.executeQuery()) {
                    rows.next();
                    return rows.getInt(1);
                }
            }
        });
    }

    private static Object reused(Connection connection) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement("SELECT ?::int * 2")) {
            for (int number = 0; number < 40; number++) {
                connection.setAutoCommit(number % 10 < 5);
                statement.setInt(1, number);
                try (ResultSet rows = statement.executeQuery()) {
                    rows.next();
                    Report.equal(number * 2, rows.getInt(1), "twice");
                }
            }
        }
        return null;
    }

    private static Object many(Connection connection) throws SQLException {
        for (int round = 0; round < 2; round++) {
            for (int number = 0; number < 300; number++) {
                String text = "SELECT ?::int + " + number;
                try (PreparedStatement statement = connection.prepareStatement(text)) {
                    statement.setInt(1, round);
                    try (ResultSet rows = statement.executeQuery()) {
                        rows.next();
                        Report.equal(number + round, rows.getInt(1), "sum");
                    }
                }
            }
        }
        return null;
    }

    private static Object failing(Connection connection) throws Exception {
        StringBuilder seen = new StringBuilder();
        try (PreparedStatement statement = connection.prepareStatement("SELECT 1 / ?::int")) {
            for (int number : new int[] {0, 1, 0, 1}) {
                statement.setInt(1, number);
                if (number == 0) {
                    seen.append(fails(statement::executeQuery).getSQLState()).append(' ');
                } else {
                    statement.executeQuery().close();
                }
            }
        }
        return seen;
    }

    private static Object changed(Connection connection) throws Exception {
        run(connection, "DROP TABLE IF EXISTS pgjdbc.changing");
        run(connection, "CREATE TABLE pgjdbc.changing (a int)");
        StringBuilder seen = new StringBuilder();
        connection.setAutoCommit(false);
        try (PreparedStatement statement =
                connection.prepareStatement("SELECT * FROM pgjdbc.changing")) {
            for (int round = 0; round < 3; round++) {
                statement.executeQuery().close();
            }
            run(connection, "ALTER TABLE pgjdbc.changing ADD b int");
            try (ResultSet rows = statement.executeQuery()) {
                seen.append(rows.getMetaData().getColumnCount());
            } catch (SQLException failure) {
                seen.append(failure.getSQLState());
            }
        }
        connection.rollback();
        return seen;
    }

    private static Object types(Connection connection) throws SQLException {
        UUID id = new UUID(0, 7);
        String word = "\u00e4\u20ac\ud83d\ude00";
        String text = "SELECT ?::int, ?::numeric, ?::text, ?::bytea, ?::uuid, ?::int[], ?::timestamp";
        StringBuilder seen = new StringBuilder();
        try (PreparedStatement statement = connection.prepareStatement(text)) {
            for (int round = 0; round < 4; round++) {
                Array numbers = connection.createArrayOf("int4", new Integer[] {1, null});
                statement.setInt(1, -5);
                statement.setBigDecimal(2, new BigDecimal("-12345.678901"));
                statement.setString(3, word);
                statement.setBytes(4, new byte[] {0, -1});
                statement.setObject(5, id);
                statement.setArray(6, numbers);
                statement.setObject(7, java.time.LocalDateTime.of(2024, 2, 29, 1, 2, 3, 4000));
                try (ResultSet rows = statement.executeQuery()) {
                    rows.next();
                    Report.equal(word, rows.getString(3), "word");
                    Report.equal(id, rows.getObject(5), "uuid");
                    seen.append(rows.getInt(1)).append(rows.getBigDecimal(2));
                    seen.append(rows.getBytes(4).length).append(rows.getArray(6));
                    seen.append(rows.getObject(7)).append(' ');
                }
            }
        }
        return seen;
    }

    private static Object transactions(Connection connection) throws SQLException {
        connection.setAutoCommit(false);
        insert(connection, "t");
        Savepoint point = connection.setSavepoint("half");
        insert(connection, "t");
        connection.rollback(point);
        connection.commit();
        insert(connection, "t");
        connection.rollback();
        return value(connection, ROWS.formatted("t"));
    }

    private static void insert(Connection connection, String tag) throws SQLException {
        run(connection, "INSERT INTO pgjdbc.notes (tag) VALUES ('" + tag + "')");
    }

    private static Object isolation(Connection connection) throws Exception {
        connection.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
        connection.setReadOnly(true);
        String seen = value(connection, "SHOW transaction_isolation") + connection.isReadOnly();
        connection.setAutoCommit(false);
        seen += state(connection, "CREATE TABLE pgjdbc.refused (a int)");
        connection.rollback();
        connection.setReadOnly(false);
        connection.setTransactionIsolation(Connection.TRANSACTION_READ_COMMITTED);
        return seen + value(connection, "SHOW transaction_isolation");
    }

    private static Object fetched(Connection connection) throws SQLException {
        connection.setAutoCommit(false);
        long sum = 0;
        try (Statement statement = connection.createStatement()) {
            statement.setFetchSize(50);
            try (ResultSet rows = statement.executeQuery("SELECT generate_series(1, 5000)")) {
                while (rows.next()) {
                    sum += rows.getInt(1);
                }
            }
        }
        connection.commit();
        return sum;
    }

    private static Object batch(Connection connection) throws SQLException {
        String text = "INSERT INTO pgjdbc.notes (tag) VALUES (?)";
        try (PreparedStatement statement = connection.prepareStatement(text)) {
            for (int row = 0; row < 300; row++) {
                statement.setString(1, "batch");
                statement.addBatch();
            }
            int counts = statement.executeBatch().length;
            return counts + value(connection, ROWS.formatted("batch"));
        }
    }

    private static Object failedBatch(Connection connection) throws Exception {
        String text = "INSERT INTO pgjdbc.notes (tag, number) VALUES ('failed', ?)";
        try (PreparedStatement statement = connection.prepareStatement(text)) {
            for (int number : new int[] {500, 501, 500, 502}) {
                statement.setInt(1, number);
                statement.addBatch();
            }
            String found = fails(statement::executeBatch).getSQLState();
            return found + value(connection, ROWS.formatted("failed"));
        }
    }

    private static Object generatedKeys(Connection connection) throws SQLException {
        String text = "INSERT INTO pgjdbc.notes (tag) VALUES ('keys')";
        try (Statement statement = connection.createStatement()) {
            statement.executeUpdate(text, Statement.RETURN_GENERATED_KEYS);
            try (ResultSet rows = statement.getGeneratedKeys()) {
                Report.that(rows.next() && rows.getInt("id") > 0, "no key");
                return rows.getMetaData().getColumnCount();
            }
        }
    }

    private static Object several(Connection connection) throws SQLException {
        StringBuilder seen = new StringBuilder();
        try (Statement statement = connection.createStatement()) {
            boolean hasRows = statement.execute("SELECT 1; SELECT 2; SET extra_float_digits = 3");
            while (hasRows || statement.getUpdateCount() != -1) {
                seen.append(hasRows ? "rows " : "count ");
                hasRows = statement.getMoreResults();
            }
        }
        return seen;
    }

    private static Object copied(Connection connection) throws Exception {
        run(connection, "CREATE TABLE pgjdbc.copied (a int, b text)");
        CopyManager copy = connection.unwrap(PGConnection.class).getCopyAPI();
        StringBuilder lines = new StringBuilder();
        for (int number = 0; number < 10_000; number++) {
            lines.append(number).append("\trow\n");
        }
        String from = "COPY pgjdbc.copied FROM STDIN";
        long rows = copy.copyIn(from, new StringReader(lines.toString()));
        StringWriter out = new StringWriter();
        copy.copyOut("COPY pgjdbc.copied TO STDOUT", out);
        String bad = fails(() -> copy.copyIn(from, new StringReader("1\ta\nx\tb\n"))).getSQLState();
        return rows + " " + out.toString().length() + " " + bad + value(connection, "SELECT 1");
    }

    private Object cancel(Connection connection) throws Exception {
        try (Statement statement = connection.createStatement(); Connection other = open("")) {
            Thread thread = new Thread(() -> {
                try {
                    Thread.sleep(300);
                    statement.cancel();
                } catch (Exception failure) {
                    System.err.println("cancel: " + failure);
                }
            });
            thread.start();
            long since = System.nanoTime();
            String found = fails(() -> statement.executeQuery("SELECT pg_sleep(10)")).getSQLState();
            Report.that(Report.millis(since) < 5_000, "ran for " + Report.millis(since) + " ms");
            return found + value(connection, "SELECT 6") + value(other, "SELECT 7");
        }
    }

    private static Object limited(Connection connection) throws Exception {
        try (Statement statement = connection.createStatement()) {
            statement.setQueryTimeout(1);
            String found = fails(() -> statement.executeQuery("SELECT pg_sleep(10)")).getSQLState();
            return found + value(connection, "SELECT 6");
        }
    }

    private static Object networkTimeout(Connection connection) throws Exception {
        connection.setNetworkTimeout(Runnable::run, 400);
        return fails(() -> value(connection, "SELECT pg_sleep(3)")).getSQLState();
    }

    private Object notified(Connection connection) throws Exception {
        try (Connection other = open("")) {
            run(connection, "LISTEN a");
            run(other, "NOTIFY a, 'hello'");
            PGNotification[] heard =
                    connection.unwrap(PGConnection.class).getNotifications(5_000);
            int sender = other.unwrap(PGConnection.class).getBackendPID();
            return heard[0].getName() + heard[0].getParameter() + (heard[0].getPID() == sender);
        }
    }

    private static Object errors(Connection connection) throws Exception {
        StringBuilder seen = new StringBuilder();
        run(connection, "INSERT INTO pgjdbc.notes (tag, number) VALUES ('e', 1)");
        for (String text : new String[] {"INSERT INTO pgjdbc.notes (tag, number) VALUES ('e', 1)",
            "SELEC 1", "SELECT nothing", "SELECT 1/0"}) {
            PSQLException failure = (PSQLException) fails(() -> {
                run(connection, text);
                return null;
            });
            ServerErrorMessage fields = failure.getServerErrorMessage();
            seen.append(failure.getMessage()).append(fields.getDetail());
            seen.append(fields.getPosition()).append(fields.getConstraint());
            seen.append(fields.getRoutine()).append("; ");
        }
        try (Statement statement = connection.createStatement()) {
            statement.execute("DO $$ BEGIN RAISE WARNING 'one'; END $$");
            return seen.append(statement.getWarnings());
        }
    }

    private static Object metadata(Connection connection) throws SQLException {
        StringBuilder seen = new StringBuilder();
        DatabaseMetaData about = connection.getMetaData();
        seen.append(about.getDatabaseProductVersion()).append(' ');
        try (ResultSet rows = about.getColumns(null, "pgjdbc", "notes", "%")) {
            while (rows.next()) {
                seen.append(rows.getString("COLUMN_NAME")).append(rows.getString("TYPE_NAME"));
            }
        }
        try (ResultSet rows = about.getPrimaryKeys(null, "pgjdbc", "notes")) {
            while (rows.next()) {
                seen.append(rows.getString("PK_NAME"));
            }
        }
        return seen;
    }

    private static Object called(Connection connection) throws SQLException {
        try (CallableStatement call = connection.prepareCall("{? = call pgjdbc.twice(?)}")) {
            call.registerOutParameter(1, Types.INTEGER);
            call.setInt(2, 21);
            call.execute();
            return call.getInt(1);
        }
    }

    private void crowd() {
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl("jdbc:postgresql://" + host + ":" + port + "/sbtest");
        config.setUsername("sbtest");
        config.setPassword("sbtest");
        config.setSchema("pgjdbc");
        config.setMaximumPoolSize(SIZE);
        config.setMinimumIdle(SIZE);
        config.setConnectionTimeout(10_000);
        HikariDataSource pool = new HikariDataSource(config);
        report.check("30 borrowed connections, each at work in turn", () -> inTurn(pool));
        report.check("30 connections that 60 threads use", () -> threads(pool));
        report.check("30 connections are returned as they were", () -> returned(pool));
        pool.close();
    }

    private static List<Connection> all(HikariDataSource pool) throws SQLException {
        List<Connection> all = new ArrayList<>();
        for (int number = 0; number < SIZE; number++) {
            all.add(pool.getConnection());
        }
        return all;
    }

    private static void close(List<Connection> all) throws SQLException {
        for (Connection connection : all) {
            connection.close();
        }
    }

    private static Object inTurn(HikariDataSource pool) throws SQLException {
        List<Connection> all = all(pool);
        for (int round = 0; round < 3; round++) {
            for (Connection connection : all) {
                long since = System.nanoTime();
                Report.that(connection.isValid(2), "not valid");
                connection.setAutoCommit(round == 1);
                insert(connection, "in turn");
                if (round != 1) {
                    connection.commit();
                }
                Report.that(Report.millis(since) < 2_000, Report.millis(since) + " ms");
            }
        }
        close(all);
        try (Connection connection = pool.getConnection()) {
            return value(connection, ROWS.formatted("in turn"));
        }
    }

    private static Object threads(HikariDataSource pool) throws Exception {
        List<Callable<Object>> tasks = new ArrayList<>();
        for (int own = 0; own < 600; own++) {
            int number = 10_000 + own;
            tasks.add(() -> {
                try (Connection connection = pool.getConnection()) {
                    connection.setAutoCommit(number % 2 == 0);
                    run(connection, "INSERT INTO pgjdbc.notes (tag, number) VALUES ('threads', "
                            + number + ")");
                    Report.equal(Integer.toString(number), value(connection,
                            "SELECT number FROM pgjdbc.notes WHERE number = " + number), "its row");
                    if (number % 2 != 0) {
                        connection.commit();
                    }
                }
                return null;
            });
        }
        ExecutorService executor = Executors.newFixedThreadPool(60);
        for (Future<Object> future : executor.invokeAll(tasks)) {
            future.get();
        }
        executor.shutdownNow();
        try (Connection connection = pool.getConnection()) {
            return value(connection, ROWS.formatted("threads"));
        }
    }

    private static Object returned(HikariDataSource pool) throws SQLException {
        List<Connection> all = all(pool);
        for (Connection connection : all) {
            connection.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
            connection.setReadOnly(true);
            connection.setSchema("public");
            connection.setAutoCommit(false);
        }
        close(all);
        all = all(pool);
        StringBuilder seen = new StringBuilder();
        for (Connection connection : all) {
            seen.append(value(connection, "SHOW transaction_isolation"));
            seen.append(value(connection, "SHOW transaction_read_only"));
            seen.append(connection.getSchema()).append(' ');
        }
        close(all);
        return seen;
    }

    private void after(String name, String options, Idle.Step step) {
        new Idle(report).after(name, () -> open(smallPort, options), step);
    }

    private void idle() {
        after("a login", "", connection -> { });
        after("a query", "", connection -> value(connection, "SELECT 1"));
        after("a statement prepared at the server", "prepareThreshold=1", Pgjdbc::reused40);
        after("options of the login", "ApplicationName=app&currentSchema=pgjdbc"
                + "&options=-c%20statement_timeout=1234", connection -> value(connection, "SELECT 1"));
        after("a transaction", "", connection -> {
            connection.setAutoCommit(false);
            value(connection, "SELECT count(*) FROM pgjdbc.notes");
            connection.commit();
        });
        after("a serializable transaction", "", connection -> {
            connection.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
            connection.setAutoCommit(false);
            value(connection, "SELECT count(*) FROM pgjdbc.notes");
            connection.commit();
            connection.setAutoCommit(true);
        });
        after("setReadOnly", "", connection -> {
            connection.setReadOnly(true);
            value(connection, "SELECT 1");
        });
        after("isValid", "", connection -> connection.isValid(2));
        after("setSchema", "", connection -> connection.setSchema("pgjdbc"));
        after("setClientInfo", "", connection ->
                connection.setClientInfo("ApplicationName", "other"));
        after("a result fetched in parts", "", connection -> {
            fetched(connection);
            connection.setAutoCommit(true);
        });
        after("generated keys", "", Pgjdbc::generatedKeys);
        after("metadata", "", Pgjdbc::metadata);
        after("LISTEN", "", connection -> run(connection, "LISTEN own"));
    }

    private static void reused40(Connection connection) throws SQLException {
        reused(connection);
        connection.setAutoCommit(true);
    }
}
