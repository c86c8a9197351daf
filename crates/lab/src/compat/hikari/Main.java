import com.zaxxer.hikari.HikariDataSource;
import java.util.Arrays;

/** HikariCP on the driver of the class path. Arguments: an URL, and options of the driver. */
final class Main {
    private Main() {}

    public static void main(String[] arguments) {
        String url = arguments[0];
        String[] options = Arrays.copyOfRange(arguments, 1, arguments.length);
        Report report = new Report();
        HikariDataSource small = Sql.pool(url, options, 3);
        new Single(small, report).run();
        small.close();
        HikariDataSource large = Sql.pool(url, options, 30);
        new Crowd(large).run(report);
        large.close();
        System.out.println("end");
        System.exit(0);
    }
}
