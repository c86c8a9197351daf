//! Lists the programs of servers, and where each of them differs from the strict reading.

use anyhow::Result;

use super::super::reference::Request;
use crate::program::Program;
use crate::{rootfs, tool};

/// Program of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// nginx; it does not record fields.
    Nginx,
    /// The module `http` of Node.
    Node,
    /// The module `http.server` of Python.
    Python,
    /// The package `net/http` of Go.
    Go,
    /// The class `HttpServer` of the JDK.
    Java,
    /// Apache, with a FastCGI application.
    Apache,
    /// lighttpd, with a FastCGI application.
    Lighttpd,
    /// Caddy, with a FastCGI application.
    Caddy,
    /// Gunicorn with threads.
    Gunicorn,
    /// Waitress.
    Waitress,
    /// Uvicorn with the parser h11.
    UvicornH11,
    /// Uvicorn with the parser httptools.
    UvicornHttptools,
    /// Hypercorn.
    Hypercorn,
    /// aiohttp.
    Aiohttp,
    /// Tornado.
    Tornado,
    /// Puma.
    Puma,
    /// WEBrick.
    Webrick,
    /// The server that PHP brings for development.
    Php,
}

/// Location of a program.
enum Place {
    /// This machine.
    Here,
    /// The root file system of web servers.
    Rootfs,
}

impl Kind {
    /// All programs.
    pub const ALL: [Kind; 18] = [
        Kind::Nginx,
        Kind::Node,
        Kind::Python,
        Kind::Go,
        Kind::Java,
        Kind::Apache,
        Kind::Lighttpd,
        Kind::Caddy,
        Kind::Gunicorn,
        Kind::Waitress,
        Kind::UvicornH11,
        Kind::UvicornHttptools,
        Kind::Hypercorn,
        Kind::Aiohttp,
        Kind::Tornado,
        Kind::Puma,
        Kind::Webrick,
        Kind::Php,
    ];

    /// Programs that start in a fraction of a second, and that every test machine has.
    pub const QUICK: [Kind; 4] = [Kind::Nginx, Kind::Node, Kind::Python, Kind::Go];

    /// Returns the name of the server in the scripts.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Nginx => "nginx",
            Kind::Node => "node",
            Kind::Python => "python3",
            Kind::Go => "go",
            Kind::Java => "java",
            Kind::Apache => "apache2",
            Kind::Lighttpd => "lighttpd",
            Kind::Caddy => "caddy",
            Kind::Gunicorn => "gunicorn",
            Kind::Waitress => "waitress",
            Kind::UvicornH11 => "uvicorn-h11",
            Kind::UvicornHttptools => "uvicorn-httptools",
            Kind::Hypercorn => "hypercorn",
            Kind::Aiohttp => "aiohttp",
            Kind::Tornado => "tornado",
            Kind::Puma => "puma",
            Kind::Webrick => "webrick",
            Kind::Php => "php",
        }
    }

    fn place(self) -> (Place, &'static str) {
        match self {
            Kind::Nginx | Kind::Node | Kind::Python | Kind::Go | Kind::Java => {
                (Place::Here, self.name())
            }
            Kind::Apache | Kind::Lighttpd | Kind::Caddy | Kind::Php => (Place::Rootfs, self.name()),
            Kind::Puma | Kind::Webrick => (Place::Rootfs, "ruby"),
            _ => (Place::Rootfs, "python3"),
        }
    }

    /// Returns the program to start.
    pub(super) fn program(self) -> Result<Program> {
        match self.place() {
            (Place::Rootfs, program) => rootfs::find_of_web(program),
            (Place::Here, "go") => tool::find_go().map(Program::here),
            (Place::Here, program) => tool::find(program).map(Program::here),
        }
    }

    /// Returns keys of the service in front of this server.
    pub(crate) fn keys(self) -> &'static str {
        match self {
            // It ends for lack of memory at a large Content-Length, before there is a body.
            Kind::Php => "body_bytes_max = 1048576\n",
            _ => "",
        }
    }

    /// Returns a request of the strict reading as this server reports it to its application.
    pub(crate) fn reported(self, mut request: Request) -> Request {
        // The interface for applications has no empty query.
        let is_asgi = matches!(
            self,
            Kind::UvicornH11 | Kind::UvicornHttptools | Kind::Hypercorn
        );
        if is_asgi && request.target.find('?') == Some(request.target.len() - 1) {
            request.target.pop();
        }
        match self {
            Kind::Hypercorn => request.method.make_ascii_uppercase(),
            Kind::Lighttpd => request.host.make_ascii_lowercase(),
            Kind::Caddy => as_by_caddy(&mut request),
            _ => {}
        }
        request
    }
}

/// Changes a request as Caddy does for a FastCGI application: it sends no body with some methods,
/// and escapes the characters that RFC 3986 does not permit in a path.
fn as_by_caddy(request: &mut Request) {
    if matches!(&*request.method, "HEAD" | "OPTIONS") {
        request.body.clear();
    }
    let path_length = request.target.find('?').unwrap_or(request.target.len());
    let query = request.target.split_off(path_length);
    let escaped = request.target.chars().map(|one| match one {
        '"' | '<' | '>' | '\\' | '^' | '`' | '{' | '|' | '}' => format!("%{:02X}", u32::from(one)),
        _ => one.to_string(),
    });
    request.target = escaped.collect::<String>() + &query;
}
