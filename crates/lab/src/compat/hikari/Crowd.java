import com.zaxxer.hikari.HikariDataSource;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** More connections than there are at the server; each must work while the others are idle. */
final class Crowd {
    private static final int SIZE = 30;
    private static final int FILL_LIMIT_MS = 10_000;
    /** At once, on a machine that has other work too. */
    private static final int AT_ONCE_MS = 2_000;

    private final HikariDataSource pool;
    private final Map<String, Task> checks = new LinkedHashMap<>();

    Crowd(HikariDataSource pool) {
        this.pool = pool;
        checks.put("30 borrowed connections: each does SELECT 1 at once", this::selectAtOnce);
        checks.put("30 borrowed connections: all do SELECT 1 together", this::selectTogether);
        checks.put("30 borrowed connections: each commits a transaction", this::commit);
        checks.put("30 borrowed connections: each rolls a transaction back", this::rollback);
        checks.put("30 borrowed connections: each is valid", this::valid);
        checks.put("30 borrowed connections: each has its own isolation level", this::isolation);
        checks.put("30 borrowed connections: each has its own catalog", this::catalog);
        checks.put("30 borrowed connections: each may be read-only or not", this::readOnly);
        checks.put("30 borrowed connections: each has its own network timeout",
                this::networkTimeout);
        checks.put("30 borrowed connections: each has its own session variable", this::variable);
        checks.put("30 borrowed connections: each has its own user variable", this::userVariable);
        checks.put("30 borrowed connections: each has a prepared statement", this::prepared);
        checks.put("30 borrowed connections: each gets its generated keys", this::generatedKeys);
        checks.put("30 borrowed connections: each writes a batch", this::batch);
        checks.put("30 connections are returned as they were", this::returned);
        checks.put("30 connections are returned and taken again by 60 threads", this::taken);
        checks.put("30 connections are evicted and made again", this::evicted);
    }

    private interface Task {
        Object run() throws Exception;
    }

    private interface Each {
        void run(Connection connection, int number) throws Exception;
    }

    void run(Report report) {
        boolean[] full = new boolean[1];
        report.check("a pool of 30 fills", () -> {
            fill();
            full[0] = true;
            return null;
        });
        checks.forEach((name, task) -> {
            if (full[0]) {
                report.check(name, task::run);
            } else {
                report.impossible(name, "the pool did not fill");
            }
        });
    }

    private void fill() throws InterruptedException {
        long since = System.nanoTime();
        while (pool.getHikariPoolMXBean().getIdleConnections() < SIZE) {
            int found = pool.getHikariPoolMXBean().getTotalConnections();
            Report.that(Report.millis(since) < FILL_LIMIT_MS,
                    found + " of " + SIZE + " connections after " + FILL_LIMIT_MS + " ms");
            Thread.sleep(20);
        }
    }

    /** Borrows all, has each do the steps in turn while the others are idle, and returns all. */
    private void inTurn(Each... steps) throws Exception {
        List<Connection> all = new ArrayList<>();
        try {
            for (int number = 0; number < SIZE; number++) {
                all.add(pool.getConnection());
            }
            for (Each step : steps) {
                for (int number = 0; number < SIZE; number++) {
                    long since = System.nanoTime();
                    step.run(all.get(number), number);
                    long took = Report.millis(since);
                    Report.that(took < AT_ONCE_MS, number + " took " + took + " ms");
                }
            }
        } finally {
            for (Connection connection : all) {
                connection.close();
            }
        }
    }

    private Object selectAtOnce() throws Exception {
        Each step = (connection, number) ->
                Report.equal("1", Sql.value(connection, "SELECT 1"), "1");
        inTurn(step, step);
        return null;
    }

    private Object selectTogether() throws Exception {
        List<Callable<Object>> tasks = new ArrayList<>();
        CountDownLatch borrowed = new CountDownLatch(SIZE);
        for (int number = 0; number < SIZE; number++) {
            String own = Integer.toString(number);
            tasks.add(() -> {
                try (Connection connection = pool.getConnection()) {
                    borrowed.countDown();
                    borrowed.await();
                    for (int round = 0; round < 20; round++) {
                        Report.equal(own, Sql.value(connection, "SELECT " + own), "a constant");
                    }
                }
                return null;
            });
        }
        all(tasks, SIZE);
        return null;
    }

