// Records each complete request as a line of JSON, and answers with its target.
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.Executors;

public class Origin {
    static Path log;

    static String quoted(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char one : text.toCharArray()) {
            boolean isPlain = one >= ' ' && one < 127 && one != '"' && one != '\\';
            out.append(isPlain ? String.valueOf(one) : String.format("\\u%04x", (int) one));
        }
        return out.append('"').toString();
    }

    static synchronized void write(String line) throws IOException {
        Files.writeString(log, line + "\n", StandardOpenOption.APPEND);
    }

    static void answer(HttpExchange exchange) throws IOException {
        byte[] body = exchange.getRequestBody().readAllBytes();
        String target = exchange.getRequestURI().toString();
        List<String> fields = new ArrayList<>();
        exchange.getRequestHeaders().forEach((name, values) -> {
            for (String value : values) {
                fields.add(quoted(name));
                fields.add(quoted(value));
            }
        });
        String host = exchange.getRequestHeaders().getFirst("Host");
        write("{\"method\":" + quoted(exchange.getRequestMethod())
            + ",\"target\":" + quoted(target)
            + ",\"host\":" + quoted(host == null ? "" : host)
            + ",\"body\":" + quoted(HexFormat.of().formatHex(body))
            + ",\"fields\":[" + String.join(",", fields) + "]}");
        byte[] text = target.getBytes(StandardCharsets.ISO_8859_1);
        boolean isHead = exchange.getRequestMethod().equals("HEAD");
        exchange.sendResponseHeaders(200, isHead ? -1 : text.length);
        if (!isHead) {
            exchange.getResponseBody().write(text);
        }
        exchange.close();
    }

    public static void main(String[] arguments) throws IOException {
        log = Path.of(arguments[1]);
        InetSocketAddress address = new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0]));
        HttpServer server = HttpServer.create(address, 1024);
        server.createContext("/", Origin::answer);
        server.setExecutor(Executors.newCachedThreadPool());
        server.start();
    }
}
