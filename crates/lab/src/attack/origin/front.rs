//! Writes configurations of web servers that pass requests to another server.

use std::path::Path;

/// Returns the arguments that start a web server in the foreground with its configuration.
pub(crate) fn arguments(program: &str, config: &Path) -> Vec<String> {
    let config = config.display().to_string();
    let words: &[&str] = match program {
        "apache2" => &["-D", "FOREGROUND", "-f", &config],
        "lighttpd" => &["-D", "-f", &config],
        "caddy" => &["run", "--adapter", "caddyfile", "--config", &config],
        _ => &["-e", "stderr", "-c", &config],
    };
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Returns the beginning of a configuration of nginx with one process.
pub(crate) fn nginx_head(directory: &Path) -> String {
    let directory = directory.display();
    format!(
        "daemon off;\nmaster_process off;\npid {directory}/pid;\n\
         events {{ worker_connections 2000; }}\n\
         http {{\n  client_body_temp_path {directory}/t1;\n  proxy_temp_path {directory}/t2;\n\
         \x20 fastcgi_temp_path {directory}/t3;\n  uwsgi_temp_path {directory}/t4;\n\
         \x20 scgi_temp_path {directory}/t5;\n  keepalive_timeout 60s;\n"
    )
}

/// Returns a configuration in which one server passes requests to another, so that it reads and
/// records their bodies.
pub(super) fn recording_nginx(directory: &Path, port: u16) -> String {
    let inner = crate::free_port();
    let head = nginx_head(directory);
    let directory = directory.display();
    format!(
        "{head}\
         \x20 log_format record escape=json '{{\"method\":\"$request_method\",\"target\":\"$request_uri\",\
         \"host\":\"$http_host\",\"body_text\":\"$request_body\",\"id\":\"$http_x_id\",\"status\":$status}}';\n\
         \x20 server {{\n    listen 127.0.0.1:{port} backlog=1024;\n    access_log {directory}/requests record;\n\
         \x20   client_body_in_single_buffer on;\n    client_body_buffer_size 64k;\n\
         \x20   location / {{ proxy_pass http://127.0.0.1:{inner}; proxy_set_header X-Target $request_uri; }}\n  }}\n\
         \x20 server {{\n    listen 127.0.0.1:{inner} backlog=1024;\n    access_log off;\n\
         \x20   location / {{ return 200 \"$http_x_target\"; }}\n  }}\n}}\n"
    )
}

/// Returns a configuration of Apache with these modules beside the necessary ones.
pub(crate) fn apache(directory: &Path, port: u16, modules: &[&str], more: &str) -> String {
    let directory = directory.display();
    let modules: String = ["mpm_event", "authz_core"]
        .iter()
        .chain(modules)
        .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
        .collect();
    format!(
        "{modules}ServerName a\nServerRoot {directory}\nDefaultRuntimeDir {directory}\n\
         PidFile {directory}/pid\nErrorLog /dev/stderr\nLogLevel error\n\
         User www-data\nGroup www-data\nListen 127.0.0.1:{port}\nListenBacklog 1024\n\
         StartServers 1\nServerLimit 1\nThreadLimit 64\nThreadsPerChild 64\n\
         MaxRequestWorkers 64\nMinSpareThreads 1\nMaxSpareThreads 64\n\
         KeepAlive On\nKeepAliveTimeout 60\nMaxKeepAliveRequests 0\nTimeout 60\n\
         AllowEncodedSlashes NoDecode\nDocumentRoot {directory}\n{more}"
    )
}

/// Returns a configuration of lighttpd that passes all requests to a FastCGI application.
pub(super) fn lighttpd(directory: &Path, port: u16, application: u16) -> String {
    let directory = directory.display();
    format!(
        "server.modules = (\"mod_fastcgi\")\nserver.bind = \"127.0.0.1\"\nserver.port = {port}\n\
         server.document-root = \"{directory}\"\nserver.max-keep-alive-idle = 60\n\
         server.max-keep-alive-requests = 0\nserver.upload-dirs = (\"{directory}\")\n\
         server.http-parseopts = (\"host-strict\" => \"disable\",\n\
         \"host-normalize\" => \"disable\")\n\
         fastcgi.server = (\"/\" => ((\"host\" => \"127.0.0.1\", \"port\" => {application},\n\
         \"check-local\" => \"disable\")))\n"
    )
}

/// Returns a configuration of Caddy with one site.
pub(crate) fn caddy(port: u16, site: &str) -> String {
    format!(
        "{{\nadmin off\nauto_https off\npersist_config off\n}}\n\
         http://:{port} {{\nbind 127.0.0.1\n{site}}}\n"
    )
}
