import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;

/** What the checks ask for again and again. */
final class Sql {
    private Sql() {}

    /** A pool that keeps all of its connections open; each option of its driver is KEY=VALUE. */
    static HikariDataSource pool(String url, String[] options, int size) {
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl(url);
        config.setUsername("sbtest");
        config.setPassword("sbtest");
        // Without it HikariCP does not put the catalog of a returned connection back.
        config.setCatalog("hikari");
        config.setMaximumPoolSize(size);
        config.setMinimumIdle(size);
        config.setConnectionTimeout(10_000);
        config.setInitializationFailTimeout(-1);
        for (String option : options) {
            int at = option.indexOf('=');
            config.addDataSourceProperty(option.substring(0, at), option.substring(at + 1));
        }
        return new HikariDataSource(config);
    }

    /** The first column of the first row; null where there is no row. */
    static String value(Connection connection, String query) throws SQLException {
        try (Statement statement = connection.createStatement();
                ResultSet rows = statement.executeQuery(query)) {
            return rows.next() ? rows.getString(1) : null;
        }
    }

    static int run(Connection connection, String text) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            return statement.executeUpdate(text);
        }
    }

    /** Writes a row of the table `notes` and returns the key that was generated for it. */
    static long insert(Connection connection, String tag, int number) throws SQLException {
        String text = "INSERT INTO notes (tag, number) VALUES (?, ?)";
        int keys = Statement.RETURN_GENERATED_KEYS;
        try (PreparedStatement statement = connection.prepareStatement(text, keys)) {
            statement.setString(1, tag);
            statement.setInt(2, number);
            Report.equal(1, statement.executeUpdate(), "rows written");
            try (ResultSet rows = statement.getGeneratedKeys()) {
                Report.that(rows.next(), "no generated key");
                return rows.getLong(1);
            }
        }
    }

    static long count(Connection connection, String tag) throws SQLException {
        return Long.parseLong(
                value(connection, "SELECT COUNT(*) FROM notes WHERE tag = '" + tag + "'"));
    }
}
