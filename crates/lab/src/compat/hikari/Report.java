import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** Runs checks one after another and prints a verdict of each: a line of three columns. */
final class Report {
    private static final int LIMIT_S = 40;

    /** What it returns is a value to be compared, or null. */
    void check(String name, Callable<Object> body) {
        FutureTask<Object> task = new FutureTask<>(body);
        Thread thread = new Thread(task, name);
        thread.setDaemon(true);
        thread.start();
        try {
            Object value = task.get(LIMIT_S, TimeUnit.SECONDS);
            line("passed", name, value == null ? "" : value.toString());
        } catch (TimeoutException late) {
            task.cancel(true);
            line("failed", name, "no end within " + LIMIT_S + " s");
        } catch (ExecutionException failure) {
            line("failed", name, words(failure.getCause()));
        } catch (InterruptedException unexpected) {
            line("failed", name, "interrupted");
        }
    }

    /** A check that cannot be made, since what it needs has failed already. */
    void impossible(String name, String why) {
        line("failed", name, why);
    }

    private static String words(Throwable failure) {
        StringBuilder words = new StringBuilder(failure.toString());
        for (Throwable cause = failure.getCause(); cause != null; cause = cause.getCause()) {
            words.append("; because of ").append(cause);
        }
        return words.toString();
    }

    private static void line(String verdict, String name, String words) {
        String flat = words.replaceAll("\\s+", " ").trim();
        System.out.println("verdict\t" + verdict + "\t" + name + "\t" + flat);
        System.out.flush();
    }

    static void that(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }

    static void equal(Object expected, Object found, String what) {
        boolean same = expected == null ? found == null : expected.equals(found);
        that(same, what + ": expected " + expected + ", found " + found);
    }

    static long millis(long since) {
        return (System.nanoTime() - since) / 1_000_000;
    }
}