    /** Autocommit stays off between the transactions. */
    private Object commit() throws Exception {
        String tag = "commit";
        long before = counted(tag);
        Each transaction = (connection, number) -> {
            connection.setAutoCommit(false);
            Sql.insert(connection, tag, number);
            Sql.insert(connection, tag, number);
            connection.commit();
        };
        inTurn(transaction, transaction);
        Report.equal(before + 4L * SIZE, counted(tag), "rows");
        return null;
    }

    private Object rollback() throws Exception {
        String tag = "rollback";
        inTurn((connection, number) -> {
            connection.setAutoCommit(false);
            Sql.insert(connection, tag, number);
            connection.rollback();
        });
        Report.equal(0L, counted(tag), "rows");
        return null;
    }

    private Object valid() throws Exception {
        // HikariCP itself asks so only where a connection was idle for half a second.
        Thread.sleep(600);
        inTurn((connection, number) ->
                Report.that(connection.isValid(2), number + " is not valid"));
        return null;
    }

    private Object isolation() throws Exception {
        int[] levels = {Connection.TRANSACTION_SERIALIZABLE, Connection.TRANSACTION_READ_COMMITTED,
                Connection.TRANSACTION_REPEATABLE_READ};
        String[] names = {"SERIALIZABLE", "READ-COMMITTED", "REPEATABLE-READ"};
        Each check = (connection, number) -> {
            String found = Sql.value(connection, "SELECT @@session.tx_isolation");
            Report.equal(names[number % 3], found, "isolation level of " + number);
            Report.equal(levels[number % 3], connection.getTransactionIsolation(), "the driver's");
        };
        inTurn((connection, number) -> connection.setTransactionIsolation(levels[number % 3]),
                check, check);
        return null;
    }

    private Object catalog() throws Exception {
        String[] names = {"hikari", "hikari_other"};
        Each check = (connection, number) -> {
            String own = names[number % 2];
            Report.equal(own, Sql.value(connection, "SELECT DATABASE()"), "database of " + number);
            Report.equal(own, Sql.value(connection, "SELECT place FROM home"), "row of " + number);
            Report.equal(own, connection.getCatalog(), "catalog of " + number);
        };
        inTurn((connection, number) -> connection.setCatalog(names[number % 2]), check, check);
        return null;
    }

    /** Whether a write is refused is the driver's affair: it is compared. */
    private Object readOnly() throws Exception {
        StringBuilder seen = new StringBuilder();
        inTurn(
                (connection, number) -> connection.setReadOnly(number % 2 == 0),
                (connection, number) -> {
                    Report.equal(number % 2 == 0, connection.isReadOnly(), "read-only " + number);
                    try {
                        Sql.insert(connection, "read-only", number);
                        seen.append('w');
                    } catch (SQLException refused) {
                        seen.append('r');
                    }
                });
        inTurn((connection, number) -> Sql.insert(connection, "read-only", number));
        return seen;
    }

    private Object networkTimeout() throws Exception {
        Each check = (connection, number) -> {
            Report.equal(20_000 + number, connection.getNetworkTimeout(), "timeout of " + number);
            Report.equal("1", Sql.value(connection, "SELECT 1"), "1");
        };
        inTurn((connection, number) ->
                connection.setNetworkTimeout(Runnable::run, 20_000 + number), check, check);
        return null;
    }

    private Object variable() throws Exception {
        Each check = (connection, number) -> {
            String found = Sql.value(connection, "SELECT @@group_concat_max_len");
            Report.equal(Integer.toString(2_000 + number), found, "variable of " + number);
        };
        inTurn((connection, number) ->
                Sql.run(connection, "SET SESSION group_concat_max_len = " + (2_000 + number)),
                check, check);
        return null;
    }

    private Object userVariable() throws Exception {
        Each check = (connection, number) ->
                Report.equal("own" + number, Sql.value(connection, "SELECT @own"), "@own");
        inTurn((connection, number) -> Sql.run(connection, "SET @own = 'own" + number + "'"),
                check, check);
        return null;
    }

