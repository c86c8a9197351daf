//! Implements the commands that send one request to the running process: `status`, `reload`,
//! `drain` and others.

use std::process::ExitCode;

use evenkeel_config::{ReportedProblem, Style, default_socket, socket_of};
use serde_json::{Value, json};

use super::{
    DrainArgs, PrimaryArgs, ProcessArgs, RevokeArgs, ServerArgs, StatusArgs, WeightArgs, table,
};
use crate::client::Client;

pub(super) fn status(args: &StatusArgs) -> ExitCode {
    let Some(client) = client(&args.process) else {
        return ExitCode::FAILURE;
    };
    let service = args.service.iter();
    let mut query: Vec<_> = service.map(|name| service_query(name)).collect();
    query.extend(args.all.then(|| "servers=all".to_owned()));
    let query = query.join("&");
    let answer = if args.json {
        client.status_json(&query)
    } else {
        let status = client.status(&query);
        status.map(|status| status.map(|status| table::rendered(&status)))
    };
    match answer {
        Ok(Ok(text)) => print(text.trim_end()),
        Ok(Err(message)) => fail(&message),
        Err(error) => fail(&error.to_string()),
    }
}

/// Returns the query of a status that contains one service.
pub(super) fn service_query(name: &str) -> String {
    format!("service={}", url_encoded(name))
}

pub(super) fn reload(process: &ProcessArgs) -> ExitCode {
    command(process, "/api/v1/reload", &json!({}))
}

pub(super) fn drain(args: &DrainArgs) -> ExitCode {
    let body = args
        .limit_ms
        .map_or(json!({}), |limit| json!({ "limit_ms": limit }));
    server_command(&args.server, "drain", &body)
}

pub(super) fn undrain(args: &ServerArgs) -> ExitCode {
    server_command(args, "undrain", &json!({}))
}

pub(super) fn weight(args: &WeightArgs) -> ExitCode {
    server_command(&args.server, "weight", &json!({ "weight": args.weight }))
}

pub(super) fn primary(args: &PrimaryArgs) -> ExitCode {
    server_command(&args.server, "primary", &json!({ "clear": args.clear }))
}

pub(super) fn revoke(args: &RevokeArgs) -> ExitCode {
    let path = format!("/api/v1/certificates/{}/revoke", url_encoded(&args.name));
    let body = json!({ "reason": args.reason, "order": !args.no_order });
    command(&args.process, &path, &body)
}

fn server_command(args: &ServerArgs, verb: &str, body: &Value) -> ExitCode {
    let path = format!("/api/v1/servers/{}/{verb}", url_encoded(&args.server));
    command(&args.process, &path, body)
}

pub(super) fn command(process: &ProcessArgs, path: &str, body: &Value) -> ExitCode {
    let Some(client) = client(process) else {
        return ExitCode::FAILURE;
    };
    match client.post(path, body) {
        Ok(reply) => {
            for problem in &reply.problems {
                eprintln!("{}", render_problem(problem));
            }
            if reply.ok {
                print(&reply.message)
            } else {
                fail(&reply.message)
            }
        }
        Err(error) => fail(&error.to_string()),
    }
}

pub(super) fn client(process: &ProcessArgs) -> Option<Client> {
    let socket = match (&process.socket, &process.config) {
        (Some(socket), _) => socket.clone(),
        (None, None) => default_socket(),
        (None, Some(file)) => match socket_of(file) {
            Ok(socket) => socket,
            Err(problems) => {
                eprint!("{}", problems.render(Style::for_stderr()));
                return None;
            }
        },
    };
    Some(Client::new(socket))
}

fn render_problem(problem: &ReportedProblem) -> String {
    let mut line = problem
        .file
        .clone()
        .unwrap_or_else(|| "command line".to_owned());
    for number in [problem.line, problem.column].into_iter().flatten() {
        line.push_str(&format!(":{number}"));
    }
    let ReportedProblem {
        severity,
        code,
        message,
        ..
    } = problem;
    line.push_str(&format!(": {severity}[{code}]: {message}"));
    match &problem.help {
        Some(help) => format!("{line}\n  help: {help}"),
        None => line,
    }
}

/// Encodes a name for a URL: names may contain colons and slashes.
pub(super) fn url_encoded(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let encode = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    name.bytes().map(encode).collect()
}

/// Prints a line. Returns failure, instead of a panic, if the reader (such as `head`) has exited.
pub(super) fn print(text: &str) -> ExitCode {
    use std::io::Write;
    match writeln!(std::io::stdout(), "{text}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

pub(super) fn fail(message: &str) -> ExitCode {
    eprintln!("error: {message}");
    ExitCode::FAILURE
}
