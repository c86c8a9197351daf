//! Writes a server's files, and returns how to start it.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use super::kind::Kind;
use super::{Part, front};
use crate::free_port;
use crate::process::Launch;
use crate::program::Program;
use crate::rootfs;

/// Writes the server's files into the directory; returns its programs, that with the port last.
pub(super) fn prepare(kind: Kind, directory: &Path, port: u16) -> Result<Vec<Part>> {
    let program = kind.program()?;
    let own = [
        port.to_string(),
        directory.join("requests").display().to_string(),
    ];
    let write = |name: &str, text: &str| -> Result<String> {
        let file = directory.join(name);
        fs::write(&file, text)?;
        Ok(file.display().to_string())
    };
    let script = |name: &str, text: &str, first: &[&str]| -> Result<Vec<String>> {
        let first = first.iter().map(|argument| (*argument).to_owned());
        Ok([write(name, text)?]
            .into_iter()
            .chain(first)
            .chain(own.clone())
            .collect())
    };
    let name = kind.name();
    let launch = match kind {
        Kind::Nginx => {
            let config = write("nginx.conf", &front::recording_nginx(directory, port))?;
            launch(program, ["-e", "stderr", "-c", &config])
        }
        Kind::Node => launch(
            program,
            script("origin.js", include_str!("../programs/origin.js"), &[])?,
        ),
        Kind::Python => Launch {
            keep_environment: true,
            ..launch(
                program,
                script("origin.py", include_str!("../programs/origin.py"), &[])?,
            )
        },
        Kind::Go => {
            let file = write("origin.go", include_str!("../programs/origin.go"))?;
            launch(build(&program, directory, &file)?, own)
        }
        Kind::Java => launch(
            program,
            script("Origin.java", include_str!("../programs/Origin.java"), &[])?,
        ),
        Kind::Puma | Kind::Webrick => launch(
            program,
            script(
                "servers.rb",
                include_str!("../programs/servers.rb"),
                &[name],
            )?,
        ),
        Kind::Php => {
            let file = write("origin.php", include_str!("../programs/origin.php"))?;
            launch(program, ["-S", &format!("127.0.0.1:{port}"), &file])
        }
        Kind::Apache | Kind::Lighttpd | Kind::Caddy => {
            return with_application(kind, program, directory, port);
        }
        _ => launch(
            program,
            script(
                "servers.py",
                include_str!("../programs/servers.py"),
                &[name],
            )?,
        ),
    };
    Ok(vec![Part { launch, port }])
}

/// Returns how to start a program with these arguments.
pub(crate) fn launch(
    program: Program,
    arguments: impl IntoIterator<Item = impl Into<String>>,
) -> Launch {
    Launch {
        program: program.path,
        root: program.root,
        arguments: arguments.into_iter().map(Into::into).collect(),
        ..Launch::default()
    }
}

/// Returns the FastCGI application, and the web server that passes all requests to it.
fn with_application(
    kind: Kind,
    program: Program,
    directory: &Path,
    port: u16,
) -> Result<Vec<Part>> {
    let inner = free_port();
    let file = directory.join("fastcgi.py");
    fs::write(&file, include_str!("../programs/fastcgi.py"))?;
    let log = directory.join("requests");
    let application = launch(
        rootfs::find_of_web("python3")?,
        [
            file.display().to_string(),
            inner.to_string(),
            log.display().to_string(),
        ],
    );
    let text = match kind {
        Kind::Apache => front::apache(
            directory,
            port,
            &["proxy", "proxy_fcgi"],
            &format!(
                "<Location \"/\">\nSetHandler \"proxy:fcgi://127.0.0.1:{inner}\"\n</Location>\n"
            ),
        ),
        Kind::Lighttpd => front::lighttpd(directory, port, inner),
        _ => front::caddy(
            port,
            &format!(
                "reverse_proxy 127.0.0.1:{inner} {{\n\
                 transport fastcgi {{\nenv METHOD {{method}}\n}}\n}}\n"
            ),
        ),
    };
    let config = directory.join("config");
    fs::write(&config, text)?;
    let server = launch(program, front::arguments(kind.name(), &config));
    Ok(vec![
        Part {
            launch: application,
            port: inner,
        },
        Part {
            launch: server,
            port,
        },
    ])
}

/// Compiles a file of Go; returns the program.
pub(crate) fn build(go: &Program, directory: &Path, file: &str) -> Result<Program> {
    let built = directory.join("origin");
    let output = Command::new(&go.path)
        .args(["build", "-o"])
        .args([&built.display().to_string(), file])
        .env("GO111MODULE", "off")
        .output()?;
    if !output.status.success() {
        bail!("go build: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(Program::here(built))
}