    private Object prepared() throws Exception {
        PreparedStatement[] own = new PreparedStatement[SIZE];
        Each check = (connection, number) -> {
            for (int round = 0; round < 3; round++) {
                own[number].setInt(1, number * 10 + round);
                own[number].setString(2, "of " + number);
                try (ResultSet rows = own[number].executeQuery()) {
                    Report.that(rows.next(), "no row");
                    Report.equal(number * 10 + round + 1, rows.getInt(1), "number");
                    Report.equal("of " + number, rows.getString(2), "word");
                }
            }
        };
        inTurn((connection, number) -> own[number] = connection.prepareStatement("SELECT ? + 1, ?"),
                check, check, (connection, number) -> own[number].close());
        return null;
    }

    private Object generatedKeys() throws Exception {
        long[] keys = new long[SIZE];
        inTurn(
                (connection, number) -> keys[number] = Sql.insert(connection, "keys", number),
                (connection, number) -> {
                    String found = Sql.value(connection, "SELECT LAST_INSERT_ID()");
                    Report.equal(Long.toString(keys[number]), found, "LAST_INSERT_ID()");
                    String query = "SELECT number FROM notes WHERE id = " + keys[number];
                    Report.equal(Integer.toString(number), Sql.value(connection, query), "its row");
                });
        return null;
    }

    private Object batch() throws Exception {
        String tag = "crowd batch";
        long before = counted(tag);
        inTurn((connection, number) -> {
            String text = "INSERT INTO notes (tag, number) VALUES (?, ?)";
            try (PreparedStatement statement = connection.prepareStatement(text)) {
                for (int row = 0; row < 50; row++) {
                    statement.setString(1, tag);
                    statement.setInt(2, row);
                    statement.addBatch();
                }
                Report.equal(50, statement.executeBatch().length, "counts");
            }
        });
        Report.equal(before + 50L * SIZE, counted(tag), "rows");
        return null;
    }

    /** HikariCP puts back what was set by methods of a connection. */
    private Object returned() throws Exception {
        String query = "SELECT CONCAT_WS(' ', DATABASE(), @@autocommit, @@tx_isolation,"
                + " @@tx_read_only)";
        StringBuilder before = new StringBuilder();
        inTurn((connection, number) -> before.append(Sql.value(connection, query)).append(';'));
        inTurn((connection, number) -> {
            connection.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
            connection.setCatalog("hikari_other");
            connection.setReadOnly(true);
            connection.setAutoCommit(false);
        });
        StringBuilder after = new StringBuilder();
        inTurn((connection, number) -> after.append(Sql.value(connection, query)).append(';'));
        Report.equal(before.toString(), after.toString(), "as they were");
        return before;
    }

    private Object taken() throws Exception {
        String tag = "taken";
        long before = counted(tag);
        List<Callable<Object>> tasks = new ArrayList<>();
        for (int number = 0; number < 600; number++) {
            int own = number;
            tasks.add(() -> {
                try (Connection connection = pool.getConnection()) {
                    connection.setAutoCommit(own % 2 == 0);
                    long key = Sql.insert(connection, tag, own);
                    String query = "SELECT number FROM notes WHERE id = " + key;
                    Report.equal(Integer.toString(own), Sql.value(connection, query), "own row");
                    if (own % 2 != 0) {
                        connection.commit();
                    }
                }
                return null;
            });
        }
        all(tasks, 60);
        Report.equal(before + 600, counted(tag), "rows");
        return null;
    }

    private Object evicted() throws Exception {
        pool.getHikariPoolMXBean().softEvictConnections();
        Thread.sleep(100);
        fill();
        selectAtOnce();
        return null;
    }

    private long counted(String tag) throws SQLException {
        try (Connection connection = pool.getConnection()) {
            return Sql.count(connection, tag);
        }
    }

    private static void all(List<Callable<Object>> tasks, int threads) throws Exception {
        ExecutorService executor = Executors.newFixedThreadPool(threads, body -> {
            Thread thread = new Thread(body);
            thread.setDaemon(true);
            return thread;
        });
        try {
            for (Future<Object> future : executor.invokeAll(tasks)) {
                future.get();
            }
        } finally {
            executor.shutdownNow();
        }
    }
}
